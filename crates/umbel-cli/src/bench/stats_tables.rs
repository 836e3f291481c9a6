//! The tables of `stats` and `levelstats`, in LevelDB's and RocksDB's columns.
//!
//! A column whose number Umbel does not have holds 0, so that the columns keep their positions.

use umbel::{KeyspaceStats, LevelStats, Stats};

use crate::bench::bench_flags::LineFormat;

const MEGABYTE: f64 = 1_048_576.0;
const GIGABYTE: f64 = 1_073_741_824.0;

/// Totals since the store was opened.
#[derive(Debug, Clone, Copy)]
pub struct SessionTotals {
    /// Seconds since the store was opened.
    pub seconds: f64,
    /// Number of keys written or deleted since the store was opened.
    pub writes: u64,
}

/// Returns the table of `stats` for one keyspace.
pub fn stats(
    format: LineFormat,
    stats: &Stats,
    keyspace: &KeyspaceStats,
    session: SessionTotals,
) -> String {
    match format {
        LineFormat::Leveldb => leveldb_stats(keyspace),
        LineFormat::Rocksdb => rocksdb_stats(stats, keyspace, session),
    }
}

/// Returns the table of `levelstats`, which has the same format in LevelDB's and RocksDB's tools.
pub fn level_stats(keyspace: &KeyspaceStats) -> String {
    let mut text = "Level Files Size(MB)\n--------------------\n".to_string();
    for level in &keyspace.levels {
        let size = level.bytes as f64 / MEGABYTE;
        text.push_str(&format!("{:3} {:8} {size:8.0}\n", level.level, level.tables));
    }
    text
}

fn leveldb_stats(keyspace: &KeyspaceStats) -> String {
    let mut text = "                               Compactions\n\
        Level  Files Size(MB) Time(sec) Read(MB) Write(MB)\n\
        --------------------------------------------------\n"
        .to_string();
    for level in keyspace.levels.iter().filter(|level| level.tables > 0 || level.compactions > 0) {
        text.push_str(&format!(
            "{:3} {:8} {:8.0} {:9.0} {:8.0} {:9.0}\n",
            level.level,
            level.tables,
            level.bytes as f64 / MEGABYTE,
            level.compaction_micros as f64 / 1e6,
            level.bytes_read_compaction as f64 / MEGABYTE,
            level.bytes_written as f64 / MEGABYTE
        ));
    }
    text
}

fn rocksdb_stats(stats: &Stats, keyspace: &KeyspaceStats, session: SessionTotals) -> String {
    const COLUMNS: &str = "Level    Files   Size     Score Read(GB)  Rn(GB) Rnp1(GB) Write(GB) \
        WPreComp(GB) Wnew(GB) Moved(GB) W-Amp Rd(MB/s) Wr(MB/s) Comp(sec) CompMergeCPU(sec) \
        Comp(cnt) Avg(sec) KeyIn KeyDrop Rblob(GB) Wblob(GB)";
    let mut text = format!("\n** Compaction Stats [{}] **\n{COLUMNS}\n", keyspace.name);
    text.push_str(&"-".repeat(COLUMNS.len()));
    text.push('\n');
    let mut sum = LevelStats::default();
    for level in keyspace.levels.iter().filter(|level| level.tables > 0 || level.compactions > 0) {
        let score = level.bytes as f64 / level.target_bytes.max(1) as f64;
        let score = if level.target_bytes == 0 { 0.0 } else { score };
        // What came down from the level above is what was written and not read.
        let source = level.bytes_written.saturating_sub(level.bytes_read_compaction);
        text.push_str(&row(&format!("L{}", level.level), level, score, source));
        add(&mut sum, level);
    }
    text.push_str(&row(" Sum", &sum, 0.0, keyspace.user_bytes_written));
    text.push_str(&row(" Int", &LevelStats::default(), 0.0, 0));
    let flushed = keyspace.levels.first().map_or(0, |level| level.bytes_written) as f64 / GIGABYTE;
    let seconds = session.seconds.max(1e-9);
    let (read, written) = (sum.bytes_read_compaction as f64, sum.bytes_written as f64);
    text.push_str(&format!(
        "\nUptime(secs): {seconds:.1} total, {seconds:.1} interval\n\
         Flush(GB): cumulative {flushed:.3}, interval {flushed:.3}\n\
         Cumulative compaction: {:.2} GB write, {:.2} MB/s write, {:.2} GB read, {:.2} MB/s read, \
         {:.1} seconds\n",
        written / GIGABYTE,
        written / MEGABYTE / seconds,
        read / GIGABYTE,
        read / MEGABYTE / seconds,
        sum.compaction_micros as f64 / 1e6
    ));
    text.push_str(&database(stats, keyspace, session.writes, seconds));
    text
}

