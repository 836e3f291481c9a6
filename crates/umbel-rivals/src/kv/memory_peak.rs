//! Measures the memory of an engine in a separate process, so that memory that other engines left
//! in the allocator does not count.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use umbel_lab::engine::{Engine, EngineSettings, Result, Store};
use umbel_lab::measure::pause;

use crate::kv::key_population::Population;
use crate::kv::kv_arguments::KvArguments;
use crate::kv::phase_runner;

/// Peaks of resident memory in bytes, without the memory that the process had before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryPeak {
    /// Peak during the random fill of memory that belongs to no file.
    pub fill_own: u64,
    /// Peak during the random fill, with mapped pages of files, which the kernel can reclaim.
    pub fill_all: u64,
    /// Peak while everything is read after reopening, of memory that belongs to no file.
    pub read_own: u64,
    /// Peak while everything is read after reopening, with mapped pages of files.
    pub read_all: u64,
}

/// Interval between two readings of the kernel's figures.
const INTERVAL: Duration = Duration::from_millis(5);

/// Returns the resident bytes that belong to no file, and all resident bytes.
fn resident() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |head: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(head));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    let own = bytes("RssAnon:");
    (own, own + bytes("RssFile:") + bytes("RssShmem:"))
}

/// Does some work and returns how far both figures rose above `base`.
fn peaks((own, all): (u64, u64), work: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
    let stop = AtomicBool::new(false);
    let (done, peak) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut peak = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let (own, all) = resident();
                peak = (peak.0.max(own), peak.1.max(all));
                pause(INTERVAL);
            }
            let (own, all) = resident();
            (peak.0.max(own), peak.1.max(all))
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        (done, watcher.join())
    });
    done?;
    let peak = peak.map_err(|_| "the watcher panicked")?;
    Ok((peak.0.saturating_sub(own), peak.1.saturating_sub(all)))
}

/// Part of the work, done in a process that does nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryPart {
    /// Fills an empty store at random, settles and closes it.
    Fill,
    /// Opens the store and reads everything in it twice.
    Read,
}

impl MemoryPart {
    fn name(self) -> &'static str {
        match self {
            MemoryPart::Fill => "fill",
            MemoryPart::Read => "read",
        }
    }

    /// Parses the engine and the part of a word like `umbel:fill`.
    pub fn parse(word: &str) -> Option<(&str, MemoryPart)> {
        let (engine, part) = word.split_once(':')?;
        [MemoryPart::Fill, MemoryPart::Read]
            .into_iter()
            .find(|p| p.name() == part)
            .map(|part| (engine, part))
    }
}

/// Does a part of the work in this process, in a folder that exists. Returns two peaks of resident
/// memory without what was resident before: bytes that belong to no file, and all bytes.
pub fn measure_here(
    engine: Engine,
    part: MemoryPart,
    population: Population,
    settings: &EngineSettings,
    at: &Path,
) -> Result<(u64, u64)> {
    let names = if part == MemoryPart::Fill { population.keys.shuffled() } else { Vec::new() };
    peaks(resident(), || {
        let store: Box<dyn Store> = (engine.open)(at, settings)?;
        match part {
            MemoryPart::Fill => {
                phase_runner::fill(&*store, population.keys, &names)?;
                phase_runner::settle(&*store, at)?;
            }
            MemoryPart::Read => {
                phase_runner::warm_up(&*store, population)?;
            }
        }
        store.close()
    })
}

impl MemoryPeak {
    /// Returns the peaks as JSON.
    pub fn json(&self) -> Value {
        json!({
            "fill_own_bytes": self.fill_own,
            "fill_with_mapped_bytes": self.fill_all,
            "read_own_bytes": self.read_own,
            "read_with_mapped_bytes": self.read_all,
        })
    }
}

/// Measures memory in child processes of the same program, which keep the store in `folder`.
pub fn measure_in_child(
    program: &Path,
    engine: &str,
    shape: &str,
    arguments: &KvArguments,
    folder: &Path,
) -> Result<MemoryPeak> {
    std::fs::create_dir_all(folder)?;
    let part = |part| {
        measure_part(
            program,
            &format!("{engine}:{}", MemoryPart::name(part)),
            shape,
            arguments,
            folder,
        )
    };
    let both = part(MemoryPart::Fill).and_then(|fill| Ok((fill, part(MemoryPart::Read)?)));
    std::fs::remove_dir_all(folder)?;
    let ((fill_own, fill_all), (read_own, read_all)) = both?;
    Ok(MemoryPeak { fill_own, fill_all, read_own, read_all })
}

fn measure_part(
    program: &Path,
    part: &str,
    shape: &str,
    arguments: &KvArguments,
    folder: &Path,
) -> Result<(u64, u64)> {
    let mut command = Command::new(program);
    let numbers = [
        ("--num", arguments.num),
        ("--key", arguments.key as u64),
        ("--value", arguments.value as u64),
        ("--cache-mib", arguments.cache_mib),
        ("--memtable-mib", arguments.memtable_mib),
    ];
    for (flag, number) in numbers {
        command.arg(flag).arg(number.to_string());
    }
    command.arg("--bloom-bits").arg(arguments.bloom_bits.to_string());
    command.args(["--memory-of", part, "--shape", shape, "--stores"]).arg(folder);
    let output = command.output()?;
    parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
        let reason = String::from_utf8_lossy(&output.stderr);
        format!("its memory could not be measured: {}", reason.trim()).into()
    })
}

/// Formats the line that a child prints and [`measure_in_child`] parses.
pub fn line((own, all): (u64, u64)) -> String {
    format!("{own} {all}")
}

fn parse(text: &str) -> Option<(u64, u64)> {
    let (own, all) = text.lines().last()?.split_once(' ')?;
    Some((own.parse().ok()?, all.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_peak_is_measured() {
        let base = resident();
        assert!(base.0 > 0 && base.1 >= base.0);
        let (own, all) = peaks(base, || {
            let block = vec![1_u8; 64 << 20];
            pause(4 * INTERVAL);
            drop(std::hint::black_box(block));
            Ok(())
        })
        .unwrap();
        assert!(own >= 60 << 20, "{own}");
        assert!(all >= own / 2);
    }

    #[test]
    fn output_of_child_is_parsed() {
        assert_eq!(parse(&line((1, 2))), Some((1, 2)));
        assert_eq!(parse("no memory"), None);
        assert_eq!(MemoryPart::parse("umbel:read"), Some(("umbel", MemoryPart::Read)));
        assert_eq!(MemoryPart::parse("umbel"), None);
    }
}
