//! The filter campaign: keys at every density of filter bits, through the engine. The filters must
//! exclude no present key, and pass missing keys at the designed rate.

use std::ops::Range;
use std::path::Path;

use umbel::{Db, Keyspace, KeyspaceOptions, LevelStats, Options};

use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;
use crate::support::report_files;
use crate::support::scratch_directory::ScratchDirectory;

/// The densities of the full campaign.
const BITS: [i32; 9] = [-1, 0, 1, 5, 10, 30, 50, 100, 1000];
/// The densities of the small campaign; other densities would only take time.
const BITS_SMALL: [i32; 4] = [-1, 1, 10, 30];
/// Keys of the full campaign at each density.
pub const KEYS: u64 = 10_000_000;
/// Keys of the small campaign.
pub const KEYS_SMALL: u64 = 100_000;
const THREADS: u64 = 2;
const BATCH: u64 = 500;
/// First number of the missing keys.
const MISSING_FROM: u64 = 1 << 40;
/// Minimum number of expected false positives for a comparison of rates.
const EXPECTED_MIN: f64 = 1000.0;
/// Largest relative deviation of the measured rate from the designed one.
const RATE_TOLERANCE: f64 = 0.1;
/// Minimum probability of a small count of false positives, of that many or more, and of that many
/// or fewer.
const CHANCE_MIN: f64 = 1e-9;
const MEBIBYTE: f64 = 1_048_576.0;

/// Runs every density; the table of results is in the notes.
pub fn campaign(place: &Path, seed: u64, keys: u64) -> CampaignTally {
    let tally = CampaignTally::new("filters");
    let bits = if keys < KEYS { &BITS_SMALL[..] } else { &BITS[..] };
    tally.note(
        "| bits | when | level | tables | keys | probes | designed | measured | filter MiB | \
         false positives | expected |"
            .to_string(),
    );
    tally.note("|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|".to_string());
    for &bits in bits {
        let before = tally.violations();
        tally.print_progress(&format!("{bits} bits per key"));
        let filters = keys * bits.max(0) as u64 / 8;
        if let Some(free) = report_files::free_memory().filter(|free| *free < filters * 3) {
            let (needed, free) = ((filters * 3) >> 20, free >> 20);
            tally.skip(format!("filters, {bits} bits: needs {needed} MiB, {free} are free"));
            continue;
        }
        let density = DensityRun { bits, keys, seed: derive_seed(seed, bits as u64) };
        let replay = format!("filters {seed} {keys}");
        let complain = |what: String| {
            tally.violation(format!("{bits} bits: {what}"), replay.clone());
        };
        if let Err(text) = density.run(place, &tally, &complain) {
            complain(text);
        }
        tally.scenario(tally.violations() == before);
    }
    tally
}

/// Returns the probability of `count` or more events (with `more`), or of `count` or fewer, if
/// `expected` are expected.
fn chance(count: u64, expected: f64, more: bool) -> f64 {
    // Poisson, term by term in logarithms; `expected` is below a thousand, whose exponential is
    // still a number.
    let mut logarithm = -expected;
    let mut below = 0.0;
    for number in 0..count {
        below += logarithm.exp();
        logarithm += expected.ln() - ((number + 1) as f64).ln();
    }
    match more {
        // The difference would be rounding if this is tiny; the first terms are enough.
        true => (0..200)
            .scan(logarithm, |logarithm, step| {
                let term = logarithm.exp();
                *logarithm += expected.ln() - ((count + step + 1) as f64).ln();
                Some(term)
            })
            .sum(),
        false => below + logarithm.exp(),
    }
}

/// Whether a number of false positives is plausible if `expected` are expected.
fn fits(passed: u64, expected: f64) -> bool {
    if expected >= EXPECTED_MIN {
        return (passed as f64 - expected).abs() <= expected * RATE_TOLERANCE;
    }
    // Too rare for a rate, but a nearly impossible count is no chance.
    expected == 0.0 && passed == 0
        || chance(passed, expected, true) >= CHANCE_MIN
            && chance(passed, expected, false) >= CHANCE_MIN
}

/// Run at one density.
#[derive(Debug, Clone, Copy)]
struct DensityRun {
    bits: i32,
    keys: u64,
    seed: u64,
}

/// Lookups with wrong results.
#[derive(Debug, Default, Clone, Copy)]
struct WrongLookups {
    /// Present keys that were not found, or with another value.
    lost: u64,
    /// Present keys that `may_contain` excluded.
    denied: u64,
    /// Absent keys that were found.
    invented: u64,
}

