//! Tests of limits: the maximum is accepted, and one more fails with a clear message and changes
//! nothing.

use umbel::limits::{
    BATCH_OPERATIONS_MAX, KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX, KEYSPACES_MAX, VALUE_BYTES_MAX,
};
use umbel::{Batch, Db, Durability, Error, Keyspace, KeyspaceOptions, Options, Snapshot};

use crate::suite::fixture::{PATH, again, all, existing, inline, new_store};

fn refusal<T: std::fmt::Debug>(result: umbel::Result<T>) -> String {
    match result.unwrap_err() {
        Error::Invalid(message) => message,
        other => panic!("not refused as invalid: {other:?}"),
    }
}

#[test]
fn handles_are_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    fn sent<T: Send>() {}
    fn cloned<T: Clone>() {}
    shared::<Db>();
    shared::<Keyspace>();
    shared::<Snapshot>();
    shared::<Error>();
    sent::<Batch>();
    sent::<umbel::Iter>();
    sent::<umbel::DbCursor>();
    cloned::<Db>();
    cloned::<Keyspace>();
    cloned::<Snapshot>();
}

#[test]
fn longest_key_is_stored_and_longer_is_rejected() {
    let (sim, db) = new_store();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    let (longest, over) = (vec![7; KEY_BYTES_MAX], vec![7; KEY_BYTES_MAX + 1]);
    keyspace.put(&longest, b"long").unwrap();
    keyspace.put(b"", b"empty").unwrap();
    let sentence = "the key has 65537 bytes, but may have 65536 at most";
    assert_eq!(refusal(keyspace.put(&over, b"")), sentence);
    assert_eq!(refusal(keyspace.delete(&over)), sentence);
    assert_eq!(refusal(keyspace.delete_range(&longest, &over)), sentence);
    assert_eq!(refusal(keyspace.delete_range(b"", &over)), sentence);
    let mut batch = db.batch();
    batch.put(&keyspace, b"other", b"value");
    batch.put(&keyspace, &over, b"value");
    assert_eq!(refusal(batch.commit(Durability::Synced)), sentence);
    let mut batch = db.batch();
    batch.expect_absent(&keyspace, &over);
    batch.put(&keyspace, b"other", b"value");
    assert_eq!(refusal(batch.commit(Durability::Buffered)), sentence);
    // A lookup of an impossible key is not an error.
    assert_eq!(keyspace.get(&over).unwrap(), None);
    assert!(!keyspace.contains(&over).unwrap());
    let expected = [(vec![], b"empty".to_vec()), (longest.clone(), b"long".to_vec())];
    assert_eq!(all(&keyspace), expected);
    keyspace.compact(None, None).unwrap();
    assert_eq!(keyspace.get(&over).unwrap(), None);
    assert_eq!(keyspace.get(&longest).unwrap().unwrap(), b"long");
    let mut cursor = keyspace.cursor::<&[u8]>(..).unwrap();
    cursor.seek_for_prev(&over).unwrap();
    assert!(cursor.valid() && cursor.key() == longest);
    cursor.seek(&over).unwrap();
    assert!(!cursor.valid());
    drop((cursor, keyspace, db));
    assert_eq!(all(&existing(&again(&sim), "a")), expected);
}

#[test]
fn value_over_the_limit_is_rejected() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    let over = vec![0; VALUE_BYTES_MAX + 1];
    let sentence = "the value has 268435457 bytes, but may have 268435456 at most";
    assert_eq!(refusal(keyspace.put(b"k", &over)), sentence);
    let mut batch = db.batch();
    batch.put(&keyspace, b"other", b"value");
    batch.put(&keyspace, b"k", &over);
    assert!(batch.bytes() < 100, "what is refused is not copied");
    assert_eq!(refusal(batch.commit(Durability::Buffered)), sentence);
    assert_eq!(all(&keyspace), []);
}

/// The batch holds two bytes for each operation, so that the test stays small.
#[test]
fn batch_of_too_many_operations_is_rejected() {
    let (_sim, db) = new_store();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    let mut batch = db.batch();
    for _ in 0..=BATCH_OPERATIONS_MAX {
        batch.delete(&keyspace, b"");
    }
    assert_eq!(batch.len(), BATCH_OPERATIONS_MAX + 1);
    let refused = refusal(batch.commit(Durability::Buffered));
    assert!(refused.contains("16777217 operations, but may have 16777216 at most"), "{refused}");
    assert_eq!(db.stats().last_sequence, 0);
}

#[test]
fn keyspace_number_and_name_are_limited() {
    let (sim, db) = new_store();
    for number in 0..KEYSPACES_MAX {
        db.keyspace(&format!("{number}"), KeyspaceOptions::default()).unwrap();
    }
    let refused = refusal(db.keyspace("one more", KeyspaceOptions::default()));
    assert!(refused.contains("has 1024 keyspaces, which is the limit"), "{refused}");
    db.keyspace("7", KeyspaceOptions::default()).unwrap();
    db.drop_keyspace("7").unwrap();
    let longest = "ä".repeat(KEYSPACE_NAME_BYTES_MAX / 2) + "x";
    db.keyspace(&longest, KeyspaceOptions::default()).unwrap().put(b"k", b"v").unwrap();
    for name in [String::new(), longest.clone() + "x"] {
        let refused = refusal(db.keyspace(&name, KeyspaceOptions::default()));
        assert!(refused.contains("must have 1 to 255"), "{refused}");
    }
    let names = db.keyspaces();
    drop(db);
    let db = again(&sim);
    assert_eq!(db.keyspaces(), names);
    assert_eq!(existing(&db, &longest).get(b"k").unwrap().unwrap(), b"v");
}

