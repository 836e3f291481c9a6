//! Regressions in blocks that readers use without reference counts.

use umbel::{Db, KeyspaceOptions, Options};
use umbel_env::Env;

use crate::suite::fixture::{PATH, inline, key};

/// Story: a search after the last key of a block with many groups read the number of groups as the
/// offset of another group. That offset was inside the user's own keys and values, and the search
/// found forged entries there.
#[test]
fn search_after_last_group_of_block_finds_nothing() {
    for base in 3735u32..3790 {
        let sim = umbel_sim::Sim::new(1);
        let db = Db::open(PATH, inline(&sim.env())).unwrap();
        let options =
            KeyspaceOptions { bloom_bits: 0, block_bytes: 1 << 16, ..KeyspaceOptions::default() };
        let keyspace = db.keyspace("a", options).unwrap();
        let shared = [&base.to_le_bytes()[..], &(1u32 << 17).to_le_bytes(), &[0, 0]].concat();
        let numbered = |number: u16| [&shared[..], &number.to_be_bytes()].concat();
        let absent = [&shared[..], &[1, 0xff, 1]].concat();
        let forged = [&[absent.len() as u8, 5, 17][..], &absent, b"WRONG"].concat();
        keyspace.put(numbered(0), forged).unwrap();
        for number in 1..512 {
            keyspace.put(numbered(number), b"v").unwrap();
        }
        keyspace.put(numbered(0x500), vec![7; 70_000]).unwrap();
        keyspace.flush().unwrap();
        assert_eq!(keyspace.get(&absent).unwrap(), None, "base {base}");
        assert_eq!(keyspace.multi_get(&[&absent]).unwrap(), [None], "base {base}");
        assert_eq!(keyspace.get(numbered(511)).unwrap().as_deref(), Some(&b"v"[..]));
    }
}

/// Story: blocks that were evicted while a closure of `get_with` ran stayed in memory until the
/// closure ended. So a slow closure let the cache grow with every block read meanwhile.
#[test]
fn slow_reader_does_not_grow_the_cache() {
    const CACHE_BYTES: u64 = 256 << 10;
    let sim = umbel_sim::Sim::new(1);
    let options = Options { cache_bytes: Some(CACHE_BYTES), ..inline(&sim.env()) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    for index in 0..20_000 {
        keyspace.put(key(index), [7; 200]).unwrap();
    }
    keyspace.flush().unwrap();
    assert_eq!(keyspace.get(key(0)).unwrap().map(|value| value.len()), Some(200));
    let max_bytes = keyspace.get_with(key(0), |_| {
        let mut max_bytes = 0;
        for index in (0..20_000).step_by(10) {
            assert!(keyspace.contains(key(index)).unwrap());
            max_bytes = max_bytes.max(db.stats().cache_bytes);
        }
        max_bytes
    });
    let max_bytes = max_bytes.unwrap().unwrap();
    assert!(max_bytes <= CACHE_BYTES * 3 / 2, "{max_bytes} bytes while a reader was slow");
}

/// Story: a second process that found the file `LOCK` deleted made a new one, and both processes
/// wrote.
#[test]
fn deleted_lock_file_admits_no_process() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().join("store");
    let db = Db::open(&folder, Options::default()).unwrap();
    Env::system().files.remove_file(&folder.join("LOCK")).unwrap();
    assert!(Db::open(&folder, Options::default()).is_err());
    db.close().unwrap();
    Db::open(&folder, Options::default()).unwrap().close().unwrap();
}
