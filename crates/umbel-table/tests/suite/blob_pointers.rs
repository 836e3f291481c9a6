//! Tests of entries with blob pointers, and of the metadata's list of these pointers.

use std::sync::Arc;

use umbel_base::{BlobPointer, Error, ValueKind};
use umbel_table::{Compression, TableBuilder, TableMeta};

use crate::fixture::{Model, TABLE_ID, get, hasher, open, options, walk};
use umbel_env::memory_file::MemoryFile;

fn pointer(id: u64) -> BlobPointer {
    BlobPointer { id, value_bytes: id * 1000, checksum: !id }
}

/// Returns a model in which every third entry points at a long value, the first entry at the one
/// with the greatest id.
fn with_blobs(count: u64) -> Model {
    let mut model = Model::default();
    for number in 0..count {
        let key = format!("key{number:03}").into_bytes();
        if number % 3 == 0 {
            let entry = (ValueKind::BlobPointer, pointer(count - number).encode().to_vec());
            model.entries.insert((key, !number), entry);
        } else {
            model.put(&key, number, b"value");
        }
    }
    model
}

#[test]
fn pointers_round_trip_and_the_table_lists_their_blobs() {
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let model = with_blobs(40);
        let (file, meta) = model.build(options(256, compression));
        let ids: Vec<u64> = meta.blobs.iter().map(|blob| blob.id).collect();
        assert_eq!(ids, (1..=40).filter(|id| (40 - id) % 3 == 0).collect::<Vec<_>>());
        assert!(meta.blobs.iter().all(|blob| *blob == pointer(blob.id)));
        assert_eq!(meta.blob_value_bytes(), ids.iter().sum::<u64>() * 1000);
        let table = open(&file, &meta, Some(&hasher())).unwrap();
        assert_eq!(table.meta().blobs, meta.blobs);
        assert_eq!(walk(&table, true).unwrap(), model.list());
        for key in model.keys() {
            assert_eq!(get(&table, &key, 99).unwrap(), model.get(&key, 99));
        }
        table.verify().unwrap();
        let other = TableMeta { blobs: meta.blobs[1..].to_vec(), ..meta };
        assert!(matches!(open(&file, &other, None), Err(Error::Corruption { .. })));
    }
}

#[test]
fn a_table_without_pointers_lists_none() {
    let mut model = Model::default();
    model.put(b"k", 1, b"v");
    let (_, meta) = model.build(options(256, Compression::None));
    assert_eq!(meta.blobs, []);
}

#[test]
fn dangling_and_duplicate_pointers_are_refused() {
    let builder = || {
        let file = Arc::new(MemoryFile::default());
        TableBuilder::new(file, TABLE_ID, hasher(), options(256, Compression::None))
    };
    let kind = ValueKind::BlobPointer;
    assert!(matches!(builder().add(b"k", 1, kind, b"no pointer"), Err(Error::Invalid(_))));
    let mut twice = builder();
    twice.add(b"a", 1, kind, &pointer(3).encode()).unwrap();
    twice.add(b"b", 2, kind, &pointer(3).encode()).unwrap();
    assert!(matches!(twice.finish(), Err(Error::Invalid(_))));
}