impl DensityRun {
    fn key(&self, number: u64) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&derive_seed(self.seed, number * 2).to_le_bytes());
        key[8..].copy_from_slice(&derive_seed(self.seed, number * 2 + 1).to_le_bytes());
        key
    }

    fn value(&self, number: u64) -> [u8; 8] {
        derive_seed(number, self.seed).to_le_bytes()
    }

    fn run(
        &self,
        place: &Path,
        tally: &CampaignTally,
        complain: &impl Fn(String),
    ) -> Result<(), String> {
        let scratch = ScratchDirectory::new(place, "filters")?;
        let describe = |error: umbel::Error| error.to_string();
        let db = Db::open(scratch.path().join("store"), Options::default()).map_err(describe)?;
        // Without a WAL, which is not tested. The sizes give several levels for any number of keys,
        // and a last level that is compacted into many tables.
        let part = (self.keys * 6).clamp(64 << 10, 64 << 20);
        let options = KeyspaceOptions {
            bloom_bits: self.bits,
            // All filters are tested, so none may be dropped.
            advisor: false,
            log: false,
            memtable_bytes: part,
            table_bytes: part,
            level_bytes_base: part * 2,
            ..KeyspaceOptions::default()
        };
        let keyspace = db.keyspace("filters", options).map_err(describe)?;
        in_threads(self.keys, |numbers| self.fill(&db, &keyspace, numbers)).map_err(describe)?;
        db.flush().map_err(describe)?;
        db.wait_for_compaction().map_err(describe)?;
        // Present keys are looked up twice. Missing ones are looked up in full when all tables are
        // in one level.
        self.lookup_all(&keyspace, "as loaded", self.keys.min(1_000_000), tally, complain)?;
        keyspace.compact(None, None).map_err(describe)?;
        db.wait_for_compaction().map_err(describe)?;
        self.lookup_all(&keyspace, "compacted", self.keys.max(1_000_000), tally, complain)?;
        let levels = keyspace.stats().levels;
        let entries: u64 = levels.iter().map(|level| level.entries).sum();
        if entries != self.keys || levels.iter().filter(|level| level.tables > 0).count() != 1 {
            complain(format!("{entries} entries in the compacted tables for {} keys", self.keys));
        }
        db.close().map_err(describe)
    }

    /// Looks up every key and the given number of absent keys.
    fn lookup_all(
        &self,
        keyspace: &Keyspace,
        when: &str,
        missing: u64,
        tally: &CampaignTally,
        complain: &impl Fn(String),
    ) -> Result<(), String> {
        let describe = |error: umbel::Error| error.to_string();
        let there =
            in_threads(self.keys, |n| self.lookup_present(keyspace, n)).map_err(describe)?;
        let lost: u64 = there.iter().map(|wrong| wrong.lost).sum();
        let denied: u64 = there.iter().map(|wrong| wrong.denied).sum();
        let before = keyspace.stats().levels;
        let gone = in_threads(missing, |n| self.lookup_missing(keyspace, n)).map_err(describe)?;
        let after = keyspace.stats().levels;
        let invented: u64 = gone.iter().map(|wrong| wrong.invented).sum();
        tally.add("keys found", self.keys - lost);
        tally.add("false negatives", lost + denied);
        tally.add("missing keys probed", missing);
        if lost + denied + invented > 0 {
            complain(format!("{when}: {lost} keys lost, {denied} denied, {invented} invented"));
        }
        for (before, after) in before.iter().zip(&after).filter(|(_, after)| after.tables > 0) {
            // One level has keys of all ranges, so that every missing key probes its tables.
            let answered_min = if when == "compacted" { missing / 100 * 99 } else { 0 };
            self.check_level_rate(before, after, when, answered_min, tally)
                .unwrap_or_else(|text| complain(format!("{when}, level {}: {text}", after.level)));
        }
        Ok(())
    }

    /// Checks the rate of one level by the growth of its counters during lookups of missing keys.
    fn check_level_rate(
        &self,
        before: &LevelStats,
        after: &LevelStats,
        when: &str,
        answered_min: u64,
        tally: &CampaignTally,
    ) -> Result<(), String> {
        let passed = after.filter_false_positives - before.filter_false_positives;
        let stopped = after.filter_true_negatives - before.filter_true_negatives;
        let probes = after.filter_probes - before.filter_probes;
        let answered = passed + stopped;
        let expected = after.designed_rate * answered as f64;
        let measured = match answered {
            0 => "-".to_string(),
            _ => format!("{:.3e}", passed as f64 / answered as f64),
        };
        tally.add("false positives", passed);
        tally.note(format!(
            "| {} | {when} | {} | {} | {} | {answered} | {:.3e} | {measured} | {:.2} | {passed} | \
             {expected:.3} |",
            self.bits,
            after.level,
            after.tables,
            after.entries,
            after.designed_rate,
            after.filter_bytes as f64 / MEBIBYTE
        ));
        if self.bits <= 0 {
            let reads = after.table_reads - before.table_reads;
            if answered > 0 || after.filter_bytes > 0 || after.designed_rate < 1.0 {
                return Err(format!("a filter where none should be, probed {answered} times"));
            }
            if reads < answered_min {
                return Err(format!("only {reads} searches of tables for missing keys"));
            }
            return Ok(());
        }
        if probes != answered || answered < answered_min {
            return Err(format!(
                "{probes} probes, {answered} answers, at least {answered_min} due"
            ));
        }
        // With fewer bits than configured, the rate would match those bits.
        let bits = after.filter_bytes as f64 * 8.0 / after.entries as f64;
        if bits < f64::from(self.bits) {
            return Err(format!("a filter of {bits:.2} bits for each key"));
        }
        if fits(passed, expected) {
            return Ok(());
        }
        Err(format!("{passed} false positives where {expected:.3} are designed"))
    }

    fn fill(&self, db: &Db, keyspace: &Keyspace, numbers: Range<u64>) -> umbel::Result<()> {
        let mut start = numbers.start;
        while start < numbers.end {
            let end = numbers.end.min(start + BATCH);
            let mut batch = db.batch();
            for number in start..end {
                batch.put(keyspace, self.key(number), self.value(number));
            }
            batch.commit(umbel::Durability::Buffered)?;
            start = end;
        }
        Ok(())
    }

    fn lookup_present(
        &self,
        keyspace: &Keyspace,
        numbers: Range<u64>,
    ) -> umbel::Result<WrongLookups> {
        let mut wrong = WrongLookups::default();
        for number in numbers {
            let (key, value) = (self.key(number), self.value(number));
            let found = keyspace.get_with(key, |bytes| bytes == value)?;
            wrong.lost += u64::from(found != Some(true));
            wrong.denied += u64::from(!keyspace.may_contain(key));
        }
        Ok(wrong)
    }

    fn lookup_missing(
        &self,
        keyspace: &Keyspace,
        numbers: Range<u64>,
    ) -> umbel::Result<WrongLookups> {
        let mut wrong = WrongLookups::default();
        for number in numbers {
            wrong.invented += u64::from(keyspace.contains(self.key(MISSING_FROM + number))?);
        }
        Ok(wrong)
    }
}

