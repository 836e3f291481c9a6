//! Runs the test suites that clients of event stores publish in their registries, against the
//! release binary. An unlisted failure fails the command.

use crate::checkout::file_tree;
use crate::suites::known_failures::{Comparison, KnownFailures, compare};
use crate::suites::test_results::TestResults;
use crate::tools::check_steps::{CheckCounts, StepOutcome};

pub mod go_suite;
pub mod known_failures;
pub mod published_sources;
pub mod rust_suite;
pub mod supervised_server;
pub mod test_certificates;
pub mod test_results;

/// Outcome of an attempt to run a suite.
#[derive(Debug)]
pub enum SuiteRun {
    /// The suite ran.
    Ran(TestResults),
    /// The suite is not published, or this machine cannot build it.
    Unavailable(String),
    /// The server or the program that runs the tests failed.
    Broken(String),
}

/// A client with the command that runs its suite.
pub struct Suite {
    /// Name of the client in the command and in the name of its list.
    pub client: &'static str,
    run: fn() -> SuiteRun,
}

/// The suites, one for each client.
pub const SUITES: [Suite; 5] = [
    Suite { client: "python", run: || SuiteRun::Unavailable(PYTHON.to_string()) },
    Suite { client: "go", run: go_suite::run_go_suite },
    Suite { client: "rust", run: rust_suite::run_rust_suite },
    Suite { client: "node", run: || SuiteRun::Unavailable(NODE.to_string()) },
    Suite { client: "java", run: || SuiteRun::Unavailable(JAVA.to_string()) },
];

const PYTHON: &str = "neither the wheel nor the source package of kurrentdbclient 1.3.5 on PyPI \
                      contains its tests; esdbclient 1.1.7 does not either";
const NODE: &str = "the package @kurrent/kurrentdb-client 1.3.1 of npm does not contain its tests";
const JAVA: &str = "Maven Central has no tests artifact of io.kurrent:kurrentdb-client 1.1.0";

/// Returns whether a client of this name is in the list of suites.
pub fn has_suite(client: &str) -> bool {
    SUITES.iter().any(|suite| suite.client == client)
}

impl Suite {
    /// Runs the suite and compares its failures with the committed list. The suite is skipped if
    /// it is not available.
    pub fn run(&self) -> StepOutcome {
        let results = match (self.run)() {
            SuiteRun::Ran(results) => results,
            SuiteRun::Unavailable(reason) => {
                return StepOutcome::skip(format!("the {} suite: {reason}", self.client));
            }
            SuiteRun::Broken(reason) => {
                println!("FAILED {}: {reason}", self.client);
                return StepOutcome::of(false);
            }
        };
        match self.known_failures() {
            Ok(known) => report(self.client, compare(&results, &known)),
            Err(complaint) => {
                println!("FAILED {complaint}");
                StepOutcome::of(false)
            }
        }
    }

    fn known_failures(&self) -> Result<KnownFailures, String> {
        let path = format!("xtask/suites/{}-known-failures.txt", self.client);
        let text = std::fs::read_to_string(file_tree::root().join(&path));
        let text = text.map_err(|error| format!("{path}: {error}"))?;
        KnownFailures::parse(&text).map_err(|complaint| format!("{path}: {complaint}"))
    }
}

/// Prints a comparison. Returns its counts, in which a listed failure neither passed nor failed.
fn report(client: &str, comparison: Comparison) -> StepOutcome {
    for (id, cause) in &comparison.listed {
        println!("   listed failure: {id}: {cause}");
    }
    for id in &comparison.listed_passed {
        println!("   listed, but passes: {id}");
    }
    for id in &comparison.listed_absent {
        println!("   listed, but did not run: {id}");
    }
    for id in &comparison.unlisted {
        println!("   FAILED, unlisted: {id}");
    }
    let failed = comparison.unlisted.len();
    println!(
        "   {client}: {} passed, {} listed failures, {failed} unlisted failures, {} listed but \
         passed, {} skipped",
        comparison.passed,
        comparison.listed.len(),
        comparison.listed_passed.len(),
        comparison.skipped.len()
    );
    let skipped = comparison.skipped;
    let skipped = skipped.into_iter().map(|(id, reason)| format!("{client} {id}: {reason}"));
    StepOutcome {
        counts: CheckCounts { passed: comparison.passed, failed: failed as u64 },
        skipped: skipped.collect(),
    }
}
