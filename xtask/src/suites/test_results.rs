//! Results of single tests, read from the output of the programs that run them.

use std::collections::{BTreeMap, BTreeSet};

/// Result of one test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The test passed.
    Passed,
    /// The test failed or did not end.
    Failed,
    /// The test skipped itself, with the reason that it printed.
    Skipped(String),
}

/// Results of a suite's tests by id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestResults {
    verdicts: BTreeMap<String, Verdict>,
}

impl TestResults {
    /// Adds a result. A failure stays a failure.
    pub fn add(&mut self, id: impl Into<String>, verdict: Verdict) {
        let slot = self.verdicts.entry(id.into()).or_insert(Verdict::Passed);
        if *slot != Verdict::Failed {
            *slot = verdict;
        }
    }

    /// Adds the results of another run, with a prefix for each id.
    pub fn add_all(&mut self, prefix: &str, other: TestResults) {
        for (id, verdict) in other.verdicts {
            self.add(format!("{prefix}{id}"), verdict);
        }
    }

    /// Returns the results by id.
    pub fn by_id(&self) -> &BTreeMap<String, Verdict> {
        &self.verdicts
    }

    /// Returns whether no test ran.
    pub fn is_empty(&self) -> bool {
        self.verdicts.is_empty()
    }

    /// Removes tests that contain other tests, whose names continue after a `/`. A container that
    /// failed although each test in it passed stays: its own code failed.
    fn without_containers(self) -> TestResults {
        let containers: BTreeSet<String> = self.verdicts.keys().flat_map(|id| outer(id)).collect();
        let failed: BTreeSet<String> = self
            .verdicts
            .iter()
            .filter(|(_, verdict)| **verdict == Verdict::Failed)
            .flat_map(|(id, _)| outer(id))
            .collect();
        let mut kept = self.verdicts;
        kept.retain(|id, verdict| {
            !containers.contains(id) || (*verdict == Verdict::Failed && !failed.contains(id))
        });
        TestResults { verdicts: kept }
    }
}

/// Returns the names of the tests that contain this one.
fn outer(id: &str) -> Vec<String> {
    id.match_indices('/').map(|(at, _)| id[..at].to_string()).collect()
}

/// Reads the output of `go test -v`. A test without a result did not end, so it failed.
pub fn read_go_output(output: &str) -> TestResults {
    let mut results = TestResults::default();
    let mut running = BTreeSet::new();
    let mut current = String::new();
    let mut last_lines: BTreeMap<String, String> = BTreeMap::new();
    for line in output.lines() {
        let line = line.trim();
        if let Some((mark, name)) = line.strip_prefix("=== ").and_then(|rest| rest.split_once(' '))
        {
            current = name.trim().to_string();
            if mark == "RUN" {
                running.insert(current.clone());
            }
        } else if let Some((result, name)) =
            line.strip_prefix("--- ").and_then(|rest| rest.split_once(": "))
        {
            let name = name.split(" (").next().unwrap_or(name).to_string();
            running.remove(&name);
            let verdict = match result {
                "PASS" => Verdict::Passed,
                "SKIP" => {
                    let reason = last_lines.get(&name).cloned();
                    Verdict::Skipped(reason.unwrap_or_else(|| "no reason given".to_string()))
                }
                _ => Verdict::Failed,
            };
            results.add(name, verdict);
        } else if !line.is_empty() {
            last_lines.insert(current.clone(), without_source_line(line).to_string());
        }
    }
    for name in running {
        results.add(name, Verdict::Failed);
    }
    results.without_containers()
}

/// Reads the log of a Rust test. Its steps write a line `before STEP` and, unless they fail, a line
/// `Complete` or `passed`. A failed test without a failed step fails itself.
pub fn read_step_output(test: &str, output: &str) -> TestResults {
    let mut results = TestResults::default();
    let mut running: Option<String> = None;
    for line in output.lines() {
        // The names of modules precede the message.
        let message = line.rsplit(": ").next().unwrap_or(line).trim();
        if let Some(step) = message.strip_prefix("Before ").or(message.strip_prefix("before ")) {
            let step = step.strip_prefix("test ").unwrap_or(step);
            let step = step.trim_end_matches(['.', '…']).to_string();
            // The step before it wrote no end.
            if let Some(step) = running.replace(step) {
                results.add(format!("{test}/{step}"), Verdict::Passed);
            }
        } else if let Some(step) = running.take_if(|_| matches!(message, "Complete" | "passed")) {
            results.add(format!("{test}/{step}"), Verdict::Passed);
        }
    }
    if let Some(step) = running {
        results.add(format!("{test}/{step}"), Verdict::Failed);
    }
    let has_passed = output.lines().any(|line| line.starts_with("test result: ok. 1 passed"));
    results.add(test, if has_passed { Verdict::Passed } else { Verdict::Failed });
    results.without_containers()
}

