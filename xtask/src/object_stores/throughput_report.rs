//! [`ThroughputReport`]: measurements of backups beside plain transfers, as a Markdown page.

use std::fs;
use std::path::Path;

use crate::object_stores::append_load::EVENT_BYTES;
use crate::object_stores::campaign_report::{line_of, processor};
use crate::object_stores::measured_run::Usage;

/// Least rate of a first backup, in rates of the plain upload.
const BACKUP_RATE_MIN: f64 = 0.8;
/// Most time of a restore, in times of the plain download.
const RESTORE_TIME_MAX: f64 = 1.2;
/// Least rate of appends beside a backup, in rates without one.
const APPEND_RATE_MIN: f64 = 0.9;

/// Measurements of one round.
#[derive(Debug, Clone, Copy, Default)]
pub struct RoundResult {
    /// Upload of the chunk files with Amazon's client.
    pub upload: Usage,
    /// First backup into an empty prefix, with its probe of the object store.
    pub backup: Usage,
    /// Position up to which the backup has the events.
    pub backup_position: u64,
    /// Bytes that the backup uploaded.
    pub backup_bytes: u64,
    /// Probe of the object store alone.
    pub probe: Usage,
    /// Download of the chunk files with Amazon's client.
    pub download: Usage,
    /// Seconds of the download with an fsync of each file.
    pub synced_download_seconds: f64,
    /// Restore into a new directory.
    pub restore: Usage,
}

impl RoundResult {
    fn backup_seconds_without_probe(&self) -> f64 {
        self.backup.seconds - self.probe.seconds
    }

    /// Whether the difference of backup and probe has a meaning: probes vary by tens of seconds.
    fn is_probe_shorter(&self) -> bool {
        self.probe.seconds < self.backup.seconds
    }
}

/// Rates of appends without and with a backup, one after the other.
#[derive(Debug, Clone, Copy, Default)]
pub struct AppendResult {
    /// Events a second without a backup.
    pub rate_alone: f64,
    /// Events a second while the server backs up.
    pub rate_beside_backup: f64,
    /// Bytes that the backup uploaded meanwhile.
    pub uploaded_bytes: f64,
    /// Processors that the object store used meanwhile.
    pub store_processors: f64,
    /// Whether the first backup ran until the end of the measurement.
    pub is_beside_whole_window: bool,
}

/// Everything that was measured.
#[derive(Debug, Default)]
pub struct ThroughputReport {
    /// Arguments of the command.
    pub arguments: String,
    /// Bytes of the chunk files.
    pub store_bytes: u64,
    /// Number of chunk files.
    pub chunks: usize,
    /// Name and version of the object store.
    pub object_store: String,
    /// Name and version of Amazon's client.
    pub client: String,
    /// Version of the measured program.
    pub umbel: String,
    /// Whether the page cache was dropped each time.
    pub is_cache_dropped: bool,
    /// Clients that append, and the seconds of a window.
    pub append_clients: usize,
    /// Seconds of a measurement of appends.
    pub append_seconds: u64,
    /// Results of the rounds.
    pub rounds: Vec<RoundResult>,
    /// Results of the appends.
    pub appends: Vec<AppendResult>,
}

/// Machine and time of a measurement.
struct Machine {
    date: String,
    processor: String,
    system: String,
    commit: String,
}

impl Machine {
    fn this() -> Machine {
        Machine {
            date: today(),
            processor: processor(),
            system: line_of("uname", &["-sr"]),
            commit: line_of("git", &["rev-parse", "--short", "HEAD"]),
        }
    }
}

/// Returns the date of today in UTC.
pub fn today() -> String {
    line_of("date", &["-u", "+%Y-%m-%d"])
}