fn add(sum: &mut LevelStats, level: &LevelStats) {
    sum.tables += level.tables;
    sum.bytes += level.bytes;
    sum.bytes_read_compaction += level.bytes_read_compaction;
    sum.bytes_written += level.bytes_written;
    sum.bytes_moved += level.bytes_moved;
    sum.compactions += level.compactions;
    sum.compaction_micros += level.compaction_micros;
    sum.compaction_entries_in += level.compaction_entries_in;
    sum.compaction_entries_dropped += level.compaction_entries_dropped;
}

fn row(name: &str, level: &LevelStats, score: f64, source_bytes: u64) -> String {
    let read = level.bytes_read_compaction as f64;
    let written = level.bytes_written as f64;
    let seconds = level.compaction_micros as f64 / 1e6;
    let rate = |bytes: f64| if seconds > 0.0 { bytes / MEGABYTE / seconds } else { 0.0 };
    let amplification = if source_bytes > 0 { written / source_bytes as f64 } else { 0.0 };
    let average = seconds / level.compactions.max(1) as f64;
    format!(
        "{name:>4} {:6}/{:<3} {:>10} {score:5.1} {:8.1} {:7.1} {:8.1} {:9.1} {:9.1} {:8.1} \
         {:9.1} {amplification:5.1} {:8.1} {:8.1} {seconds:9.2} {:17.2} {:9} {average:8.3} {:>7} \
         {:>6} {:9.1} {:9.1}\n",
        level.tables,
        0,
        size(level.bytes),
        read / GIGABYTE,
        0.0,
        0.0,
        written / GIGABYTE,
        0.0,
        (written - read).max(0.0) / GIGABYTE,
        level.bytes_moved as f64 / GIGABYTE,
        rate(read),
        rate(written),
        0.0,
        level.compactions,
        count(level.compaction_entries_in),
        count(level.compaction_entries_dropped),
        0.0,
        0.0
    )
}

fn database(stats: &Stats, keyspace: &KeyspaceStats, writes: u64, seconds: f64) -> String {
    let user = keyspace.user_bytes_written as f64;
    let log = stats.log_bytes_written as f64;
    let (commits, groups) = (count(stats.commits), count(stats.commit_groups));
    let per_group = stats.commits as f64 / stats.commit_groups.max(1) as f64;
    let per_sync = stats.commits as f64 / stats.log_syncs.max(1) as f64;
    let stalled = StallTime { micros: stats.stall_micros, seconds }.text();
    let mut text =
        format!("\n** DB Stats **\nUptime(secs): {seconds:.1} total, {seconds:.1} interval\n");
    // The first interval is all there was.
    for span in ["Cumulative", "Interval"] {
        text.push_str(&format!(
            "{span} writes: {commits} writes, {} keys, {groups} commit groups, {per_group:.1} \
             writes per commit group, ingest: {:.2} GB, {:.2} MB/s\n\
             {span} WAL: {commits} writes, {} syncs, {per_sync:.2} writes per sync, written: {:.2} \
             GB, {:.2} MB/s\n{span} stall: {stalled}\n",
            count(writes),
            user / GIGABYTE,
            user / MEGABYTE / seconds,
            count(stats.log_syncs),
            log / GIGABYTE,
            log / MEGABYTE / seconds,
        ));
    }
    text.push_str(&format!("Write Stall (count): total-delays: {}\n", stats.stalls));
    text
}

