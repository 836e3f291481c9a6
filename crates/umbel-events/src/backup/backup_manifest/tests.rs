//! Accepted and refused manifests of a backup.

use umbel_log::Seal;

use crate::event_log::chunk_manifest::ChunkEnd;

use super::*;

fn example() -> BackupManifest {
    let mut chunk_manifest = ChunkManifest::new([9; 16], [8; 16]);
    chunk_manifest.generation = 4;
    chunk_manifest.add(4 << 20, 31);
    chunk_manifest.add(4 << 20, 32);
    let len = BLOCK_BYTES + 5000;
    let sealed = Some(Seal { len, checksum: 77 });
    chunk_manifest.chunks[0].ended =
        Some(ChunkEnd { end: len - 48, last_event: 4800, seal: sealed });
    chunk_manifest.chunks[1].ended = Some(ChunkEnd { end: 640, last_event: 96, seal: None });
    let file = |entry: usize, len: u64, blocks: &[u64]| BackupFile {
        name: file_name(&chunk_manifest.chunks[entry]),
        len,
        block_checksums: blocks.to_vec(),
    };
    let files = vec![file(0, len, &[1, 2]), file(1, 640, &[3])];
    BackupManifest { number: 2, chunk_manifest, files }
}

#[test]
fn manifest_round_trips_and_changed_bytes_are_rejected() {
    let (manifest, path) = (example(), Path::new("BACKUP"));
    let bytes = manifest.encode();
    assert_eq!(BackupManifest::decode(&bytes, path).expect("just written"), manifest);
    assert_eq!(manifest.last_position(), (4 << 20) + 96);
    assert_eq!(manifest.bytes(), BLOCK_BYTES + 5640);
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(BackupManifest::decode(&changed, path).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(BackupManifest::decode(&bytes[..len], path).is_err(), "{len} bytes");
    }
}

#[test]
fn impossible_manifests_are_rejected() {
    let good = example();
    let mut longer = good.clone();
    longer.files[1].len += 1;
    let mut elsewhere = good.clone();
    elsewhere.files[0].name = "../1.chunk".to_string();
    let mut twice = good.clone();
    twice.files[1].name.clone_from(&good.files[0].name);
    let mut open = good.clone();
    open.chunk_manifest.chunks[1].ended = None;
    let mut missing = good.clone();
    missing.files.pop();
    let mut unfinished = good.clone();
    unfinished.number = 0;
    for (what, manifest) in [
        ("a length that is not the chunk's", longer),
        ("a name that leads elsewhere", elsewhere),
        ("a file twice", twice),
        ("a chunk that has not ended", open),
        ("a chunk without a file", missing),
        ("files of no backup", unfinished),
    ] {
        let decoded = BackupManifest::decode(&manifest.encode(), Path::new("BACKUP"));
        assert!(decoded.is_err(), "{what}");
    }
}

/// Appends the checksum of these bytes.
fn seal(bytes: &mut [u8]) {
    let end = bytes.len() - 8;
    let sum = checksum(0, 0, &bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn newer_format_version_is_rejected() {
    let mut manifest = example().encode();
    manifest[8] = 2;
    seal(&mut manifest);
    let mut chunk_manifest = example().encode();
    let at = chunk_manifest
        .windows(8)
        .position(|bytes| bytes == b"UmbelChk")
        .expect("the chunk manifest");
    let bytes = example().chunk_manifest.encode().len();
    chunk_manifest[at + 8] = 6;
    seal(&mut chunk_manifest[at..at + bytes]);
    seal(&mut chunk_manifest);
    for (what, bytes) in
        [("backup format 2", manifest), ("chunk manifest format 6", chunk_manifest)]
    {
        let refused = BackupManifest::decode(&bytes, Path::new("BACKUP")).expect_err(what);
        let message = refused.to_string();
        assert!(matches!(refused, Error::Invalid(_)) && message.contains(what), "{message}");
        assert!(message.contains("newer Umbel"), "{message}");
    }
}

#[test]
fn only_chunk_file_names_are_recognized() {
    for name in ["00000001.chunk", "123456789.chunk", "00000001-2.chunk", "00000001.2.chunk"] {
        assert!(is_file_name(name), "{name}");
    }
    for name in ["", ".chunk", "..chunk", "a.chunk", "1/2.chunk", "00000001.table", "../1.chunk"] {
        assert!(!is_file_name(name), "{name}");
    }
}
