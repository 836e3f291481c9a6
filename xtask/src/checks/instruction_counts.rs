//! Instruction counts of the hot operations, measured by callgrind and compared with a committed
//! baseline. Unlike times, they do not depend on the load of the machine.
//!
//! A count depends on the compiler. A count also depends a little on the processor, because the C
//! library chooses `memcpy` and `memcmp` by it. So a count may exceed its baseline by `TOLERANCE`,
//! and counts are not compared with a baseline of another compiler.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::ScopedJoinHandle;

use crate::checkout::file_tree;
use crate::tools::built_programs::released_program;
use crate::tools::check_steps::{CheckCounts, StepOutcome};

/// Path of the baseline.
const BASELINE: &str = "docs/lab/instruction-counts.txt";
/// Key shapes that are counted.
const SHAPES: [&str; 4] = ["random", "category-id", "path", "url"];
const KEYS: &str = "100000";
const OPERATIONS: [&str; 11] = [
    "hit",
    "missing",
    "hot",
    "half",
    "multi-hit",
    "multi-missing",
    "seek",
    "scan",
    "put",
    "flush",
    "compact",
];
const REPEATS: u64 = 10_000;
/// Workloads that are counted with the advisor on and off.
const WORKLOADS: [&str; 5] = ["uniform", "zipfian", "hits", "misses", "turning"];
const GETS: &str = "60000";
/// Largest allowed ratio of instructions with the advisor to instructions without it.
const ADVISED_TOLERANCE: f64 = 1.02;
/// Largest allowed ratio of a count to its baseline.
const TOLERANCE: f64 = 1.03;
/// Ratio to the baseline below which the baseline should be lowered.
const SLACK: f64 = 0.90;

