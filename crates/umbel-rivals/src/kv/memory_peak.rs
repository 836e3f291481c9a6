//! What an engine takes of memory, measured in a process of its own: whatever other engines left
//! in the allocator would count otherwise.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use umbel_lab::engine::{Engine, Result, Settings, Store};
use umbel_lab::measure::pause;

use crate::arguments::Arguments;
use crate::population::Population;
use crate::work;

/// The most that was resident, less what the process had before, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// While filling at random: memory that belongs to no file.
    pub fill_own: u64,
    /// While filling at random: with mapped pages of files, which the kernel may take back.
    pub fill_all: u64,
    /// After reopening, while everything was read: memory that belongs to no file.
    pub read_own: u64,
    /// After reopening, while everything was read: with mapped pages of files.
    pub read_all: u64,
}

/// How often the kernel is asked.
const INTERVAL: Duration = Duration::from_millis(5);

/// Resident bytes that belong to no file, and all.
fn resident() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bytes = |head: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(head));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
    };
    let own = bytes("RssAnon:");
    (own, own + bytes("RssFile:") + bytes("RssShmem:"))
}

/// Does some work and says how far both figures rose above `base`.
fn peaks((own, all): (u64, u64), work: impl FnOnce() -> Result<()>) -> Result<(u64, u64)> {
    let stop = AtomicBool::new(false);
    let (done, most) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let (own, all) = resident();
                most = (most.0.max(own), most.1.max(all));
                pause(INTERVAL);
            }
            let (own, all) = resident();
            (most.0.max(own), most.1.max(all))
        });
        let done = work();
        stop.store(true, Ordering::Relaxed);
        (done, watcher.join())
    });
    done?;
    let most = most.map_err(|_| "the watcher panicked")?;
    Ok((most.0.saturating_sub(own), most.1.saturating_sub(all)))
}

/// A part of the work, done in a process that does nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// An empty store is filled at random, settled and closed.
    Fill,
    /// The store is opened and everything in it read twice.
    Read,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Fill => "fill",
            Part::Read => "read",
        }
    }

    /// The engine and the part of a word like `umbel:fill`.
    pub fn parse(word: &str) -> Option<(&str, Part)> {
        let (engine, part) = word.split_once(':')?;
        [Part::Fill, Part::Read].into_iter().find(|p| p.name() == part).map(|part| (engine, part))
    }
}

/// Does a part of the work in this process, in a folder that exists. The most that was resident
/// meanwhile, less what was before: bytes that belong to no file, and all.
pub fn here(
    engine: Engine,
    part: Part,
    population: Population,
    settings: &Settings,
    at: &Path,
) -> Result<(u64, u64)> {
    let names = if part == Part::Fill { population.keys.shuffled() } else { Vec::new() };
    peaks(resident(), || {
        let store: Box<dyn Store> = (engine.open)(at, settings)?;
        match part {
            Part::Fill => {
                work::fill(&*store, population.keys, &names)?;
                work::settle(&*store, at)?;
            }
            Part::Read => {
                work::warm_up(&*store, population)?;
            }
        }
        store.close()
    })
}

impl Memory {
    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "fill_own_bytes": self.fill_own,
            "fill_with_mapped_bytes": self.fill_all,
            "read_own_bytes": self.read_own,
            "read_with_mapped_bytes": self.read_all,
        })
    }
}

/// Asks other processes of the same program, which keep the store in `folder`.
pub fn elsewhere(
    program: &Path,
    engine: &str,
    shape: &str,
    asked: &Arguments,
    folder: &Path,
) -> Result<Memory> {
    std::fs::create_dir_all(folder)?;
    let part =
        |part| one_part(program, &format!("{engine}:{}", Part::name(part)), shape, asked, folder);
    let both = part(Part::Fill).and_then(|fill| Ok((fill, part(Part::Read)?)));
    std::fs::remove_dir_all(folder)?;
    let ((fill_own, fill_all), (read_own, read_all)) = both?;
    Ok(Memory { fill_own, fill_all, read_own, read_all })
}

fn one_part(
    program: &Path,
    part: &str,
    shape: &str,
    asked: &Arguments,
    folder: &Path,
) -> Result<(u64, u64)> {
    let mut command = Command::new(program);
    let numbers = [
        ("--num", asked.num),
        ("--key", asked.key as u64),
        ("--value", asked.value as u64),
        ("--cache-mib", asked.cache_mib),
        ("--memtable-mib", asked.memtable_mib),
    ];
    for (flag, number) in numbers {
        command.arg(flag).arg(number.to_string());
    }
    command.arg("--bloom-bits").arg(asked.bloom_bits.to_string());
    command.args(["--memory-of", part, "--shape", shape, "--stores"]).arg(folder);
    let output = command.output()?;
    parse(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
        let reason = String::from_utf8_lossy(&output.stderr);
        format!("its memory could not be measured: {}", reason.trim()).into()
    })
}

/// What [`one_part`] reads and the other process prints.
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
    fn a_peak_that_is_gone_is_seen() {
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
    fn what_is_said_is_understood() {
        assert_eq!(parse(&line((1, 2))), Some((1, 2)));
        assert_eq!(parse("no memory"), None);
        assert_eq!(Part::parse("umbel:read"), Some(("umbel", Part::Read)));
        assert_eq!(Part::parse("umbel"), None);
    }
}
