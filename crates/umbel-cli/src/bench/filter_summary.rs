//! Summary at the end of a run: probes, saved reads and memory of filters by level; for the tour,
//! also its results in plain words.

use umbel::{KeyspaceStats, LevelStats};

use super::bench_settings::Settings;
use crate::bench::thread_stats::BenchmarkTotals;
use crate::text::numbers::{bytes, grouped, percent};

/// Filter counts of one level over all stores of a run, and sizes of the level at the end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LevelFilterTotals {
    /// Number of the level.
    pub level: usize,
    /// Number of tables of the level.
    pub tables: u64,
    /// Number of entries in the tables of the level.
    pub entries: u64,
    /// Bytes of the filters of the level.
    pub filter_bytes: u64,
    /// Number of probes of filters of the level.
    pub probes: u64,
    /// Number of negative probes, each of which saved a read.
    pub true_negatives: u64,
    /// Number of false positives.
    pub false_positives: u64,
    /// False-positive rate that the level's filters are designed for.
    pub designed_rate: f64,
}

/// Filter counts of all levels.
#[derive(Debug, Clone, Default)]
pub struct FilterTotals {
    levels: Vec<LevelFilterTotals>,
}

impl FilterTotals {
    /// Adds the filter counts of an open store. REQUIRES: the caller calls this once for each open
    /// of a store, after the last read.
    pub fn add(&mut self, keyspace: &KeyspaceStats) {
        for level in &mut self.levels {
            (level.tables, level.entries, level.filter_bytes) = (0, 0, 0);
        }
        for stats in &keyspace.levels {
            self.level(stats.level).add(stats);
        }
    }

    fn level(&mut self, level: usize) -> &mut LevelFilterTotals {
        while self.levels.len() <= level {
            self.levels.push(LevelFilterTotals {
                level: self.levels.len(),
                ..LevelFilterTotals::default()
            });
        }
        &mut self.levels[level]
    }

    /// The levels that have tables or had their filters probed.
    pub fn levels(&self) -> impl Iterator<Item = &LevelFilterTotals> {
        self.levels.iter().filter(|level| level.tables > 0 || level.probes > 0)
    }

    /// Returns the sums over all levels.
    pub fn total(&self) -> LevelFilterTotals {
        let mut total = LevelFilterTotals::default();
        let mut expected = 0.0;
        for level in &self.levels {
            total.tables += level.tables;
            total.entries += level.entries;
            total.filter_bytes += level.filter_bytes;
            total.probes += level.probes;
            total.true_negatives += level.true_negatives;
            total.false_positives += level.false_positives;
            expected += level.designed_rate * level.absent_probes() as f64;
        }
        if total.absent_probes() > 0 {
            total.designed_rate = expected / total.absent_probes() as f64;
        }
        total
    }

    /// Returns the table of filters and the sentences after it.
    pub fn text(&self) -> String {
        let total = self.total();
        let mut text = "\nFilters by level\n".to_string();
        if total.probes == 0 {
            text.push_str(if total.filter_bytes == 0 {
                "No table has a filter: nothing was flushed yet, or --bloom_bits is 0 or -1.\n"
            } else {
                "No read probed a filter.\n"
            });
            return text;
        }
        text.push_str(&format!(
            "{:>5} {:>7} {:>10} {:>13} {:>13} {:>13} {:>11} {:>9} {:>9}\n",
            "level",
            "tables",
            "filters",
            "probes",
            "negative",
            "positive",
            "false pos.",
            "measured",
            "designed"
        ));
        for level in self.levels() {
            text.push_str(&level.row(&level.level.to_string()));
        }
        text.push_str(&total.row("all"));
        text.push_str(&total.sentences());
        text
    }
}

impl LevelFilterTotals {
    fn add(&mut self, stats: &LevelStats) {
        self.tables = stats.tables;
        self.entries = stats.entries;
        self.filter_bytes = stats.filter_bytes;
        self.probes += stats.filter_probes;
        self.true_negatives += stats.filter_true_negatives;
        self.false_positives += stats.filter_false_positives;
        // 1 where no table was opened yet, which says nothing of the filters.
        if stats.filter_bytes > 0 && stats.designed_rate < 1.0 {
            self.designed_rate = stats.designed_rate;
        }
    }

    /// Number of probes for keys that the filter's table does not have.
    fn absent_probes(&self) -> u64 {
        self.true_negatives + self.false_positives
    }

    /// Measured false-positive rate; `None` without probes for absent keys.
    pub fn measured_rate(&self) -> Option<f64> {
        let absent = self.absent_probes();
        (absent > 0).then(|| self.false_positives as f64 / absent as f64)
    }

    fn row(&self, name: &str) -> String {
        let measured = self.measured_rate().map_or("-".to_string(), percent);
        let designed =
            if self.absent_probes() > 0 { percent(self.designed_rate) } else { "-".to_string() };
        format!(
            "{name:>5} {:>7} {:>10} {:>13} {:>13} {:>13} {:>11} {measured:>9} {designed:>9}\n",
            grouped(self.tables),
            bytes(self.filter_bytes),
            grouped(self.probes),
            grouped(self.true_negatives),
            grouped(self.probes.saturating_sub(self.true_negatives)),
            grouped(self.false_positives)
        )
    }