/// Removes `FILE.go:LINE: ` before a message.
fn without_source_line(line: &str) -> &str {
    match line.split_once(".go:").and_then(|(_, rest)| rest.split_once(": ")) {
        Some((number, message)) if number.chars().all(|c| c.is_ascii_digit()) => message,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(results: &TestResults, wanted: &Verdict) -> Vec<String> {
        let found = results.by_id().iter().filter(|(_, verdict)| *verdict == wanted);
        found.map(|(id, _)| id.clone()).collect()
    }

    #[test]
    fn go_tests_are_counted_without_the_tests_that_contain_them() {
        let results = read_go_output(
            "=== RUN   TestA\n=== RUN   TestA/first\n=== RUN   TestA/second\n    \
             a_test.go:7: text\n--- FAIL: TestA (0.10s)\n    --- PASS: TestA/first (0.00s)\n    \
             --- FAIL: TestA/second (0.00s)\n=== RUN   TestB\n--- PASS: TestB (1.00s)\nFAIL\n",
        );
        assert_eq!(ids(&results, &Verdict::Passed), ["TestA/first", "TestB"]);
        assert_eq!(ids(&results, &Verdict::Failed), ["TestA/second"]);
    }

    #[test]
    fn a_go_test_whose_own_code_failed_is_a_failure() {
        let results = read_go_output(
            "=== RUN   TestA\n=== RUN   TestA/first\n--- FAIL: TestA (0.10s)\n    \
             --- PASS: TestA/first (0.00s)\n",
        );
        assert_eq!(ids(&results, &Verdict::Failed), ["TestA"]);
        assert_eq!(ids(&results, &Verdict::Passed), ["TestA/first"]);
    }

    #[test]
    fn steps_of_a_rust_test_are_read_from_its_log() {
        let begun = "running 1 test\n\
             2026 DEBUG integration::api::streams: tests/a.rs:1: Before test_a…\n\
             2026 DEBUG integration::api::streams: tests/a.rs:2: Complete\n\
             2026 DEBUG integration::api::streams: tests/a.rs:3: Before test test_b\n";
        let results = read_step_output("t", &format!("{begun}test t ... FAILED\n"));
        assert_eq!(ids(&results, &Verdict::Passed), ["t/test_a"]);
        assert_eq!(ids(&results, &Verdict::Failed), ["t/test_b"]);
        let end = "2026 DEBUG x: Complete\ntest t ... ok\n\ntest result: ok. 1 passed; 0 failed\n";
        let results = read_step_output("t", &format!("{begun}{end}"));
        assert_eq!(ids(&results, &Verdict::Passed), ["t/test_a", "t/test_b"]);
        assert!(ids(&results, &Verdict::Failed).is_empty());
        let results = read_step_output("t", &format!("{begun}2026 DEBUG x: Complete\npanicked\n"));
        assert_eq!(ids(&results, &Verdict::Failed), ["t"], "the test failed after its last step");
    }

    #[test]
    fn a_go_test_without_a_result_failed() {
        let results = read_go_output(
            "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n=== RUN   TestB/slow\n\
             panic: test timed out after 1m0s\n",
        );
        assert_eq!(ids(&results, &Verdict::Failed), ["TestB/slow"]);
    }

    #[test]
    fn the_reason_of_a_skipped_go_test_is_its_last_line() {
        let results = read_go_output(
            "=== RUN   TestA\n=== RUN   TestA/x\n    a_test.go:30: needs 25.1\n    \
             --- SKIP: TestA/x (0.00s)\n--- PASS: TestA (0.00s)\n",
        );
        let skipped = Verdict::Skipped("needs 25.1".to_string());
        assert_eq!(ids(&results, &skipped), ["TestA/x"]);
        assert!(ids(&results, &Verdict::Passed).is_empty());
    }
}
