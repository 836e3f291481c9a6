//! The filter campaign: many keys at every density through the engine. No key is missed, and the
//! rate of false positives is what the theory of the layout says.

use umbel::{Db, Keyspace, KeyspaceOptions, KeyspaceStats, Options};

use crate::report::Tally;
use crate::scratch::Scratch;

/// The densities, in bits per key.
pub const BITS: [i32; 9] = [-1, 0, 1, 5, 10, 30, 50, 100, 1000];
/// False positives below which a rate says nothing.
const FEWEST: f64 = 1000.0;

fn key(number: u64, absent: bool) -> [u8; 16] {
    let mut key = [0; 16];
    let spread = crate::random::join(number, 77);
    key[..8].copy_from_slice(&spread.to_be_bytes());
    key[8..].copy_from_slice(&(number * 2 + u64::from(absent)).to_be_bytes());
    key
}

/// So many keys at every density.
pub fn campaign(keys: u64) -> Tally {
    let tally = Tally::new("filters");
    tally.add("keys at each density", keys);
    for bits in BITS {
        let before = tally.violations();
        let replay = format!("filters {keys}");
        if let Err(text) = one(bits, keys, &tally) {
            tally.violation(format!("{bits} bits: {text}"), replay);
        }
        tally.scenario(tally.violations() == before);
    }
    tally
}

fn one(bits: i32, keys: u64, tally: &Tally) -> Result<(), String> {
    let said = |error: umbel::Error| error.to_string();
    let scratch = Scratch::new(&format!("filter-{bits}"))?;
    let db = Db::open(scratch.path().join("store"), Options::default()).map_err(said)?;
    // Without a log: it is not what is looked at. The sizes make several levels of any count.
    let part = (keys * 24 / 24).clamp(64 << 10, 64 << 20);
    let options = KeyspaceOptions {
        bloom_bits: bits,
        log: false,
        memtable_bytes: part,
        table_bytes: part,
        level_bytes_base: part * 2,
        ..KeyspaceOptions::default()
    };
    let keyspace = db.keyspace("filtered", options).map_err(said)?;
    for number in 0..keys {
        keyspace.put(key(number, false), number.to_le_bytes()).map_err(said)?;
    }
    db.flush().map_err(said)?;
    db.wait_for_compaction().map_err(said)?;
    look(&keyspace, keys, bits, "as loaded", tally)?;
    keyspace.compact(None, None).map_err(said)?;
    look(&keyspace, keys, bits, "compacted", tally)?;
    db.close().map_err(said)
}

/// Two threads look for every key.
fn find_all(keyspace: &Keyspace, keys: u64) -> Result<(), String> {
    let half = |from: u64, to: u64| {
        for number in from..to {
            let wanted = key(number, false);
            if !keyspace.may_contain(wanted) {
                return Err(format!("a filter denies key {number}"));
            }
            let seen = keyspace.get_with(wanted, |value| value == number.to_le_bytes());
            if seen.map_err(|error| error.to_string())? != Some(true) {
                return Err(format!("key {number} is not found"));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| half(0, keys / 2));
        let second = half(keys / 2, keys);
        let first = first.join().unwrap_or_else(|_| Err("a thread panicked".to_string()));
        first.and(second)
    })
}

fn look(
    keyspace: &Keyspace,
    keys: u64,
    bits: i32,
    when: &str,
    tally: &Tally,
) -> Result<(), String> {
    find_all(keyspace, keys).map_err(|text| format!("{when}: {text}"))?;
    tally.add("keys found", keys);
    let before = keyspace.stats();
    for number in 0..keys {
        if keyspace.contains(key(number, true)).map_err(|error| error.to_string())? {
            return Err(format!("{when}: absent key {number} is found"));
        }
    }
    judge(&before, &keyspace.stats(), bits, when, tally)
}

fn judge(
    before: &KeyspaceStats,
    after: &KeyspaceStats,
    bits: i32,
    when: &str,
    tally: &Tally,
) -> Result<(), String> {
    for (old, new) in before.levels.iter().zip(&after.levels) {
        let probes = new.filter_probes - old.filter_probes;
        let false_positives = new.filter_false_positives - old.filter_false_positives;
        if probes == 0 {
            continue;
        }
        let expected = probes as f64 * new.designed_rate;
        tally.note(format!(
            "{bits} bits, {when}, level {}: {} tables, {} MiB of filter, {probes} asked, \
             {false_positives} false positives, {expected:.0} by theory",
            new.level,
            new.tables,
            new.filter_bytes >> 20
        ));
        let off = (false_positives as f64 / expected - 1.0).abs();
        if expected >= FEWEST && off > 0.1 {
            return Err(format!(
                "{when}, level {}: {false_positives} false positives, {expected:.0} by theory",
                new.level
            ));
        }
    }
    Ok(())
}
