//! Tables: any file that opens can be verified, read in both directions and searched without a
//! panic. The two directions agree if both reach their end.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use umbel_base::{Cursor, Result};
use umbel_env::File;
use umbel_fuzz::memory_env::MemoryFile;
use umbel_fuzz::structured_input::Parts;
use umbel_fuzz::table_file::{FILE_ID, assemble};
use umbel_table::{FilterResidency, Table, TableHasher, UnboundedCache};

/// Flag in the first byte of an input: the remaining bytes are used unchanged.
const RAW: u64 = 1;
/// Maximum number of steps of a cursor, so that an input of a few bytes cannot take long.
const STEPS_MAX: usize = 4096;

fn walk(table: &Arc<Table>) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let mut cursor = table.cursor(false);
    cursor.seek_to_first()?;
    while cursor.valid() && keys.len() < STEPS_MAX {
        std::hint::black_box((cursor.sequence(), cursor.kind(), cursor.value().len()));
        keys.push(cursor.key().to_vec());
        cursor.next()?;
    }
    Ok(keys)
}

fn walk_back(table: &Arc<Table>) -> Result<usize> {
    let mut steps = 0;
    let mut cursor = table.cursor(true);
    cursor.seek_to_last()?;
    while cursor.valid() && steps < STEPS_MAX {
        steps += 1;
        cursor.prev()?;
    }
    Ok(steps)
}

fn read(table: &Arc<Table>, hasher: &TableHasher) {
    let keys = walk(table).unwrap_or_default();
    let back = walk_back(table);
    let verified = table.verify().is_ok();
    if verified && let Ok(steps) = back {
        assert_eq!(keys.len(), steps, "the directions disagree");
    }
    let absent = [&b""[..], b"absent", b"\xff\xff"];
    let keeps = [FilterResidency::Plain { factor: 1 }, FilterResidency::Plain { factor: 2 }];
    let keeps = keeps.into_iter().chain([FilterResidency::Second, FilterResidency::Nothing]);
    let filters: Vec<_> = keeps.filter_map(|keep| table.read_filter(keep).ok().flatten()).collect();
    for key in keys.iter().map(Vec::as_slice).chain(absent) {
        let hash = hasher.keys.hash(key);
        for filter in &filters {
            let maybe = filter.may_contain(hash);
            assert!(maybe || !verified || absent.contains(&key), "a verified filter denies a key");
        }
        let found = table.get_with(key, hash, u64::MAX >> 8, |_, _, value| value.len());
        std::hint::black_box(found.is_ok());
        let mut cursor = table.cursor(true);
        std::hint::black_box(cursor.seek(key, u64::MAX >> 8).is_ok());
        std::hint::black_box(cursor.seek_before(key).is_ok());
    }
    std::hint::black_box(table.tombstones().covering(b"a", u64::MAX >> 8));
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let bytes = match parts.number::<1>() & RAW {
        RAW => parts.rest().to_vec(),
        _ => assemble(parts),
    };
    let file: Arc<dyn File> = MemoryFile::alone("000007.table", bytes);
    let Ok(table) = Table::open_standalone(Arc::clone(&file), FILE_ID) else { return };
    let meta = table.meta().clone();
    let hasher = TableHasher::keyed([7; 16], 1);
    read(&Arc::new(table), &hasher);
    let opened = Table::open(Arc::clone(&file), &meta, Some(&hasher), Arc::new(UnboundedCache));
    if let Ok(table) = opened {
        read(&Arc::new(table), &hasher);
    }
    let meta = Arc::new(meta);
    let paged = Table::open_as(file, &meta, Some(&hasher), Arc::new(UnboundedCache), true);
    if let Ok(table) = paged {
        read(&Arc::new(table), &hasher);
    }
});
