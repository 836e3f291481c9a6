//! Tests of a table and its block cache: which blocks enter, how much memory eviction frees, and
//! that readers are not affected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use umbel_base::Cursor;
use umbel_table::{BlockCache, BlockSlots, Compression, FilterResidency, SequentialReader, Table};

use crate::fixture::{Model, get, hasher, open_paged, options};

/// Records the admitted blocks.
#[derive(Debug, Default)]
struct Recorder {
    admitted: Mutex<Vec<(u32, usize)>>,
    /// Whether another thread evicts blocks, so that a block can be evicted before `admit` is
    /// called.
    others_evict: AtomicBool,
}

impl BlockCache for Recorder {
    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize) {
        let is_there = slots.get(block as usize).is_some();
        assert!(
            is_there || self.others_evict.load(Ordering::Relaxed),
            "reported before it is cached"
        );
        self.admitted.lock().unwrap().push((block, bytes));
    }
}

fn table() -> (Model, Arc<Recorder>, Arc<Table>) {
    let mut model = Model::default();
    for number in 0..2000u64 {
        model.put(format!("key-{number:05}").as_bytes(), number, &[number as u8; 60]);
    }
    let (file, meta) = model.build(options(1024, Compression::Lz4));
    let cache = Arc::new(Recorder::default());
    let admits: Arc<dyn BlockCache> = Arc::<Recorder>::clone(&cache);
    let table = Table::open(Arc::new(file), &meta, Some(&hasher()), admits).unwrap();
    (model, cache, Arc::new(table))
}

#[test]
fn blocks_are_cached_once_and_evicted_whole() {
    let (model, cache, table) = table();
    let slots = table.slots();
    let pinned = table.pinned_bytes();
    assert_eq!((slots.resident_bytes(), slots.misses()), (0, 0));
    for _ in 0..2 {
        for (key, (sequence, ..)) in model.list().iter().step_by(3) {
            assert_eq!(get(&table, key, *sequence).unwrap(), model.get(key, *sequence));
        }
    }
    let admitted = cache.admitted.lock().unwrap().clone();
    let blocks: Vec<u32> = admitted.iter().map(|(block, _)| *block).collect();
    let all: Vec<u32> = (0..table.meta().blocks).collect();
    assert_eq!(blocks, all, "each block once, in the order of the reads");
    assert_eq!(slots.misses(), all.len() as u64);
    let bytes: usize = admitted.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(slots.resident_bytes(), bytes as u64);
    let last = table.meta().blocks - 1;
    for (block, bytes) in admitted {
        assert!(bytes > 1000 || block == last, "a block counts at least what it holds");
        assert!(slots.take_touched(block) && !slots.take_touched(block));
        assert_eq!(slots.evict(block), bytes);
        assert_eq!(slots.evict(block), 0);
    }
    assert_eq!(slots.resident_bytes(), 0);
    assert_eq!(table.pinned_bytes(), pinned);
    assert_eq!(slots.evict(table.meta().blocks), 0, "a block that does not exist");
    assert_eq!(get(&table, b"key-00000", 9).unwrap(), model.get(b"key-00000", 9));
}

#[test]
fn a_cursor_that_does_not_fill_the_cache_uses_it() {
    let (model, cache, table) = table();
    get(&table, b"key-01000", u64::MAX).unwrap().unwrap();
    let mut cursor = table.cursor(false);
    cursor.seek_to_first().unwrap();
    let mut entries = 0;
    while cursor.valid() {
        entries += 1;
        cursor.next().unwrap();
    }
    assert_eq!(entries, model.entries.len());
    assert_eq!(cache.admitted.lock().unwrap().len(), 1);
    let mut cursor = table.cursor(true);
    cursor.seek_to_last().unwrap();
    assert_eq!(cache.admitted.lock().unwrap().len(), 2);
}

#[test]
fn a_cursor_outlives_eviction_of_its_block() {
    let (_, _, table) = table();
    let mut cursor = table.cursor(true);
    cursor.seek(b"key-00500", u64::MAX).unwrap();
    for block in 0..table.meta().blocks {
        table.slots().evict(block);
    }
    assert_eq!((cursor.key(), cursor.value()), (&b"key-00500"[..], &[244u8; 60][..]));
    cursor.next().unwrap();
    assert_eq!(cursor.key(), b"key-00501");
}

