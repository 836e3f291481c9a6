//! The model campaign: the engine's own test of random operations against a `BTreeMap`, with many
//! seeds and long runs, in the release build.
//!
//! The operations and the model are those of `crates/umbel/tests/suite/model`; this module only
//! chooses the number of runs, and counts them.

use std::process::Command;

use crate::support::campaign_tally::CampaignTally;

/// Seeds for tests in memory without threads; tests with threads get a quarter of these seeds,
/// tests on a real file system an eighth.
pub const SEEDS: u64 = 200;
/// Operations with each seed.
pub const OPERATIONS: u64 = 10_000;
/// Seeds between two progress lines.
const SEEDS_PER_PART: u64 = 20;
/// Common part of the tests' names.
const TEST_NAMES: &str = "equals_a_map";

/// Runs the given number of seeds, with the given number of operations each.
pub fn campaign(seeds: u64, operations: u64) -> CampaignTally {
    let tally = CampaignTally::new("model");
    let Some(cargo) = std::env::var_os("CARGO") else {
        tally.skip("model: needs cargo; run `cargo xtask torture` or `cargo run`".to_string());
        return tally;
    };
    tally.add("operations with each seed", operations);
    for first in (0..seeds).step_by(SEEDS_PER_PART as usize) {
        let part = SEEDS_PER_PART.min(seeds - first);
        let mut command = Command::new(&cargo);
        command.args([
            "test",
            "--quiet",
            "--release",
            "-p",
            "umbel",
            "--test",
            "suite",
            TEST_NAMES,
        ]);
        command.args(["--", "--test-threads", "2"]);
        command.env("UMBEL_MODEL_SEEDS", part.to_string());
        command.env("UMBEL_MODEL_OPS", operations.to_string());
        command.env("UMBEL_MODEL_FIRST", first.to_string());
        run_part(&mut command, first, part, &tally);
        tally.print_progress(&format!("{} of {seeds} seeds", first + part));
    }
    tally
}

fn run_part(command: &mut Command, first: u64, part: u64, tally: &CampaignTally) {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => {
            let what = format!("cargo could not be started: {error}");
            tally.violation(what, format!("model {first} {part}"));
            return tally.scenario(false);
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let passed = passed(&text);
    let held = output.status.success() && passed > 0;
    tally.scenario(held);
    if held {
        tally.add("tests passed", passed);
        tally.add("seeds", part + part.div_ceil(4) + part.div_ceil(8));
        return;
    }
    // The test's panic message has the replay command.
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let all: Vec<&str> = text.lines().chain(errors.lines()).collect();
    let replay = all.iter().find_map(|line| line.strip_prefix("replay: "));
    let panic = all.iter().skip_while(|line| !line.contains("panicked at")).take(3);
    let what = panic.copied().collect::<Vec<_>>().join(" ");
    let what =
        if what.is_empty() { format!("the test ended with {}", output.status) } else { what };
    tally.violation(what, format!("model {first} {part}; or {}", replay.unwrap_or("nothing")));
}

/// Returns the number of passed tests that the harness printed.
fn passed(text: &str) -> u64 {
    let results = text.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    results.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_of_the_harness_are_counted() {
        let text = "running 3 tests\n...\ntest result: ok. 3 passed; 0 failed; 0 ignored\n";
        assert_eq!(passed(text), 3);
        assert_eq!(passed("test result: FAILED. 2 passed; 1 failed"), 0);
    }
}
