//! Limits of the process: memory and open files.
//!
//! The memory limit is the least of the machine's memory, the limits of the process's control group
//! and of the groups above it (versions 1 and 2), and the limit of the address space.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::env::{DiskSpace, ProcessUsage, Resources};
use crate::system::process_usage;

/// Mount point of control groups.
const GROUPS: &str = "/sys/fs/cgroup";
/// File in which Linux says which processes get huge pages.
#[cfg(target_os = "linux")]
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// Soft limit of open files to request, which is more than any store needs. Some systems report no
/// upper limit, but refuse large numbers.
const OPEN_FILES_WANTED: u64 = 1 << 20;

/// The limits of the process, which each call reads from the system.
#[derive(Debug)]
pub(super) struct SystemResources;

impl Resources for SystemResources {
    fn memory_bytes(&self) -> Option<u64> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let groups = group_limits(&groups, |path| fs::read_to_string(path).ok());
        let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
        let address_space = getrlimit(Resource::As).current;
        [groups, machine, address_space].into_iter().flatten().min()
    }

    fn open_files_max(&self) -> Option<u64> {
        let limit = getrlimit(Resource::Nofile);
        let current = limit.current?;
        let wanted = limit.maximum.map_or(OPEN_FILES_WANTED, |most| most.min(OPEN_FILES_WANTED));
        if wanted > current {
            let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
            // If the system refuses, the current limit stays.
            let _ = setrlimit(Resource::Nofile, raised);
        }
        getrlimit(Resource::Nofile).current
    }

    #[cfg(target_os = "linux")]
    fn huge_pages(&self) -> Option<bool> {
        match fs::read_to_string(HUGE_PAGES) {
            Ok(text) => Some(allows_huge_pages(&text)),
            // A kernel that was built without them.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(false),
            Err(_) => None,
        }
    }

    fn process_usage(&self) -> Option<ProcessUsage> {
        process_usage::process_usage()
    }

    fn disk_space(&self, path: &Path) -> Option<DiskSpace> {
        process_usage::disk_space(path)
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[expect(unsafe_code, reason = "no crate of the workspace table reads the usage of one thread")]
    fn context_switches(&self) -> Option<u64> {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
        // SAFETY: the call fills its buffer completely, or fails.
        let usage = unsafe {
            match libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) {
                0 => usage.assume_init(),
                _ => return None,
            }
        };
        u64::try_from(usage.ru_nvcsw).ok()
    }

    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    #[expect(unsafe_code, reason = "a function of the C library without a safe face")]
    fn trim_memory(&self) {
        unsafe extern "C" {
            /// Function of the GNU C library, whose allocator the standard library uses.
            fn malloc_trim(pad: usize) -> std::ffi::c_int;
        }
        // SAFETY: it may be called at any time from any thread; memory in use stays as it is.
        let _ = unsafe { malloc_trim(0) };
    }
}

/// Whether a process that requests huge pages gets some. The active one of the words in `enabled`
/// is in brackets.
#[cfg(target_os = "linux")]
fn allows_huge_pages(enabled: &str) -> bool {
    !enabled.contains("[never]")
}

/// Returns the memory of the machine according to `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the least memory limit of the groups in `/proc/self/cgroup` and of the groups above
/// them.
fn group_limits(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let mut least: Option<u64> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(kinds), Some(group)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (root, name) = match kinds {
            "" if number == "0" => (PathBuf::from(GROUPS), "memory.max"),
            kinds if kinds.split(',').any(|kind| kind == "memory") => {
                (Path::new(GROUPS).join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut folder = root.join(group.trim_start_matches('/'));
        // Inside a container the path may be the host's. The existing part of it counts, the root
        // too.
        while folder.starts_with(&root) {
            let limit = read(&folder.join(name)).and_then(|text| text.trim().parse().ok());
            least = least.into_iter().chain(limit).min();
            if !folder.pop() {
                break;
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_control_group_limit_counts() {
        let read = |path: &Path| match path.to_str()? {
            "/sys/fs/cgroup/a/b/memory.max" => Some("max\n".into()),
            "/sys/fs/cgroup/a/memory.max" => Some("4096000\n".into()),
            "/sys/fs/cgroup/memory/c/memory.limit_in_bytes" => Some("9223372036854771712\n".into()),
            "/sys/fs/cgroup/memory/memory.limit_in_bytes" => Some("8192000\n".into()),
            _ => None,
        };
        assert_eq!(group_limits("0::/a/b\n", read), Some(4_096_000));
        assert_eq!(group_limits("3:cpu,memory:/c\n2:cpu:/x\n", read), Some(8_192_000));
        assert_eq!(group_limits("4:cpu:/a\nnonsense", read), None);
        assert_eq!(group_limits("0::/../../elsewhere", read), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn huge_pages_on_request_unless_disabled() {
        assert!(allows_huge_pages("[always] madvise never\n"));
        assert!(allows_huge_pages("always [madvise] never\n"));
        assert!(!allows_huge_pages("always madvise [never]\n"));
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn sleeping_thread_counts_a_context_switch() {
        let waits = || SystemResources.context_switches().expect("Linux says it");
        let before = waits();
        let (nobody, rings) = (std::sync::Mutex::new(()), std::sync::Condvar::new());
        let a_while = std::time::Duration::from_millis(1);
        drop(rings.wait_timeout(nobody.lock().unwrap(), a_while).unwrap());
        assert!(waits() > before);
    }

    #[test]
    fn machine_limits_are_known() {
        let text = "MemTotal:       24683516 kB\nMemFree:        1 kB\n";
        assert_eq!(total(text), Some(24_683_516 << 10));
        assert_eq!(total("MemTotal: much"), None);
        assert!(SystemResources.memory_bytes().is_none_or(|bytes| bytes > 1 << 20));
        assert!(SystemResources.open_files_max().is_none_or(|files| files > 8));
    }
}