struct StallTime {
    micros: u64,
    seconds: f64,
}

impl StallTime {
    /// Formats a time as `HH:MM:SS.mmm H:M:S, %.1f percent`, like RocksDB.
    fn text(&self) -> String {
        let millis = self.micros / 1000;
        let (hours, minutes) = (millis / 3_600_000, millis / 60_000 % 60);
        let percent = self.micros as f64 / 1e6 / self.seconds * 100.0;
        format!(
            "{hours:02}:{minutes:02}:{:02}.{:03} H:M:S, {percent:.1} percent",
            millis / 1000 % 60,
            millis % 1000
        )
    }
}

/// Formats a size like RocksDB: in KB or a larger unit, with two digits after the point.
fn size(bytes: u64) -> String {
    let mut value = bytes as f64 / 1024.0;
    for unit in ["KB", "MB", "GB"] {
        if value < 1024.0 {
            return format!("{value:.2} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.2} TB")
}

/// Formats a count like RocksDB: from 10,000 on in K, M or G, without digits after the point.
fn count(number: u64) -> String {
    match number {
        0..10_000 => number.to_string(),
        10_000..10_000_000 => format!("{}K", number / 1000),
        10_000_000..10_000_000_000 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyspace() -> KeyspaceStats {
        let level = LevelStats {
            level: 1,
            tables: 3,
            bytes: 10 << 20,
            bytes_read_compaction: 5 << 20,
            bytes_written: 10 << 20,
            compactions: 2,
            compaction_micros: 2_000_000,
            ..LevelStats::default()
        };
        let levels = vec![LevelStats::default(), level];
        KeyspaceStats { name: "default".to_string(), levels, ..KeyspaceStats::default() }
    }

    #[test]
    fn level_stats_match_rocksdb_text() {
        assert_eq!(
            level_stats(&keyspace()),
            "Level Files Size(MB)\n--------------------\n  0        0        0\n  \
             1        3       10\n"
        );
    }

    #[test]
    fn leveldb_stats_match_exactly() {
        assert_eq!(
            leveldb_stats(&keyspace()),
            "                               Compactions\n\
             Level  Files Size(MB) Time(sec) Read(MB) Write(MB)\n\
             --------------------------------------------------\n  \
             1        3       10         2        5        10\n"
        );
    }

    #[test]
    fn rocksdb_stats_have_lines_that_scripts_parse() {
        let stats = Stats { stall_micros: 61_500_000, ..Stats::default() };
        let text = rocksdb_stats(&stats, &keyspace(), SessionTotals { seconds: 123.0, writes: 5 });
        for start in [
            "** Compaction Stats [default] **",
            "Level    Files   Size     Score Read(GB)",
            // Adjacent pieces keep the columns countable.
            concat!(
                "  L1      3/0     10.00 MB   0.0      0.0     0.0      0.0       0.0       0.0 ",
                "     0.0       0.0   2.0      2.5      5.0      2.00              0.00 ",
                "        2    1.000       0      0       0.0       0.0"
            ),
            " Sum ",
            " Int ",
            "Uptime(secs): 123.0 total",
            "Flush(GB): cumulative",
            "Cumulative compaction: ",
            "Cumulative writes: ",
            "Cumulative WAL: ",
            "Cumulative stall: 00:01:01.500 H:M:S, 50.0 percent",
            "Interval writes: 0 writes, 5 keys, 0 commit groups, 0.0 writes per commit group",
            "Write Stall (count): total-delays: 0",
        ] {
            assert!(text.lines().any(|line| line.starts_with(start)), "{start}\n{text}");
        }
    }
}