impl ThroughputReport {
    /// Writes the page.
    ///
    /// # Errors
    /// The file was not written.
    pub fn write(&self, path: &Path) -> Result<(), String> {
        let text = self.text(&Machine::this());
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn text(&self, machine: &Machine) -> String {
        let Machine { date, processor, system, commit } = machine;
        let cache = match self.is_cache_dropped {
            true => "The page cache was dropped before each measurement.",
            false => "The page cache was **not** dropped: only root can do that, on Linux.",
        };
        let mut text = format!(
            "# Throughput of backups into an object store, {date}\n\n`cargo xtask objects {}` at \
             commit {commit}.\n\n- machine: {processor}, {system}\n- program: {}\n- store: {:.2} \
             GB in {} chunks, with events of 1 MB of random text\n- object store: {}, on the same \
             machine, empty before each measurement of a backup\n\n{cache}\n\n",
            self.arguments,
            self.umbel,
            self.store_bytes as f64 / 1e9,
            self.chunks,
            self.object_store,
        );
        if !self.rounds.is_empty() {
            text.push_str(&self.transfers());
        }
        if !self.appends.is_empty() {
            text.push_str(&self.appends_beside_backups());
        }
        text
    }

    fn transfers(&self) -> String {
        let median_of = |value: fn(&RoundResult) -> f64| {
            median(&self.rounds.iter().map(value).collect::<Vec<_>>())
        };
        let with_probe = median_of(|round| round.upload.seconds / round.backup.seconds);
        let alone = median_of(|round| round.upload.seconds / round.backup_seconds_without_probe());
        let synced = median_of(|round| round.synced_download_seconds / round.download.seconds);
        let restore = median_of(|round| round.restore.seconds / round.download.seconds);
        let beside_synced =
            median_of(|round| round.restore.seconds / round.synced_download_seconds);
        let rows = [
            Row::new("plain upload", |r| r.upload.seconds).used(|r| r.upload).beside("1", ""),
            Row::new("`umbel backup --to`, the first one, with its probe", |r| r.backup.seconds)
                .used(|r| r.backup)
                .rate(with_probe),
            Row::new("`umbel store probe` alone", |r| r.probe.seconds).used(|r| r.probe),
            Row::new("the first backup less the probe", |r| r.backup_seconds_without_probe())
                .rate_if_known(alone, self.rounds.iter().all(RoundResult::is_probe_shorter)),
            Row::new("plain download", |r| r.download.seconds).used(|r| r.download).beside("1", ""),
            Row::new("plain download, then an fsync of each file", |r| r.synced_download_seconds)
                .beside(&format!("{synced:.2} × the time"), ""),
            Row::new("`umbel restore --from`", |r| r.restore.seconds)
                .used(|r| r.restore)
                .time(restore),
        ];
        let backup_gigabytes = median_of(|round| round.backup_bytes as f64 / 1e9);
        let rows = rows.map(|row| row.text(&self.rounds, self.store_bytes));
        format!(
            "Plain transfers: {}, 4 files at a time, each with 4 parts of 8 MiB at a time. Each \
             round measures everything\nonce. Every second one measures Umbel before the plain \
             transfers. Ratios are medians of the ratios of the rounds.\n\n\
             | | time | of each round | MB/s | beside the plain transfer | limit | memory | \
             processor time | of the object store |\n|---|--:|--:|--:|--:|--:|--:|--:|--:|\n{}\n\
             Memory is the highest peak of a round. Processor times are medians. A restore syncs \
             its files:\nit took {beside_synced:.2} × the time of the synced download. A backup \
             uploads {backup_gigabytes:.2} GB, without the unused ends of\nchunks. Rates are those \
             of the bytes of the chunk files.\n\n",
            self.client,
            rows.concat()
        )
    }

    fn appends_beside_backups(&self) -> String {
        let ratios: Vec<f64> =
            self.appends.iter().map(|pair| pair.rate_beside_backup / pair.rate_alone).collect();
        let mut rows = String::new();
        for (pair, ratio) in self.appends.iter().zip(&ratios) {
            let AppendResult { rate_alone, rate_beside_backup, uploaded_bytes, .. } = pair;
            rows.push_str(&format!(
                "| {rate_alone:.0} | {rate_beside_backup:.0} | {ratio:.2} | {:.2} GB | {:.2} | {} \
                 |\n",
                uploaded_bytes / 1e9,
                pair.store_processors,
                if pair.is_beside_whole_window { "yes" } else { "no" }
            ));
        }
        let ratio = median(&ratios);
        let verdict = verdict(ratio >= APPEND_RATE_MIN);
        format!(
            "## Appends beside a backup\n\n`umbel serve`, synced, on the same store, with {} \
             clients (`umbel append --connect`), each of which appends events\nof {EVENT_BYTES} \
             bytes one by one. Windows of {} s without and with `--backup-to`, by turns. The \
             backup is the first one. The object store has the lowest priority\n(`nice -n 19`) and \
             its files in memory, because it would be on another machine.\n\n| events/s alone | \
             beside a backup | ratio | uploaded meanwhile | processors of the object store | \
             backup ran to the end of the window |\n|--:|--:|--:|--:|--:|---|\n{rows}\n\
             Median ratio: {ratio:.2}. Limit: at least {APPEND_RATE_MIN}, {verdict}.\n",
            self.append_clients, self.append_seconds,
        )
    }
}

/// Row of the table of transfers.
struct Row {
    name: &'static str,
    seconds: fn(&RoundResult) -> f64,
    usage: Option<fn(&RoundResult) -> Usage>,
    /// Ratio to the plain transfer; empty if the row moves no store.
    ratio: String,
    limit: String,
}

impl Row {
    fn new(name: &'static str, seconds: fn(&RoundResult) -> f64) -> Row {
        Row { name, seconds, usage: None, ratio: String::new(), limit: String::new() }
    }

