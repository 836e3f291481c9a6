//! Stories of bugs in blocks that readers look at without counting them.

use umbel::{Db, KeyspaceOptions, Options};
use umbel_env::Env;

use crate::suite::stage::{PATH, inline, key};

/// A search for a key behind the last one of a block with many groups read the number of groups as
/// the place of one more group, inside the user's own keys and values, and found there what the
/// user had forged.
#[test]
fn nothing_is_found_behind_the_last_group_of_a_block() {
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

/// Blocks that were evicted while a closure of `get_with` ran were kept until it ended, so that a
/// slow one let the cache grow with all that was read meanwhile.
#[test]
fn a_slow_reader_does_not_let_the_cache_grow() {
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
    let most = keyspace.get_with(key(0), |_| {
        let mut most = 0;
        for index in (0..20_000).step_by(10) {
            assert!(keyspace.contains(key(index)).unwrap());
            most = most.max(db.stats().cache_bytes);
        }
        most
    });
    let most = most.unwrap().unwrap();
    assert!(most <= CACHE_BYTES * 3 / 2, "{most} bytes while a reader was slow");
}

/// A second process that found the file `LOCK` deleted made a new one, and both wrote.
#[test]
fn a_deleted_lock_file_lets_nobody_in() {
    let kept = tempfile::tempdir().unwrap();
    let folder = kept.path().join("store");
    let db = Db::open(&folder, Options::default()).unwrap();
    Env::system().files.remove_file(&folder.join("LOCK")).unwrap();
    assert!(Db::open(&folder, Options::default()).is_err());
    db.close().unwrap();
    Db::open(&folder, Options::default()).unwrap().close().unwrap();
}