/// Calls a function with each number below a limit, on several threads.
fn in_threads<R: Send>(
    count: u64,
    part: impl Fn(Range<u64>) -> umbel::Result<R> + Sync,
) -> umbel::Result<Vec<R>> {
    let part = &part;
    std::thread::scope(|scope| {
        let bounds = |thread| count * thread / THREADS..count * (thread + 1) / THREADS;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || part(bounds(thread)))).collect();
        let joined = |thread: std::thread::ScopedJoinHandle<'_, umbel::Result<R>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(joined).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn improbable_counts_do_not_fit() {
        // A rate: within a tenth on both sides.
        assert!(fits(10_999, 10_000.0) && fits(9_001, 10_000.0));
        assert!(!fits(11_001, 10_000.0) && !fits(8_999, 10_000.0));
        // Rare ones: 91 are designed at 30 bits and ten million keys.
        assert!(fits(91, 91.0) && fits(60, 91.0) && fits(130, 91.0));
        assert!(!fits(20, 91.0) && !fits(0, 91.0) && !fits(182, 91.0));
        // None to speak of: two could be chance at a thousandth, five cannot.
        assert!(fits(0, 1e-3) && fits(1, 1e-3) && !fits(5, 1e-3));
        assert!(fits(0, 2e-7) && !fits(2, 2e-7));
        assert!(fits(0, 0.0) && !fits(1, 0.0));
        assert!(fits(999, 999.0) && !fits(500, 999.0) && !fits(1500, 999.0));
    }

    #[test]
    fn chances_follow_poisson() {
        assert!((chance(0, 2.0, false) - (-2.0_f64).exp()).abs() < 1e-12);
        assert!((chance(0, 2.0, true) - 1.0).abs() < 1e-12);
        assert!((chance(2, 2.0, true) - (1.0 - 3.0 * (-2.0_f64).exp())).abs() < 1e-12);
    }
}
