//! Tests of the contents of manifests: their encoding, and the states that they lead to.

use umbel_base::BlobPointer;
use umbel_base::checksum::checksum;

use super::*;
use crate::version::store_identity::Identity;

fn meta(id: u64, blobs: Vec<BlobPointer>) -> Arc<TableMeta> {
    Arc::new(TableMeta {
        id,
        file_bytes: 700 + id,
        entries: 5,
        deletes: 0,
        range_tombstones: 0,
        key_bytes: 29,
        value_bytes: 22,
        smallest: format!("a{id}").into_bytes(),
        largest: format!("a{id}z").into_bytes(),
        largest_is_exclusive: false,
        sequence_min: id,
        sequence_max: id + 1,
        filter_bytes: 128,
        second_filter: None,
        prefix_filter_bytes: 0,
        index_bytes: 14,
        blocks: 2,
        footer_checksum: id * 77,
        blobs,
    })
}

fn add(id: u64, level: usize, blobs: Vec<BlobPointer>) -> Edit {
    Edit::AddTable { keyspace: 0, level, meta: meta(id, blobs) }
}

fn store(edits: &[Edit]) -> ManifestState {
    let identity = Identity { store_id: [1; 16], hash_seed: [2; 16], seed_id: 1, features: 0 };
    let options = KeyspaceOptions::default();
    let first = [
        Edit::Identity(identity),
        Edit::Instance([3; 16]),
        Edit::NextFileId(100),
        Edit::Keyspace { id: 0, name: "users".into(), options },
    ];
    let mut state = ManifestState::default();
    first.iter().chain(edits).for_each(|edit| state.apply(edit).expect("the edit fits"));
    sort_levels(&mut state);
    state
}

fn backed(store: ManifestState) -> BackupState {
    let piece = |file: SourceFile, bytes: u64| Piece {
        uid: [file.id as u8; 16],
        is_whole: true,
        from: 0,
        to: bytes,
        digest: 9,
    };
    let file = |(file, content): (SourceFile, FileContent)| {
        (file, BackedFile { piece: piece(file, content.bytes), checksum: content.checksum })
    };
    let files = files_of(&store).into_iter().map(file).collect();
    BackupState { store: Some(Arc::new(store)), captured_micros: 5, is_complete: true, files }
}

fn states() -> [BackupState; 4] {
    let blob = BlobPointer { id: 30, value_bytes: 4000, checksum: 8 };
    let first = [add(9, 3, vec![]), add(7, 3, vec![]), add(20, 0, vec![]), Edit::LastSequence(40)];
    let gone = Edit::RemoveTable { keyspace: 0, level: 0, id: 20 };
    let options = KeyspaceOptions { bloom_bits: 3, ..KeyspaceOptions::default() };
    let second = [
        gone,
        add(20, 1, vec![]),
        add(31, 0, vec![blob]),
        Edit::FlushedThrough { keyspace: 0, sequence: 50 },
        Edit::LastSequence(50),
        Edit::Keyspace { id: 0, name: "users".into(), options },
        Edit::Marker { keyspace: 0, marker: b"here".to_vec() },
    ];
    let third = [
        Edit::Keyspace { id: 4, name: "short".into(), options: KeyspaceOptions::default() },
        Edit::DropKeyspace(4),
        Edit::RemoveTable { keyspace: 0, level: 3, id: 7 },
    ];
    let all = |count: usize| {
        let edits = [&first[..], &second, &third, &[Edit::DropKeyspace(0)]];
        backed(store(&edits[..count].concat()))
    };
    [all(1), all(2), all(3), all(4)]
}

fn manifest(contents: StoreContents) -> BackupManifest {
    BackupManifest {
        number: 6,
        uid: [1; 16],
        previous: [2; 16],
        backup: [3; 16],
        writer: [4; 16],
        wall_micros: 1_000_000,
        store_micros: 0,
        contents,
    }
}

#[test]
fn manifest_round_trips_and_changed_bytes_are_rejected() {
    let state = &states()[1];
    let manifest = manifest(StoreContents::between(None, state));
    let bytes = manifest.encode();
    assert_eq!(BackupManifest::decode(&bytes, 6).expect("just written"), manifest);
    assert!(BackupManifest::decode(&bytes, 7).is_err(), "under another number");
    assert_eq!(manifest.contents.apply(None).as_ref(), Some(state));
    for bit in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(BackupManifest::decode(&changed, 6).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(BackupManifest::decode(&bytes[..len], 6).is_err(), "{len} bytes");
    }
    let mut newer = bytes[..bytes.len() - 8].to_vec();
    newer[8] = 2;
    let sum = checksum(6, 0, &newer);
    newer.extend_from_slice(&sum.to_le_bytes());
    let message = BackupManifest::decode(&newer, 6).expect_err("a newer format");
    assert!(message.contains("newer Umbel"), "{message}");
}