    fn sentences(&self) -> String {
        let saved = self.true_negatives as f64 / self.probes.max(1) as f64;
        let bits = self.filter_bytes as f64 * 8.0 / self.entries.max(1) as f64;
        let false_positives = match self.measured_rate() {
            Some(rate) => format!(
                "{} probes were false positives, {} of the probes for absent keys ({} by \
                 design).\n",
                grouped(self.false_positives),
                percent(rate),
                percent(self.designed_rate)
            ),
            None => "No probe was for an absent key.\n".to_string(),
        };
        format!(
            "{} filter probes, of which {} were negative ({}); each negative probe saved a read \
             of a table.\n\
             {false_positives}The filters take {} of memory, {bits:.1} bits per entry.\n",
            grouped(self.probes),
            grouped(self.true_negatives),
            percent(saved),
            bytes(self.filter_bytes)
        )
    }
}

/// Returns the results of the tour in plain words.
pub fn tour_summary(
    settings: &Settings,
    results: &[(&'static str, BenchmarkTotals)],
    filters: &FilterTotals,
) -> String {
    let mut text = "\nResults\n".to_string();
    for (name, counted) in results {
        if let Some(sentence) = sentence(name, counted, settings) {
            text.push_str(&format!("- {sentence}\n"));
        }
    }
    let first = |name: &str| results.iter().find(|(known, _)| *known == name);
    if let (Some((_, hit)), Some((_, miss))) = (first("readrandom"), first("readmissing")) {
        let (hit, miss) = (hit.micros_per_operation(), miss.micros_per_operation());
        text.push_str(&format!(
            "- A lookup of an absent key took {} of the time of a lookup of a random key.\n",
            percent(miss / hit.max(1e-9))
        ));
    }
    let total = filters.total();
    if total.probes > 0 {
        let saved = total.true_negatives as f64 / total.probes as f64;
        text.push_str(&format!(
            "- {} of all filter probes were negative, with {} of filters in memory (see above).\n",
            percent(saved),
            bytes(total.filter_bytes)
        ));
    }
    text
}

fn sentence(name: &str, counted: &BenchmarkTotals, settings: &Settings) -> Option<String> {
    let rate = grouped(counted.operations_per_second() as u64);
    let done = grouped(counted.done);
    let time = duration(counted.micros_per_operation());
    let size = bytes((settings.key_size + settings.value_size) as u64);
    let found = percent(counted.found as f64 / counted.lookup_count.max(1) as f64);
    Some(match name {
        "fillrandom" => format!(
            "{done} entries of {size} were written in random order, {rate} a second ({time} each)."
        ),
        "overwrite" => format!("{done} entries were overwritten, {rate} a second."),
        "readrandom" => {
            format!("A random key was read in {time}; {found} of the random keys were present.")
        }
        "readmissing" => format!("An absent key between present ones was looked up in {time}."),
        "readhot" => format!("A key among the first hundredth was read in {time}."),
        "multireadrandom" => format!(
            "A key of a multi-get of {} took {time}.",
            grouped(settings.multi_get_keys as u64)
        ),
        "seekrandom" => format!("An iterator was created and positioned in {time}."),
        "readseq" => format!("A forward scan read {rate} entries a second."),
        "readreverse" => format!("A backward scan read {rate} entries a second."),
        "readwhilewriting" => {
            format!("While another thread wrote as fast as it could, a read took {time}.")
        }
        _ => return None,
    })
}

/// A duration in its usual unit.
fn duration(micros: f64) -> String {
    if micros < 1.0 {
        format!("{:.0} ns", micros * 1000.0)
    } else if micros < 1000.0 {
        format!("{micros:.2} µs")
    } else {
        format!("{:.2} ms", micros / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::bench_settings::testing::settings;

    fn store(probes: u64) -> KeyspaceStats {
        let level = LevelStats {
            level: 1,
            tables: 2,
            entries: 1000,
            filter_bytes: 1250,
            filter_probes: probes,
            filter_true_negatives: probes / 2,
            filter_false_positives: probes / 100,
            designed_rate: 0.02,
            ..LevelStats::default()
        };
        KeyspaceStats { levels: vec![LevelStats::default(), level], ..KeyspaceStats::default() }
    }

    #[test]
    fn summary_adds_counts_and_keeps_last_sizes() {
        let mut filters = FilterTotals::default();
        filters.add(&store(10_000));
        filters.add(&store(20_000));
        let total = filters.total();
        assert_eq!((total.probes, total.true_negatives), (30_000, 15_000));
        assert_eq!((total.tables, total.filter_bytes), (2, 1250));
        assert_eq!(total.measured_rate(), Some(300.0 / 15_300.0));
        assert_eq!(filters.levels().count(), 1);
        let text = filters.text();
        assert!(
            text.contains("30,000 filter probes, of which 15,000 were negative (50.0 %)"),
            "{text}"
        );
        assert!(text.contains("300 probes were false positives, 1.96 % of the probes"), "{text}");
        assert!(text.contains("1.2 KiB of memory, 10.0 bits per entry"), "{text}");
    }

    #[test]
    fn no_lookups_are_reported_as_such() {
        let text = FilterTotals::default().text();
        assert!(text.contains("No table has a filter"), "{text}");
        let mut filters = FilterTotals::default();
        filters.add(&store(0));
        assert!(filters.text().contains("No read probed a filter"));
    }

    #[test]
    fn tour_summary_compares_hits_and_misses() {
        let counted = |seconds: f64| BenchmarkTotals {
            done: 1_000_000,
            seconds,
            found: 500_000,
            lookup_count: 1_000_000,
            ..BenchmarkTotals::default()
        };
        let results = [("readrandom", counted(2.0)), ("readmissing", counted(0.5))];
        let text = tour_summary(&settings(&[]), &results, &FilterTotals::default());
        assert!(
            text.contains("A random key was read in 2.00 µs; 50.0 % of the random keys were"),
            "{text}"
        );
        assert!(text.contains("looked up in 500 ns"), "{text}");
        assert!(text.contains("absent key took 25.0 % of the time"), "{text}");
    }
}
