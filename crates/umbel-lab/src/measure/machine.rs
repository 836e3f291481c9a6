//! Machine and date of a run.

use std::path::Path;
use std::process::Command;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

/// Facts about machine and build that influence figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The date in UTC, `2026-11-21`.
    pub date: String,
    /// The processor's own name.
    pub processor: String,
    /// Number of hardware threads.
    pub threads: usize,
    /// The memory in mebibytes.
    pub memory_mib: Option<u64>,
    /// Name and version of the kernel.
    pub kernel: String,
    /// The file system of the stores.
    pub file_system: String,
    /// The commit of the source folder, and whether there were uncommitted changes.
    pub commit: String,
    /// XXH3-64 of the measuring program, since two programs with the same commit can be built from
    /// different sources.
    pub binary: String,
}

impl Machine {
    /// Detects the machine; `stores` is the folder of the stores.
    pub fn detect(stores: &Path) -> Machine {
        let unknown = || "unknown".to_string();
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let after = |text: &str, head: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(head))?;
            Some(line.trim_start_matches([' ', '\t', ':']).to_string())
        };
        let memory = after(&read("/proc/meminfo"), "MemTotal");
        let kibibytes = |text: String| text.split(' ').next()?.parse::<u64>().ok();
        Machine {
            date: today(),
            processor: after(&read("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
            threads: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: memory.and_then(kibibytes).map(|kib| kib / 1024),
            kernel: command_output(Command::new("uname").arg("-sr")).unwrap_or_else(unknown),
            file_system: file_system(stores).unwrap_or_else(unknown),
            commit: commit().unwrap_or_else(unknown),
            binary: binary().unwrap_or_else(unknown),
        }
    }
}

impl Machine {
    /// Date, processor, kernel and commit, for a report that has no table of them.
    pub fn summary(&self) -> String {
        let Machine { date, processor, threads, kernel, commit, .. } = self;
        format!("{date}, {processor}, {threads} threads, {kernel}, commit {commit}")
    }

    /// Whether figures of both machines are comparable; the date does not matter.
    pub fn is_same(&self, other: &Machine) -> bool {
        let dateless = |machine: &Machine| Machine { date: String::new(), ..machine.clone() };
        dateless(self) == dateless(other)
    }
}

/// Returns the machine's load average over 1, 5 and 15 minutes.
pub fn loads() -> Option<[f64; 3]> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    let mut words = text.split(' ').map(str::parse);
    Some([words.next()?.ok()?, words.next()?.ok()?, words.next()?.ok()?])
}

fn command_output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    if !output.status.success() {
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn binary() -> Option<String> {
    let bytes = std::fs::read(std::env::current_exe().ok()?).ok()?;
    Some(format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes)))
}

fn commit() -> Option<String> {
    let git = |words: &[&str]| {
        command_output(Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(words))
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--", ".."])?;
    Some(if changed.is_empty() { commit } else { format!("{commit} with changes on top") })
}

/// Returns the type of the file system that contains a folder.
fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let mounted = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (place, kind) = (words.nth(1)?, words.next()?);
        folder.starts_with(place).then_some((place.len(), kind))
    });
    mounted.max_by_key(|(length, _)| *length).map(|(_, kind)| kind.to_string())
}

#[expect(clippy::disallowed_methods, reason = "results are dated by the real clock")]
fn today() -> String {
    let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date(since.as_secs() / 86_400)
}

/// Formats a moment in UTC, `2026-11-22T17:05:00Z`.
pub fn utc(wall_micros: u64) -> String {
    let seconds = wall_micros / 1_000_000;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{}T{hour:02}:{minute:02}:{second:02}Z", date(seconds / 86_400))
}

fn date(days: u64) -> String {
    let (year, month, day) = civil(days);
    format!("{year}-{month:02}-{day:02}")
}

/// Returns the date of a day, counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(20_778), (2026, 11, 21));
    }
}
