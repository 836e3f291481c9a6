//! What is taken for the manifest of a backup, and what is not.

use umbel_log::Sealed;

use crate::chunk_table::Ended;

use super::*;

fn example() -> BackupManifest {
    let mut table = ChunkTable::new([9; 16], [8; 16]);
    table.generation = 4;
    table.add(4 << 20, 31);
    table.add(4 << 20, 32);
    let len = BLOCK_BYTES + 5000;
    let sealed = Some(Sealed { len, checksum: 77 });
    table.chunks[0].ended = Some(Ended { end: len - 48, last_event: 4800, sealed });
    table.chunks[1].ended = Some(Ended { end: 640, last_event: 96, sealed: None });
    let file = |entry: usize, len: u64, blocks: &[u64]| BackupFile {
        name: file_name(&table.chunks[entry]),
        len,
        blocks: blocks.to_vec(),
    };
    let files = vec![file(0, len, &[1, 2]), file(1, 640, &[3])];
    BackupManifest { number: 2, table, files }
}

#[test]
fn a_manifest_comes_back_and_no_changed_byte_is_taken_for_it() {
    let (manifest, path) = (example(), Path::new("BACKUP"));
    let bytes = manifest.encode();
    assert_eq!(BackupManifest::decode(&bytes, path).expect("just written"), manifest);
    assert_eq!(manifest.through(), (4 << 20) + 96);
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
fn manifests_that_cannot_be_are_refused() {
    let good = example();
    let mut longer = good.clone();
    longer.files[1].len += 1;
    let mut elsewhere = good.clone();
    elsewhere.files[0].name = "../1.chunk".to_string();
    let mut twice = good.clone();
    twice.files[1].name.clone_from(&good.files[0].name);
    let mut open = good.clone();
    open.table.chunks[1].ended = None;
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

/// Puts the checksum behind these bytes that fits.
fn seal(bytes: &mut [u8]) {
    let end = bytes.len() - 8;
    let sum = checksum(0, 0, &bytes[..end]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut manifest = example().encode();
    manifest[8] = 2;
    seal(&mut manifest);
    let mut table = example().encode();
    let at = table.windows(8).position(|bytes| bytes == b"UmbelChk").expect("the table");
    let bytes = example().table.encode().len();
    table[at + 8] = 5;
    seal(&mut table[at..at + bytes]);
    seal(&mut table);
    for (what, bytes) in [("backup 2", manifest), ("table of chunks 5", table)] {
        let refused = BackupManifest::decode(&bytes, Path::new("BACKUP")).expect_err(what);
        let said = refused.to_string();
        assert!(matches!(refused, Error::Invalid(_)) && said.contains(what), "{said}");
        assert!(said.contains("newer Umbel"), "{said}");
    }
}

#[test]
fn names_of_chunks_are_told_from_others() {
    for name in ["00000001.chunk", "123456789.chunk", "00000001-2.chunk", "00000001.2.chunk"] {
        assert!(is_file_name(name), "{name}");
    }
    for name in ["", ".chunk", "..chunk", "a.chunk", "1/2.chunk", "00000001.table", "../1.chunk"] {
        assert!(!is_file_name(name), "{name}");
    }
}
