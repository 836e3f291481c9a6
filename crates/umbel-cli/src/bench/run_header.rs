//! Header before the first benchmark: the machine on standard error, the workload on standard
//! output, as LevelDB and RocksDB print them.

use std::fs;
use std::time::Duration;

use umbel_env::Clock;

use super::bench_settings::Settings;
use crate::bench::bench_flags::LineFormat;

/// The line that ends the header.
const RULE: &str = "------------------------------------------------\n";

/// Machine and version, for standard error.
pub fn environment(clock: &dyn Clock, clock_nanos: f64) -> String {
    let (cpu, cores, cache) = processor();
    let mut text = format!(
        "Umbel:      version {}\nDate:       {}\n",
        env!("CARGO_PKG_VERSION"),
        date(clock.wall_micros() / 1_000_000)
    );
    if let Some(cpu) = cpu {
        text.push_str(&format!("CPU:        {cores} * {cpu}\n"));
    }
    if let Some(cache) = cache {
        text.push_str(&format!("CPUCache:   {cache}\n"));
    }
    text.push_str(&format!(
        "Clock:      {clock_nanos:.0} ns a reading (per operation only with --histogram)"
    ));
    text
}

/// Cost of one clock reading, in nanoseconds.
pub fn clock_nanos(clock: &dyn Clock) -> f64 {
    const READINGS: u32 = 20_000;
    let start = clock.now();
    let mut last = start;
    for _ in 0..READINGS {
        last = clock.now();
    }
    last.saturating_sub(start).as_nanos() as f64 / f64::from(READINGS)
}

/// The workload, for standard output.
pub fn workload(settings: &Settings) -> String {
    match settings.format {
        LineFormat::Leveldb => leveldb(settings),
        LineFormat::Rocksdb => rocksdb(settings),
    }
}

fn raw_megabytes(settings: &Settings, value_share: f64) -> f64 {
    let entry = settings.key_size as f64 + settings.value_size as f64 * value_share;
    entry * settings.num as f64 / 1_048_576.0
}

fn compressed_value(settings: &Settings) -> u64 {
    (settings.value_size as f64 * settings.compression_ratio + 0.5) as u64
}

fn sizes(settings: &Settings) -> String {
    format!(
        "RawSize:    {:.1} MB (estimated)\nFileSize:   {:.1} MB (estimated)\n",
        raw_megabytes(settings, 1.0),
        raw_megabytes(settings, settings.compression_ratio)
    )
}

fn leveldb(settings: &Settings) -> String {
    format!(
        "Keys:       {} bytes each\nValues:     {} bytes each ({} bytes after compression)\n\
         Entries:    {}\n{}{}{RULE}",
        settings.key_size,
        settings.value_size,
        compressed_value(settings),
        settings.num,
        sizes(settings),
        warnings()
    )
}

fn rocksdb(settings: &Settings) -> String {
    format!(
        "Keys:       {} bytes each (+ 0 bytes user-defined timestamp)\n\
         Values:     {} bytes each ({} bytes after compression)\nEntries:    {}\n\
         Prefix:    {} bytes\nKeys per prefix:    0\n{}Write rate: 0 bytes/second\n\
         Read rate: 0 ops/second\nCompression: {}\nCompression sampling rate: 0\n\
         Memtablerep: BPlusTree\nPerf Level: 1\n{}{RULE}",
        settings.key_size,
        settings.value_size,
        compressed_value(settings),
        settings.num,
        settings.key_prefix,
        sizes(settings),
        settings.compression_name,
        warnings()
    )
}

fn warnings() -> &'static str {
    if cfg!(debug_assertions) {
        "WARNING: Assertions are enabled; benchmarks unnecessarily slow\n"
    } else {
        ""
    }
}

/// Name of the processor, how many there are, and the size of its cache.
fn processor() -> (Option<String>, usize, Option<String>) {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(':').next().map(str::trim) == Some(name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_string())
    };
    let cores = text.lines().filter(|line| line.starts_with("processor")).count();
    (field("model name"), cores.max(1), field("cache size"))
}

/// Seconds since 1970 as text in UTC, in the format of `ctime`.
pub fn date(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let days = seconds / Duration::from_secs(86_400).as_secs();
    let time = seconds % 86_400;
    let (year, month, day) = civil_date(days);
    format!(
        "{} {} {day:2} {:02}:{:02}:{:02} {year}",
        DAYS[(days % 7) as usize],
        MONTHS[(month - 1) as usize],
        time / 3600,
        time / 60 % 60,
        time % 60
    )
}

/// Seconds since 1970 as text in UTC, as RocksDB writes it in front of progress lines, with
/// RocksDB's space after it.
pub fn timestamp(seconds: u64) -> String {
    let (year, month, day) = civil_date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}/{month:02}/{day:02}-{hour:02}:{minute:02}:{second:02} ")
}

/// Year, month and day of a day number since 1970; the computation counts in years that begin in
/// March.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::bench_settings::testing::settings;

    #[test]
    fn dates_use_ctime_format() {
        assert_eq!(date(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(date(951_827_696), "Tue Feb 29 12:34:56 2000");
        assert_eq!(timestamp(951_827_696), "2000/02/29-12:34:56 ");
        assert_eq!(date(1_763_683_199), "Thu Nov 20 23:59:59 2025");
    }

    #[test]
    fn leveldb_header_matches_exactly() {
        let text = workload(&settings(&["--format=leveldb", "--num=1000000"]));
        let text = text.replace(warnings(), "");
        assert_eq!(
            text,
            "Keys:       16 bytes each\nValues:     100 bytes each (50 bytes after compression)\n\
             Entries:    1000000\nRawSize:    110.6 MB (estimated)\n\
             FileSize:   62.9 MB (estimated)\n\
             ------------------------------------------------\n"
        );
    }

    #[test]
    fn rocksdb_header_matches_exactly() {
        let text = workload(&settings(&["--num=1000000", "--compression=lz4"]));
        let text = text.replace(warnings(), "");
        assert_eq!(
            text,
            "Keys:       16 bytes each (+ 0 bytes user-defined timestamp)\n\
             Values:     100 bytes each (50 bytes after compression)\nEntries:    1000000\n\
             Prefix:    0 bytes\nKeys per prefix:    0\nRawSize:    110.6 MB (estimated)\n\
             FileSize:   62.9 MB (estimated)\nWrite rate: 0 bytes/second\n\
             Read rate: 0 ops/second\nCompression: LZ4\nCompression sampling rate: 0\n\
             Memtablerep: BPlusTree\nPerf Level: 1\n\
             ------------------------------------------------\n"
        );
    }
}
