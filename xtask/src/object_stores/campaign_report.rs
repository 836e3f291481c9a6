//! Report of the campaign of backups into object stores.

use std::fs;
use std::process::Command;

use crate::checkout::file_tree;
use crate::tools::check_steps::{CheckCounts, StepOutcome};

/// Columns of the report, in the order of the checks.
const COLUMNS: [&str; 5] = ["probe", "kills", "store kills", "new bytes only", "restore"];

/// Stores that no registry serves in a usable form, with the reason.
const NOT_USED: [(&str, &str); 2] = [
    (
        "an emulator of Google Cloud Storage",
        "none speaks the XML protocol: fake-gcs-server (PyPI, 0.1.1) answers 400 to `PUT`, \
         gcp-storage-emulator (PyPI, 2026.7.19) answers 501 to a list",
    ),
    ("Ceph RGW", "not run by this command in this version"),
];

/// Results of the checks of one store.
#[derive(Debug)]
pub struct StoreResult {
    name: String,
    /// Name of a check, and its result.
    checks: Vec<(&'static str, Result<String, String>)>,
    left_out: Vec<(&'static str, &'static str)>,
    skip: Option<String>,
}

impl StoreResult {
    /// Creates a result without checks.
    pub fn new(name: &str) -> StoreResult {
        StoreResult { name: name.to_string(), checks: Vec::new(), left_out: Vec::new(), skip: None }
    }

    /// Notes why the store could not be used.
    pub fn skip(&mut self, reason: String) {
        self.skip = Some(reason);
    }

    /// Notes the result of a check, and prints it.
    pub fn note(&mut self, check: &'static str, result: Result<String, String>) {
        match &result {
            Ok(text) => println!("   {check}: {text}"),
            Err(reason) => println!("   {check} FAILED: {reason}"),
        }
        self.checks.push((check, result));
    }

    /// Notes why a check does not suit this store.
    pub fn leave_out(&mut self, check: &'static str, reason: &'static str) {
        self.left_out.push((check, reason));
    }

    /// Returns the counts of the checks.
    pub fn outcome(&self) -> StepOutcome {
        let passed = self.checks.iter().filter(|(_, result)| result.is_ok()).count() as u64;
        let counts = CheckCounts { passed, failed: self.checks.len() as u64 - passed };
        let skipped = self.skip.iter().map(|reason| format!("{}: {reason}", self.name));
        StepOutcome { counts, skipped: skipped.collect() }
    }

    fn row(&self) -> String {
        let cell = |column: &&str| {
            let checked = self.checks.iter().find(|(check, _)| check == column);
            match (checked, &self.skip) {
                (Some((_, Ok(text))), _) => text.clone(),
                (Some((_, Err(reason))), _) => format!("**failed**: {reason}"),
                (None, Some(_)) => "skipped".to_string(),
                (None, None) => "–".to_string(),
            }
        };
        let cells: Vec<String> = COLUMNS.iter().map(cell).collect();
        format!("| {} | {} |\n", self.name, cells.join(" | "))
    }
}

/// Writes the report of today.
pub fn write(results: &[StoreResult], refused: &str) -> Result<(), String> {
    let date = line_of("date", &["-u", "+%Y-%m-%d"]);
    let commit = line_of("git", &["rev-parse", "--short", "HEAD"]);
    let mut text = format!(
        "# Backups into object stores, {date}\n\n`cargo xtask objects` at commit {commit} with \
         {}, in the build of the tests.\n\n| store | {} |\n|---|{}\n",
        processor(),
        COLUMNS.join(" | "),
        "---|".repeat(COLUMNS.len())
    );
    results.iter().for_each(|result| text.push_str(&result.row()));
    text.push_str(&format!("\nA store that ignores conditions: {refused}.\n\n## Not used\n\n"));
    for (name, reason) in NOT_USED {
        text.push_str(&format!("- {name}: {reason}\n"));
    }
    for result in results {
        if let Some(reason) = &result.skip {
            text.push_str(&format!("- {}: {reason}\n", result.name));
        }
        for (check, reason) in &result.left_out {
            text.push_str(&format!("- {check} of {}: {reason}\n", result.name));
        }
    }
    let path = file_tree::root().join(format!("docs/lab/objects-{date}.md"));
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the output of a program in the root of the checkout, without spaces at its ends.
pub fn line_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(file_tree::root()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    text.unwrap_or_default()
}

/// Returns the number of this machine's cores and the name of its processor.
pub fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = text.lines().find_map(|line| line.strip_prefix("model name"));
    let count = text.matches("\nprocessor").count() + 1;
    let name = named.unwrap_or("an unknown processor").trim_start_matches(['\t', ' ', ':']);
    format!("{count} cores of {name}")
}