    fn used(self, usage: fn(&RoundResult) -> Usage) -> Row {
        Row { usage: Some(usage), ..self }
    }

    fn beside(self, ratio: &str, limit: &str) -> Row {
        Row { ratio: ratio.to_string(), limit: limit.to_string(), ..self }
    }

    fn rate(self, ratio: f64) -> Row {
        let limit = format!("≥ {BACKUP_RATE_MIN} ×, {}", verdict(ratio >= BACKUP_RATE_MIN));
        self.beside(&format!("{ratio:.2} × the rate"), &limit)
    }

    fn rate_if_known(self, ratio: f64, is_known: bool) -> Row {
        match is_known {
            true => self.rate(ratio),
            false => self.beside("unknown: a probe alone took longer", "**unknown**"),
        }
    }

    fn time(self, ratio: f64) -> Row {
        let limit = format!("≤ {RESTORE_TIME_MAX} ×, {}", verdict(ratio <= RESTORE_TIME_MAX));
        self.beside(&format!("{ratio:.2} × the time"), &limit)
    }

    fn text(&self, rounds: &[RoundResult], store_bytes: u64) -> String {
        let times: Vec<f64> = rounds.iter().map(self.seconds).collect();
        let each: Vec<String> = times.iter().map(|time| format!("{time:.1}")).collect();
        let time = median(&times);
        let rate = match self.ratio.is_empty() || time <= 0.0 {
            true => String::new(),
            false => format!("{:.0}", store_bytes as f64 / 1e6 / time),
        };
        let (mut memory, mut processor, mut store) = (String::new(), String::new(), String::new());
        if let Some(usage) = self.usage {
            let usages: Vec<Usage> = rounds.iter().map(usage).collect();
            let middle = |value: fn(&Usage) -> f64| {
                format!("{:.1} s", median(&usages.iter().map(value).collect::<Vec<_>>()))
            };
            let peak = usages.iter().map(|usage| usage.memory_bytes).max().unwrap_or(0);
            memory = format!("{} MiB", peak >> 20);
            processor = middle(|usage| usage.processor_seconds);
            store = middle(|usage| usage.store_processor_seconds);
        }
        let Row { name, ratio, limit, .. } = self;
        let each = each.join(", ");
        format!(
            "| {name} | {time:.1} s | {each} | {rate} | {ratio} | {limit} | {memory} | \
             {processor} | {store} |\n"
        )
    }
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**not met**" }
}

/// Returns the middle value, or the mean of the two middle ones; 0 without values.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        count if count.is_multiple_of(2) => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(seconds: f64) -> Usage {
        Usage {
            seconds,
            processor_seconds: seconds / 2.0,
            memory_bytes: 64 << 20,
            store_processor_seconds: seconds,
        }
    }

    fn report() -> ThroughputReport {
        let round = |backup, restore| RoundResult {
            upload: usage(100.0),
            backup: usage(backup),
            backup_position: 9_900_000_000,
            backup_bytes: 9_870_000_000,
            probe: usage(25.0),
            download: usage(50.0),
            synced_download_seconds: 60.0,
            restore: usage(restore),
        };
        ThroughputReport {
            arguments: "--throughput --gigabytes 10 --rounds 2".to_string(),
            store_bytes: 10_000_000_000,
            chunks: 300,
            rounds: vec![round(140.0, 55.0), round(160.0, 57.0)],
            ..ThroughputReport::default()
        }
    }

    fn text(report: &ThroughputReport) -> String {
        let [date, processor, system, commit] =
            ["2026-11-30", "2 cores of X", "Linux 6", "abc"].map(str::to_string);
        report.text(&Machine { date, processor, system, commit })
    }

    fn line<'a>(text: &'a str, name: &str) -> &'a str {
        text.lines().find(|line| line.contains(name)).unwrap_or_default()
    }

    #[test]
    fn ratios_are_held_against_their_limits() {
        let text = text(&report());
        assert_eq!(
            line(&text, "with its probe"),
            "| `umbel backup --to`, the first one, with its probe | 150.0 s | 140.0, 160.0 | 67 | \
             0.67 × the rate | ≥ 0.8 ×, **not met** | 64 MiB | 75.0 s | 150.0 s |"
        );
        assert_eq!(
            line(&text, "less the probe"),
            "| the first backup less the probe | 125.0 s | 115.0, 135.0 | 80 | 0.81 × the rate | \
             ≥ 0.8 ×, met |  |  |  |"
        );
        assert_eq!(
            line(&text, "restore --from"),
            "| `umbel restore --from` | 56.0 s | 55.0, 57.0 | 179 | 1.12 × the time | ≤ 1.2 ×, \
             met | 64 MiB | 28.0 s | 56.0 s |"
        );
        let columns = |line: &str| line.matches('|').count();
        let rows: Vec<usize> =
            text.lines().filter(|line| line.starts_with('|')).map(columns).collect();
        assert_eq!(rows, [10; 9]);
        assert!(text.contains("uploads 9.87 GB"), "{text}");
        assert!(text.contains("was **not** dropped"));
        assert!(!text.contains("## Appends"));
    }

    #[test]
    fn a_probe_longer_than_the_backup_gives_no_ratio() {
        let mut report = report();
        report.rounds[1].probe.seconds = 161.0;
        let text = text(&report);
        let row = line(&text, "less the probe");
        assert!(row.contains("| unknown: a probe alone took longer | **unknown** |"), "{row}");
    }

    #[test]
    fn appends_have_the_median_of_their_ratios() {
        let pair = |rate_beside_backup, is_beside_whole_window| AppendResult {
            rate_alone: 1000.0,
            rate_beside_backup,
            uploaded_bytes: 1.5e9,
            store_processors: 0.5,
            is_beside_whole_window,
        };
        let appends = vec![pair(950.0, true), pair(870.0, false)];
        let text = text(&ThroughputReport { appends, ..report() });
        assert!(text.contains("| 1000 | 950 | 0.95 | 1.50 GB | 0.50 | yes |"), "{text}");
        assert!(text.contains("| 1000 | 870 | 0.87 | 1.50 GB | 0.50 | no |"), "{text}");
        assert!(text.contains("Median ratio: 0.91. Limit: at least 0.9, met."), "{text}");
    }

    #[test]
    fn median_of_an_even_number_is_the_mean_of_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
