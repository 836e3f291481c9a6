//! Committed lists of tests that fail, and their comparison with the results of a run.

use std::collections::BTreeMap;

use crate::suites::test_results::{TestResults, Verdict};

/// Tests of one suite that fail, each with its cause.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KnownFailures {
    causes: BTreeMap<String, String>,
}

impl KnownFailures {
    /// Reads a list. A row is a test id, a tab and the cause; `#` begins a comment line.
    pub fn parse(text: &str) -> Result<KnownFailures, String> {
        let mut known = KnownFailures::default();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (id, cause) = line.split_once('\t').unwrap_or((line, ""));
            if cause.trim().is_empty() {
                let number = index + 1;
                return Err(format!("line {number}: `{id}` has no cause; write ID, tab, CAUSE"));
            }
            if known.causes.insert(id.to_string(), cause.trim().to_string()).is_some() {
                return Err(format!("line {}: `{id}` is listed twice; remove one", index + 1));
            }
        }
        Ok(known)
    }
}

/// Results of a run, sorted by what the list says about each test.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Number of tests that passed, listed ones included.
    pub passed: u64,
    /// Failed tests that are listed, with the cause.
    pub listed: Vec<(String, String)>,
    /// Failed tests that are not listed.
    pub unlisted: Vec<String>,
    /// Listed tests that passed: their rows can go.
    pub listed_passed: Vec<String>,
    /// Listed tests that did not run.
    pub listed_absent: Vec<String>,
    /// Skipped tests with the reason.
    pub skipped: Vec<(String, String)>,
}

/// Compares the results of a run with the list.
pub fn compare(results: &TestResults, known: &KnownFailures) -> Comparison {
    let mut comparison = Comparison::default();
    for (id, verdict) in results.by_id() {
        match (verdict, known.causes.get(id)) {
            (Verdict::Passed, cause) => {
                comparison.passed += 1;
                comparison.listed_passed.extend(cause.map(|_| id.clone()));
            }
            (Verdict::Failed, Some(cause)) => comparison.listed.push((id.clone(), cause.clone())),
            (Verdict::Failed, None) => comparison.unlisted.push(id.clone()),
            (Verdict::Skipped(reason), _) => comparison.skipped.push((id.clone(), reason.clone())),
        }
    }
    let absent = known.causes.keys().filter(|id| !results.by_id().contains_key(*id));
    comparison.listed_absent = absent.cloned().collect();
    comparison
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(rows: &[(&str, Verdict)]) -> TestResults {
        let mut results = TestResults::default();
        for (id, verdict) in rows {
            results.add(*id, verdict.clone());
        }
        results
    }

    #[test]
    fn only_an_unlisted_failure_is_unlisted() {
        let known =
            KnownFailures::parse("# list\na\tno cluster\nb\tno cluster\nz\tgone\n").unwrap();
        let run = results(&[
            ("a", Verdict::Failed),
            ("b", Verdict::Passed),
            ("c", Verdict::Failed),
            ("d", Verdict::Skipped("no docker".to_string())),
            ("e", Verdict::Passed),
        ]);
        let expected = Comparison {
            passed: 2,
            listed: vec![("a".to_string(), "no cluster".to_string())],
            unlisted: vec!["c".to_string()],
            listed_passed: vec!["b".to_string()],
            listed_absent: vec!["z".to_string()],
            skipped: vec![("d".to_string(), "no docker".to_string())],
        };
        assert_eq!(compare(&run, &known), expected);
    }

    #[test]
    fn a_row_without_a_cause_and_a_repeated_row_are_refused() {
        assert!(KnownFailures::parse("a\n").unwrap_err().starts_with("line 1: `a` has no cause"));
        assert!(KnownFailures::parse("a\t \n").unwrap_err().contains("no cause"));
        assert!(KnownFailures::parse("a\tx\na\ty\n").unwrap_err().starts_with("line 2"));
    }

    #[test]
    fn committed_lists_are_readable() {
        for list in [
            include_str!("../../suites/go-known-failures.txt"),
            include_str!("../../suites/rust-known-failures.txt"),
        ] {
            assert!(KnownFailures::parse(list).is_ok());
        }
    }
}
