//! Point reads of one kind and nothing else, to be counted instruction by instruction:
//!
//! ```text
//! one_get fill FOLDER 1000000
//! valgrind --tool=callgrind --toggle-collect='*one_get*measured*' one_get hit FOLDER 1000000 20000
//! ```
//!
//! `hit`, `missing`, `hot` and `seek` (with ten entries) first scan the whole store, so that every
//! block is in the cache, and then read as many keys as said inside `measured`. `empty` makes the
//! keys and reads nothing: what it takes is to be subtracted.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use umbel::{Db, Keyspace, KeyspaceOptions, Options};
use umbel_rivals::engine::{Result, Tally};
use umbel_rivals::keys::{Keys, Random, Shape};

const USAGE: &str =
    "one_get fill FOLDER KEYS | one_get hit|missing|hot|seek|empty FOLDER KEYS READS";
/// How many keys the hot reads go round.
const HOT_KEYS: u64 = 10_000;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse::<u64>().ok().filter(|number| *number > 0);
    let done = match words[..] {
        ["fill", folder, keys] => number(keys).map(|keys| fill(folder, keys)),
        [kind @ ("hit" | "missing" | "hot" | "seek" | "empty"), folder, keys, reads] => {
            number(keys).zip(number(reads)).map(|(keys, reads)| read(kind, folder, keys, reads))
        }
        _ => None,
    };
    match done {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn open(folder: &str) -> Result<(Db, Keyspace)> {
    // Without threads in the background nothing but the reads is counted.
    let options = Options { cache_bytes: 4 << 30, background_threads: 0, ..Options::default() };
    let db = Db::open(folder, options)?;
    let keyspace = db.keyspace("default", KeyspaceOptions::default())?;
    Ok((db, keyspace))
}

fn fill(folder: &str, keys: u64) -> Result<()> {
    let keys = Keys::new(Shape::Random, keys, 16, 100)?;
    let (db, keyspace) = open(folder)?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for name in keys.shuffled() {
        keys.key(name, &mut key);
        keys.value(name, &mut value);
        keyspace.put(&key, &value)?;
    }
    keyspace.flush()?;
    db.wait_for_compaction()?;
    println!("{}", db.stats());
    Ok(db.close()?)
}

fn read(kind: &str, folder: &str, keys: u64, reads: u64) -> Result<()> {
    let keys = Keys::new(Shape::Random, keys, 16, 100)?;
    let (db, keyspace) = open(folder)?;
    let mut cursor = keyspace.cursor::<&[u8]>(..)?;
    cursor.seek_to_first()?;
    let mut entries = 0u64;
    while cursor.valid() {
        entries += 1;
        cursor.next()?;
    }
    drop(cursor);
    let mut random = Random::new(1);
    let hot = HOT_KEYS.min(keys.num());
    let names: Vec<u64> = (0..reads)
        .map(|_| match kind {
            "missing" => keys.absent(random.below(keys.num())),
            "hot" => keys.present(random.below(hot) * (keys.num() / hot)),
            _ => keys.present(random.below(keys.num())),
        })
        .collect();
    let tally = match kind {
        "empty" => measured(keys, &names, |_, _| Ok(())),
        "seek" => measured(keys, &names, |key, tally| {
            let mut cursor = keyspace.cursor::<&[u8]>(..)?;
            cursor.seek(key)?;
            for _ in 0..10 {
                if !cursor.valid() {
                    break;
                }
                tally.entry(cursor.key(), cursor.value());
                cursor.next()?;
            }
            Ok(())
        }),
        _ => measured(keys, &names, |key, tally| {
            keyspace.get_with(key, |value| tally.value(value))?;
            Ok(())
        }),
    }?;
    println!("{entries} entries scanned, {reads} {kind} reads, {} found", tally.found);
    Ok(db.close()?)
}

/// The reads. Never inlined, so that counting can begin and end with it.
#[inline(never)]
fn measured(
    keys: Keys,
    names: &[u64],
    mut get: impl FnMut(&[u8], &mut Tally) -> Result<()>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut key = Vec::new();
    for &name in names {
        keys.key(name, &mut key);
        get(std::hint::black_box(&key), &mut tally)?;
    }
    Ok(tally)
}
