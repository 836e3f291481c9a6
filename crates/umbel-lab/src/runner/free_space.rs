//! Checks for enough disk and memory before a run.

use std::path::Path;

use crate::experiment::ResourceNeeds;
use crate::experiment::lab_context::LabContext;
use crate::lab_error::LabError;

/// Fails if the work needs more than is available.
///
/// # Errors
/// [`LabError::System`] with both figures.
pub fn check(what: &str, needs: ResourceNeeds, lab: &LabContext<'_>) -> Result<(), LabError> {
    let memory = available_memory().or(lab.env.resources.memory_bytes());
    check_needs(what, needs, free_disk(lab.stores), memory, lab.stores)
}

fn check_needs(
    what: &str,
    needs: ResourceNeeds,
    disk: Option<u64>,
    memory: Option<u64>,
    stores: &Path,
) -> Result<(), LabError> {
    if let Some(free) = disk.filter(|free| *free < needs.disk_bytes) {
        return Err(LabError::System(format!(
            "{what} needs {} on the disk of {}, which has {} free; choose another directory with \
             --stores DIR, or measure less with --scale small",
            gibibytes(needs.disk_bytes),
            stores.display(),
            gibibytes(free)
        )));
    }
    if let Some(free) = memory.filter(|free| *free < needs.memory_bytes) {
        return Err(LabError::System(format!(
            "{what} needs {} of memory, and {} is available; end other programs, or measure less \
             with --scale small",
            gibibytes(needs.memory_bytes),
            gibibytes(free)
        )));
    }
    Ok(())
}

fn gibibytes(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 30) {
        small if small < 1.0 => format!("{:.0} MiB", small * 1024.0),
        large => format!("{large:.1} GiB"),
    }
}

fn free_disk(folder: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(folder).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Returns the kernel's estimate of memory that is available without swapping.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_space_is_reported_with_figures() {
        let needs = ResourceNeeds { disk_bytes: 3 << 30, memory_bytes: 600 << 20 };
        let judge = |disk, memory| check_needs("cold", needs, disk, memory, Path::new("/s"));
        assert_eq!(judge(Some(3 << 30), Some(600 << 20)), Ok(()));
        assert_eq!(judge(None, None), Ok(()));
        let error = judge(Some(1 << 30), None).expect_err("too little").to_string();
        assert!(error.contains("needs 3.0 GiB on the disk of /s, which has 1.0 GiB"), "{error}");
        let error = judge(None, Some(1 << 20)).expect_err("too little").to_string();
        assert!(error.contains("needs 600 MiB of memory, and 1 MiB"), "{error}");
    }
}
