//! Report of the campaign of backups into object stores.

use std::fs;
use std::process::Command;

use crate::checkout::file_tree;
use crate::object_stores::campaign_options::CampaignOptions;
use crate::object_stores::store_kind::StoreKind;
use crate::tools::check_steps::{CheckCounts, StepOutcome};

/// Columns of the report after the name of the store and the commit, in the order of the checks.
const COLUMNS: [&str; 5] = ["probe", "kills", "store kills", "new bytes only", "restore"];

/// Stores that no registry serves in a usable form, with the reason.
const NOT_USED: [(&str, &str); 1] = [(
    "an emulator of Google Cloud Storage",
    "none speaks the XML protocol: fake-gcs-server (PyPI, 0.1.1) answers 400 to `PUT`, \
     gcp-storage-emulator (PyPI, 2026.7.19) answers 501 to a list",
)];

/// Results of the checks of one store.
#[derive(Debug)]
pub struct StoreResult {
    kind: StoreKind,
    /// Name of a check, and its result.
    checks: Vec<(&'static str, Result<String, String>)>,
    left_out: Vec<(&'static str, &'static str)>,
    skip: Option<String>,
}

impl StoreResult {
    /// Creates a result without checks.
    pub fn new(kind: StoreKind) -> StoreResult {
        StoreResult { kind, checks: Vec::new(), left_out: Vec::new(), skip: None }
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
        let skipped = self.skip.iter().map(|reason| format!("{}: {reason}", self.kind.name()));
        StepOutcome { counts, skipped: skipped.collect() }
    }

    fn row(&self, commit: &str) -> String {
        let cell = |column: &&str| {
            let checked = self.checks.iter().find(|(check, _)| check == column);
            let left_out = self.left_out.iter().find(|(check, _)| check == column);
            let cell = match (checked, &self.skip, left_out) {
                (Some((_, Ok(text))), ..) => text.clone(),
                (Some((_, Err(reason))), ..) => format!("**failed**: {reason}"),
                (None, Some(reason), _) => format!("skipped: {reason}"),
                (None, None, Some((_, reason))) => format!("not tried: {reason}"),
                (None, None, None) => "–".to_string(),
            };
            // A text of several lines, or with a bar, would end the row.
            cell.replace('\n', " ").replace('|', "/")
        };
        let cells: Vec<String> = COLUMNS.iter().map(cell).collect();
        format!("| {} | {commit} | {} |", self.kind.name(), cells.join(" | "))
    }
}

/// Writes the report of today. Rows of stores without a result stay as an earlier run wrote them.
pub fn write(results: &[StoreResult], options: &CampaignOptions) -> Result<(), String> {
    let date = line_of("date", &["-u", "+%Y-%m-%d"]);
    let commit = line_of("git", &["rev-parse", "--short", "HEAD"]);
    let path = file_tree::root().join(format!("docs/lab/objects-{date}.md"));
    // Without a report of today no row is kept.
    let earlier = fs::read_to_string(&path).unwrap_or_default();
    let command = options.command();
    let text = format!(
        "# Backups into object stores, {date}\n\nThe last run was `{command}` at commit {commit} \
         with {}, in the build of the tests. Each row names the commit of its own run.\n\n{}\n\
         ## Not used\n\n{}",
        processor(),
        table(results, &commit, &earlier),
        NOT_USED.map(|(name, reason)| format!("- {name}: {reason}\n")).concat()
    );
    fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the table: rows of these results, and rows of an earlier report for all other stores.
fn table(results: &[StoreResult], commit: &str, earlier: &str) -> String {
    let header = format!("| store | commit | {} |", COLUMNS.join(" | "));
    let kept = earlier.split_once(&header).map_or("", |(_, rows)| rows);
    let mut text = format!("{header}\n|{}\n", "---|".repeat(COLUMNS.len() + 2));
    for kind in StoreKind::ALL {
        let row = results.iter().find(|result| result.kind == kind).map(|r| r.row(commit));
        let begin = format!("| {} | ", kind.name());
        let row = row.or_else(|| kept.lines().find(|l| l.starts_with(&begin)).map(String::from));
        if let Some(row) = row {
            text.push_str(&row);
            text.push('\n');
        }
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    fn result(kind: StoreKind, probe: Result<&str, &str>) -> StoreResult {
        let mut result = StoreResult::new(kind);
        result.note("probe", probe.map(String::from).map_err(String::from));
        result
    }

    #[test]
    fn rows_of_other_stores_stay() {
        let moto = result(StoreKind::Moto, Ok("3 of 3 suitable"));
        let mut directory = result(StoreKind::Directory, Ok("3 of 3 suitable"));
        directory.leave_out("store kills", "it has no process");
        let first = table(&[moto, directory], "1111111", "");
        let again = result(StoreKind::Moto, Err("two\nlines | and a bar"));
        let second = table(&[again], "2222222", &format!("# A report\n\n{first}\n## Not used\n"));
        let lines: Vec<&str> = second.lines().collect();
        assert_eq!(lines.len(), 4, "{second}");
        assert_eq!(
            lines[2],
            "| a directory | 1111111 | 3 of 3 suitable | – | not tried: it has no process | – | – |"
        );
        assert!(
            lines[3].contains("| 2222222 | **failed**: two lines / and a bar | – |"),
            "{second}"
        );
    }

    #[test]
    fn rows_of_another_table_are_dropped() {
        let earlier = "| store | probe |\n|---|---|\n| a directory | 3 of 3 suitable |\n";
        let mut azurite = StoreResult::new(StoreKind::Azurite);
        azurite.skip("`node` is missing".into());
        let text = table(&[azurite], "1111111", earlier);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.contains("| skipped: `node` is missing |"), "{text}");
    }
}
