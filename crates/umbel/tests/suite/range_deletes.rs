//! Tests of gets beside range deletes in several sources.

use umbel::{Db, KeyspaceOptions};
use umbel_sim::Sim;

use crate::suite::fixture::{PATH, inline, key};

/// Story: a get leaves out the range tombstones of a table whose block has no tag of the key. It
/// must search them once a deeper table has the key.
#[test]
fn tombstones_of_a_table_without_the_key_hide_the_key_of_an_older_table() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    // Without filters, every table within whose bounds the key is gets searched.
    let options = KeyspaceOptions { bloom_bits: 0, level0_tables: 100, ..Default::default() };
    let keyspace = db.keyspace("keys", options).unwrap();
    (0..100).for_each(|index| keyspace.put(key(index), b"old").unwrap());
    keyspace.flush().unwrap();
    keyspace.delete_range(key(40), key(60)).unwrap();
    (0..100).filter(|index| index % 2 == 0).for_each(|index| {
        keyspace.put(key(index), b"new").unwrap();
    });
    keyspace.flush().unwrap();
    // These tombstones are in the memtable, whose filter has none of the keys.
    keyspace.delete_range(key(90), key(92)).unwrap();
    let expected = |index: usize| match index {
        90..92 => None,
        _ if index % 2 == 0 => Some(b"new".to_vec()),
        40..60 => None,
        _ => Some(b"old".to_vec()),
    };
    // Blocks are in memory only at the second get of a key.
    for _ in 0..3 {
        for index in 0..100 {
            assert_eq!(keyspace.get(key(index)).unwrap(), expected(index), "{index}");
        }
        let keys: Vec<_> = (0..100).map(key).collect();
        let found = keyspace.multi_get(&keys).unwrap();
        assert!((0..100).all(|index| found[index] == expected(index)));
    }
    drop(keyspace);
    db.close().unwrap();
}