#[test]
fn out_of_range_options_are_named_in_errors() {
    let (sim, db) = new_store();
    let plain = KeyspaceOptions::default;
    let cases = [
        ("bloom_bits", KeyspaceOptions { bloom_bits: -2, ..plain() }),
        ("bloom_bits", KeyspaceOptions { bloom_bits: 1001, ..plain() }),
        ("memtable_bytes", KeyspaceOptions { memtable_bytes: 0, ..plain() }),
        ("table_bytes", KeyspaceOptions { table_bytes: u64::MAX, ..plain() }),
        ("block_bytes", KeyspaceOptions { block_bytes: 63, ..plain() }),
        ("level_bytes_base", KeyspaceOptions { level_bytes_base: 1, ..plain() }),
        ("level_ratio", KeyspaceOptions { level_ratio: 1, ..plain() }),
        ("level0_tables", KeyspaceOptions { level0_tables: 0, ..plain() }),
    ];
    for (name, options) in cases {
        let refused = refusal(db.keyspace("a", options));
        assert!(refused.contains(name) && refused.contains("must be"), "{refused}");
    }
    assert_eq!(db.keyspaces(), Vec::<String>::new());
    drop(db);
    let plain = || inline(&sim.env());
    let cases = [
        ("log_segment_bytes", Options { log_segment_bytes: 0, ..plain() }),
        ("background_threads", Options { background_threads: 65, ..plain() }),
        ("write_buffer_total_bytes", Options { write_buffer_total_bytes: Some(0), ..plain() }),
    ];
    for (name, options) in cases {
        let refused = refusal(Db::open(PATH, options));
        assert!(refused.contains(name) && refused.contains("must be"), "{refused}");
    }
}

/// Values far larger than blocks, memtables, WAL segments and the block cache are read back
/// unchanged.
#[test]
fn large_values_survive_wal_flush_and_compaction() {
    let (sim, db) = new_store();
    let options = KeyspaceOptions { memtable_bytes: 1 << 20, ..crate::suite::fixture::tiny() };
    let keyspace = db.keyspace("a", options).unwrap();
    let mut random = umbel_sim::Random::new(1);
    let values: Vec<Vec<u8>> = [10 << 20, 3 << 20, 70_000].map(|len| random.bytes(len)).into();
    for round in 0..2 {
        for (number, value) in values.iter().enumerate() {
            keyspace.put([number as u8], value).unwrap();
        }
        keyspace.put([9], [round]).unwrap();
    }
    let check = |keyspace: &Keyspace| {
        for (number, value) in values.iter().enumerate() {
            assert!(keyspace.get([number as u8]).unwrap().as_ref() == Some(value));
        }
        assert_eq!(all(keyspace).len(), 4);
    };
    check(&keyspace);
    let killed = again(&sim.kill_image());
    check(&existing(&killed, "a"));
    keyspace.compact(None, None).unwrap();
    check(&keyspace);
    assert!(db.verify().unwrap().damage.is_empty());
}

/// Story: 4,000 nested range deletes in one batch took seconds and 1.4 GB, and 20,000 ended the
/// process: each piece between two bounds listed all ranges over it.
#[test]
fn many_nested_range_deletes_fit_into_one_batch() {
    const RANGES: u32 = 20_000;
    let (sim, db) = new_store();
    let keyspace = db.keyspace("nested", KeyspaceOptions::default()).unwrap();
    let key = |number: u32| number.to_be_bytes();
    for number in [RANGES - 1, 3 * RANGES, 7 * RANGES] {
        keyspace.put(key(number), b"old").unwrap();
    }
    let before = db.snapshot();
    let mut batch = db.batch();
    for number in 0..RANGES {
        batch.delete_range(&keyspace, key(number), key(6 * RANGES - number));
    }
    batch.put(&keyspace, key(2 * RANGES), b"new");
    batch.commit(None).unwrap();
    let left = [(2 * RANGES, b"new"), (7 * RANGES, b"old")]
        .map(|(number, value)| (key(number).to_vec(), value.to_vec()));
    let check = |keyspace: &Keyspace| {
        assert_eq!(all(keyspace), left);
        assert_eq!(keyspace.get(key(3 * RANGES)).unwrap(), None);
        assert_eq!(keyspace.first().unwrap().as_ref(), Some(&left[0]));
        assert_eq!(keyspace.last().unwrap().as_ref(), Some(&left[1]));
    };
    check(&keyspace);
    assert_eq!(keyspace.get_at(&before, key(3 * RANGES)).unwrap().as_deref(), Some(&b"old"[..]));
    assert_eq!(keyspace.iter_at(&before).unwrap().count(), 3);
    keyspace.flush().unwrap();
    check(&keyspace);
    assert_eq!(keyspace.iter_at(&before).unwrap().count(), 3);
    drop(before);
    keyspace.compact(None, None).unwrap();
    check(&keyspace);
    let mut again_batch = db.batch();
    for number in 0..RANGES {
        again_batch.delete_range(&keyspace, key(number), key(6 * RANGES - number));
    }
    again_batch.put(&keyspace, key(2 * RANGES), b"new");
    again_batch.commit(Durability::Synced).unwrap();
    drop((keyspace, db));
    let db = again(&sim);
    check(&existing(&db, "nested"));
}
