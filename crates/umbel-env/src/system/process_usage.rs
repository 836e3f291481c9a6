//! Usage of the machine by the process, and the space of a disk.

use std::path::Path;
#[cfg(target_os = "linux")]
use std::{fs, time::Duration};

use crate::env::{DiskSpace, ProcessUsage};

/// Returns what the process uses; `None` where `/proc` is missing.
#[cfg(target_os = "linux")]
pub(super) fn process_usage() -> Option<ProcessUsage> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    let page_bytes = rustix::param::page_size() as u64;
    let mut usage = usage_of(&stat, &machine, ticks_per_second, page_bytes)?;
    // The listing has one descriptor of its own open.
    usage.open_files = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64;
    Some(usage)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn process_usage() -> Option<ProcessUsage> {
    None
}

/// Reads the fields of `/proc/self/stat`, and of `/proc/stat` the time when the machine started.
#[cfg(target_os = "linux")]
fn usage_of(
    stat: &str,
    machine: &str,
    ticks_per_second: u64,
    page_bytes: u64,
) -> Option<ProcessUsage> {
    // The name of the program is in parentheses, and may contain some. The field after it is the
    // third one.
    let (_, fields) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let duration = |ticks: u64| Duration::from_secs_f64(ticks as f64 / ticks_per_second as f64);
    let booted = machine.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(ProcessUsage {
        cpu_time: duration(field(14)?.checked_add(field(15)?)?),
        threads: field(20)?,
        started: Duration::from_secs(booted.trim().parse().ok()?) + duration(field(22)?),
        virtual_bytes: field(23)?,
        resident_bytes: field(24)?.checked_mul(page_bytes)?,
        open_files: 0,
    })
}

/// Returns the space of the file system that contains `path`.
pub(super) fn disk_space(path: &Path) -> Option<DiskSpace> {
    let space = rustix::fs::statvfs(path).ok()?;
    Some(DiskSpace {
        total_bytes: space.f_blocks.checked_mul(space.f_frsize)?,
        available_bytes: space.f_bavail.checked_mul(space.f_frsize)?,
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_with_parentheses() {
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 9 0 12345 \
                    4096000 300 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0";
        let usage = usage_of(stat, "cpu 1 2\nbtime 1000\n", 100, 4096).unwrap();
        assert_eq!(usage.cpu_time, Duration::from_secs(3));
        assert_eq!(usage.threads, 9);
        assert_eq!(usage.started, Duration::from_millis(1_123_450));
        assert_eq!((usage.virtual_bytes, usage.resident_bytes), (4_096_000, 300 * 4096));
        for damaged in ["", "7 (a", "7 (a) S", &stat[..60]] {
            assert_eq!(usage_of(damaged, "btime 1000\n", 100, 4096), None, "{damaged}");
        }
        assert_eq!(usage_of(stat, "cpu 1 2\n", 100, 4096), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no /proc")]
    fn usage_and_space_of_this_process_are_known() {
        let (usage, space) = (process_usage().unwrap(), disk_space(Path::new("/")).unwrap());
        assert!(usage.threads >= 1 && usage.open_files >= 3 && usage.resident_bytes > 1 << 18);
        assert!(usage.virtual_bytes >= usage.resident_bytes, "{usage:?}");
        assert!(space.total_bytes >= space.available_bytes && space.total_bytes > 0, "{space:?}");
        assert_eq!(disk_space(Path::new("/no/such/path")), None);
    }
}