#[test]
fn changes_lead_to_the_next_state() {
    let states = states();
    for (from, old) in states.iter().enumerate() {
        for (to, new) in states.iter().enumerate().skip(from + 1) {
            let contents = StoreContents::between(Some(old), new);
            assert!(!contents.is_full, "from {from} to {to}: {contents:?}");
            let manifest = manifest(contents);
            let decoded = BackupManifest::decode(&manifest.encode(), 6).expect("just written");
            assert_eq!(decoded.contents.apply(Some(old.clone())).as_ref(), Some(new));
            assert_eq!(decoded.contents.apply(None), None, "changes need a state");
            assert!(!StoreContents::is_same(old, new), "from {from} to {to}");
        }
        assert!(StoreContents::is_same(old, old));
    }
    let contents = StoreContents::between(Some(&states[0]), &states[1]);
    assert_eq!(contents.files.len(), 2, "a moved table is not new: {:?}", contents.files);
    assert_eq!(contents.edits.len(), 8, "{:?}", contents.edits);
}

/// A state that no edits lead to is in a full manifest.
#[test]
fn other_changes_need_a_full_manifest() {
    let states = states();
    assert!(StoreContents::between(Some(&states[1]), &states[0]).is_full, "an earlier state");
    let mut other = states[0].clone();
    let mut changed = ManifestState::clone(other.store.as_ref().expect("a state"));
    changed.identity.as_mut().expect("an identity").features |= 1 << 40;
    other.store = Some(Arc::new(changed));
    assert!(StoreContents::between(Some(&states[0]), &other).is_full, "other features");
}

#[test]
fn runs_that_go_on_keep_the_state_and_add_files() {
    let [old, new, ..] = states();
    let mut going = old.clone();
    going.is_complete = false;
    going.files.extend(new.files.iter().map(|(file, backed)| (*file, *backed)));
    let contents = StoreContents::between(Some(&old), &going);
    assert!(contents.edits.is_empty() && contents.files.len() == 2, "{contents:?}");
    assert_eq!(contents.apply(Some(old.clone())), Some(going.clone()));
    let full = StoreContents::between(None, &going);
    assert_eq!(full.apply(None), Some(going.clone()));
    let next = StoreContents::between(Some(&going), &new);
    assert!(next.files.is_empty(), "{next:?}");
    assert_eq!(next.apply(Some(going)), Some(new));
    let begun = BackupState { store: None, captured_micros: 0, is_complete: false, ..old.clone() };
    assert_eq!(StoreContents::between(None, &begun).apply(None), Some(begun.clone()));
    assert!(!StoreContents::is_restorable(&begun) && StoreContents::is_restorable(&old));
    let first = StoreContents::between(Some(&begun), &old);
    assert!(first.files.is_empty() && !first.is_full, "{first:?}");
    assert_eq!(first.apply(Some(begun)), Some(old));
}

#[test]
fn contradictions_have_no_state() {
    let state = &states()[1];
    let full = |change: fn(&mut StoreContents)| {
        let mut contents = StoreContents::between(None, state);
        change(&mut contents);
        contents.apply(None)
    };
    assert!(full(|_| {}).is_some());
    type Change = fn(&mut StoreContents);
    let contradictions: [(&str, Change); 6] = [
        ("a file is missing", |contents| contents.files.truncate(1)),
        ("another length", |contents| contents.files[0].1.piece.to += 1),
        ("another checksum", |contents| contents.files[0].1.checksum += 1),
        ("another sequence number", |contents| contents.last_sequence += 1),
        ("no state", |contents| contents.edits.clear()),
        ("a WAL segment", |contents| {
            contents.edits.push(Edit::Log { id: 50, state: crate::version::LogState::Open });
        }),
    ];
    for (what, change) in contradictions {
        assert_eq!(full(change), None, "{what}");
    }
    let mut earlier = StoreContents::between(Some(&states()[0]), state);
    earlier.captured_micros = 4;
    assert_eq!(earlier.apply(Some(states()[0].clone())), None, "an earlier time");
}