#[test]
fn concurrent_eviction_does_not_affect_readers() {
    let (model, cache, table) = table();
    cache.others_evict.store(true, Ordering::Relaxed);
    let list = model.list();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for block in 0..table.meta().blocks {
                    table.slots().evict(block);
                }
            }
        });
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let (table, list, model) = (&table, &list, &model);
                scope.spawn(move || {
                    for (key, (sequence, ..)) in list.iter().skip(reader).step_by(2) {
                        let found = get(table, key, *sequence).unwrap();
                        assert_eq!(found, model.get(key, *sequence));
                    }
                })
            })
            .collect();
        let sound = readers.into_iter().all(|reader| reader.join().is_ok());
        done.store(true, Ordering::Relaxed);
        assert!(sound, "a reader saw something else");
    });
    for block in 0..table.meta().blocks {
        table.slots().evict(block);
    }
    assert_eq!(table.slots().resident_bytes(), 0, "what was put in was taken out");
}

#[test]
fn separators_split_a_table() {
    let (_, _, table) = table();
    let splits: Vec<(Vec<u8>, u64)> =
        table.block_separators().map(|(key, before)| (key.to_vec(), before)).collect();
    assert_eq!(splits.len(), table.meta().blocks.div_ceil(64) as usize);
    assert!(splits.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
    let end = splits.last().unwrap();
    assert_eq!(end.0, table.meta().largest);
    assert!(end.1 < table.meta().file_bytes && end.1 > table.meta().file_bytes / 2);
}

#[test]
fn staged_lookup_equals_one_call() {
    let (model, _, table) = table();
    let keys = hasher().keys;
    let filter = table.read_filter(FilterResidency::default()).unwrap().unwrap();
    for (key, (sequence, ..)) in model.list().iter().step_by(7) {
        let hash = keys.hash(key);
        filter.prefetch(hash);
        assert!(filter.may_contain(hash));
        let number = table.locate(key, *sequence).unwrap();
        for _ in 0..2 {
            table.prefetch_slot(number);
            table.prefetch_block(number);
            assert!(table.prefetch_entry(number, key, hash));
            let found = table
                .get_in_block(number, key, hash, *sequence, |at, kind, value| {
                    (at, kind, value.to_vec())
                })
                .unwrap();
            assert_eq!(found, model.get(key, *sequence));
        }
    }
    // Hints may be wrong: a block that does not exist, a hash of another key.
    let beyond = table.meta().blocks as usize;
    table.prefetch_slot(beyond);
    table.prefetch_block(beyond);
    assert!(table.prefetch_entry(beyond, b"key", 1));
    // Some other key has none of the tags of the first block.
    let absent =
        (0..100u64).map(|tag| tag << 24).find(|&hash| !table.prefetch_entry(0, b"key", hash));
    let found = table.get_in_block(0, b"key", absent.unwrap(), u64::MAX, |_, _, _| ()).unwrap();
    assert_eq!(found, None);
    assert!(!table.has_tombstones());
    assert_eq!(table.covering(b"key-00001", u64::MAX), 0);
}

#[test]
fn uncached_scans_do_not_cache_index_parts() {
    let mut model = Model::default();
    for number in 0..4000u64 {
        model.put(format!("key-{number:05}").as_bytes(), number, &[number as u8; 60]);
    }
    let (file, meta) = model.build(options(256, Compression::None));
    let cache = Arc::new(Recorder::default());
    cache.others_evict.store(true, Ordering::Relaxed);
    let admits: Arc<dyn BlockCache> = Arc::<Recorder>::clone(&cache);
    let table = open_paged(&file, &meta, admits).unwrap();
    assert!(table.is_paged() && meta.blocks > 3 * 64);
    let mut cursor = table.cursor(false);
    cursor.seek_to_first().unwrap();
    let mut run = SequentialReader::default();
    run.seek_to_first(&table).unwrap();
    for (key, _) in model.list() {
        assert!(cursor.valid() && run.valid());
        assert_eq!((cursor.key(), run.key()), (&key[..], &key[..]));
        cursor.next().unwrap();
        run.next(&table).unwrap();
    }
    assert!(!cursor.valid() && !run.valid());
    assert!(cache.admitted.lock().unwrap().is_empty());
    assert_eq!(table.slots().resident_bytes(), 0);
    // A read that fills the cache does.
    get(&table, b"key-01000", u64::MAX).unwrap().unwrap();
    assert_eq!(cache.admitted.lock().unwrap().len(), 2);
}