/// One line of the baseline: an operation and its instructions.
type CountRow = (String, u64);
/// A workload, and its instructions without and with the advisor.
type AdvisedRow = (&'static str, u64, u64);

/// Counts every operation and compares with the baseline, or writes a new baseline.
/// REQUIRES: the release build exists.
pub fn instructions(write: bool) -> StepOutcome {
    if !responds("valgrind") {
        return StepOutcome::skip(
            "instruction counts: no `valgrind` on the PATH (Debian: `apt-get install valgrind`)",
        );
    }
    let compiler = compiler();
    let text = std::fs::read_to_string(file_tree::root().join(BASELINE)).unwrap_or_default();
    let (made_with, baseline) = parse(&text);
    if !write && made_with != compiler {
        return StepOutcome::skip(format!(
            "instruction counts: {BASELINE} was made with {made_with}, this is {compiler}; \
             `cargo xtask instructions --write` makes a new one"
        ));
    }
    let folder = std::env::temp_dir().join(format!("umbel-hot-{}", std::process::id()));
    let made = std::fs::create_dir_all(&folder);
    let counted = match made {
        Ok(()) => count_all(&folder, !write),
        Err(error) => Err(format!("{}: {error}", folder.display())),
    };
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    match counted {
        Err(message) => {
            println!("{message}");
            StepOutcome::of(false)
        }
        Ok((rows, _)) if write => StepOutcome::of(write_baseline(&compiler, &rows)),
        Ok((rows, advised)) => {
            let mut outcome = compare(&baseline, &rows);
            outcome.add(compare_advised(&advised));
            outcome
        }
    }
}

/// Counts every operation with keys of every shape and, if `advised`, the workloads with the
/// advisor. Counts run in parallel, each on its own store, because each count keeps one processor
/// busy.
fn count_all(folder: &Path, advised: bool) -> Result<(Vec<CountRow>, Vec<AdvisedRow>), String> {
    std::thread::scope(|scope| {
        let advised = advised.then(|| scope.spawn(|| count_advised(&folder.join("advised"))));
        let counting =
            SHAPES.map(|shape| scope.spawn(move || count_shape(&folder.join(shape), shape)));
        let rows = counting.map(joined).into_iter().collect::<Result<Vec<_>, _>>()?.concat();
        let advised = advised.map(joined).transpose()?.unwrap_or_default();
        Ok((rows, advised))
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn fill(store: &Path, shape: &str) -> Result<(), String> {
    let filled = Command::new(released_program("hot_operations"))
        .arg("fill")
        .arg(store)
        .args([shape, KEYS])
        .status();
    match filled.is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(format!("`hot_operations fill` failed for {shape} keys")),
    }
}

/// Counts the workloads without and with the advisor.
fn count_advised(store: &Path) -> Result<Vec<AdvisedRow>, String> {
    let program = released_program("hot_operations");
    fill(store, SHAPES[0])?;
    let one = |workload: &str, setting: &str| {
        let words = ["advised", &store.to_string_lossy(), SHAPES[0], KEYS];
        let words = words.into_iter().chain([workload, setting, GETS]);
        callgrind(&program, &words.collect::<Vec<_>>())
    };
    let counted = WORKLOADS
        .map(|workload| Ok((workload, one(workload, "plain")?, one(workload, "advised")?)));
    counted.into_iter().collect()
}

/// Checks that the advisor costs no more instructions than it can save.
fn compare_advised(counted: &[AdvisedRow]) -> StepOutcome {
    let mut outcome = StepOutcome::default();
    for &(workload, plain, advised) in counted {
        let ratio = advised as f64 / plain.max(1) as f64;
        let passes = ratio <= ADVISED_TOLERANCE;
        let CheckCounts { passed, failed } = &mut outcome.counts;
        *(if passes { passed } else { failed }) += 1;
        println!("   advised {workload:18} {ratio:7.3} of what plain filters take{}", mark(passes));
    }
    outcome
}

fn count_shape(store: &Path, shape: &str) -> Result<Vec<CountRow>, String> {
    let program = released_program("hot_operations");
    fill(store, shape)?;
    let keys = count(&program, store, shape, "nothing")?;
    let mut rows = Vec::new();
    for operation in OPERATIONS {
        let all = count(&program, store, shape, operation)?;
        // A scan makes no keys, and the entries of a table are made beforehand.
        let makes = !["scan", "flush", "compact"].contains(&operation);
        let each = all.saturating_sub(if makes { keys } else { 0 }) / REPEATS;
        rows.push((format!("{shape} {operation}"), each));
    }
    Ok(rows)
}

/// Returns the instructions of the measured function for `operation`.
fn count(program: &Path, store: &Path, shape: &str, operation: &str) -> Result<u64, String> {
    let (store, repeats) = (store.to_string_lossy(), REPEATS.to_string());
    callgrind(program, &["count", &store, shape, KEYS, operation, &repeats])
}

/// Runs `hot_operations` under callgrind and returns the instructions of the measured function.
fn callgrind(program: &Path, words: &[&str]) -> Result<u64, String> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*hot*measured*")
        .arg(program)
        .args(words);
    let output = command.output().map_err(|error| format!("valgrind did not start: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    collected
        .filter(|_| output.status.success())
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| format!("callgrind counted nothing for {}: {text}", words.join(" ")))
}

/// Parses a baseline into its compiler and rows. Lines that start with `#` are comments.
fn parse(text: &str) -> (String, Vec<CountRow>) {
    let mut compiler = String::new();
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match line.split_once(": ") {
            Some(("compiler", name)) => compiler = name.to_string(),
            Some((operation, number)) => {
                rows.extend(number.parse().ok().map(|number| (operation.to_string(), number)));
            }
            None => {}
        }
    }
    (compiler, rows)
}

fn compare(baseline: &[CountRow], rows: &[CountRow]) -> StepOutcome {
    let mut outcome = StepOutcome::default();
    let mut lower = 0;
    for (operation, now) in rows {
        let allowed = baseline.iter().find(|(name, _)| name == operation).map(|(_, count)| *count);
        let passes = allowed.is_some_and(|count| *now as f64 <= count as f64 * TOLERANCE);
        let CheckCounts { passed, failed } = &mut outcome.counts;
        *(if passes { passed } else { failed }) += 1;
        let before = allowed.map_or("no baseline".to_string(), |count| count.to_string());
        println!("   {operation:26} {now:7} (baseline {before}){}", mark(passes));
        lower += u64::from(allowed.is_some_and(|count| (*now as f64) < count as f64 * SLACK));
    }
    if lower > 0 {
        println!("   {lower} operations got cheaper: lower the baseline by --write");
    }
    outcome
}

fn mark(passes: bool) -> &'static str {
    if passes { "" } else { "  TOO MANY" }
}

fn write_baseline(compiler: &str, rows: &[CountRow]) -> bool {
    let mut text = format!(
        "# Instructions of one operation, {KEYS} keys of 16 to 46 bytes with values of 100 bytes, \
         everything cached,\n# counted by callgrind without what making the keys takes. `cargo \
         xtask test` fails where one\n# takes over 3 % more; `cargo xtask instructions --write` \
         writes this file.\ncompiler: {compiler}\n"
    );
    for (operation, count) in rows {
        text.push_str(&format!("{operation}: {count}\n"));
    }
    print!("{text}");
    match std::fs::write(file_tree::root().join(BASELINE), text) {
        Ok(()) => true,
        Err(error) => {
            println!("could not write {BASELINE}: {error}");
            false
        }
    }
}

fn responds(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Returns the compiler's version and target architecture.
fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    let version = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    format!("{} {}", version.unwrap_or_default(), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn baseline_is_parsed_and_compared() {
        let (compiler, rows) = parse("# comment\ncompiler: rustc 1\nrandom hit: 100\nx y: many\n");
        assert_eq!(compiler, "rustc 1");
        assert_eq!(rows, [("random hit".to_string(), 100)]);
        let now = |count| [("random hit".to_string(), count)];
        assert_eq!(compare(&rows, &now(103)).counts, CheckCounts { passed: 1, failed: 0 });
        assert_eq!(compare(&rows, &now(104)).counts, CheckCounts { passed: 0, failed: 1 });
        // A new operation needs a baseline of its own.
        let other = [("random new".to_string(), 1)];
        assert_eq!(compare(&rows, &other).counts, CheckCounts { passed: 0, failed: 1 });
    }
}
