//! The report of a run as a page and as JSON.

use std::path::Path;
use std::process::Command;

use umbel::Env;

use crate::report::{Outcome, quoted};

/// Writes the page to `path` and the JSON beside it.
pub fn write(path: &Path, outcomes: &[Outcome], seed: u64, small: bool) -> Result<(), String> {
    let facts = [
        ("date", today()),
        ("processor", processor()),
        ("system", line_of("/proc/version", "").unwrap_or_default()),
        ("commit", commit()),
        ("seed", seed.to_string()),
        ("part", if small { "small" } else { "full" }.to_string()),
        ("program", std::env::args().collect::<Vec<_>>().join(" ")),
    ];
    let mut page = String::from("# Torture campaigns\n\n| fact | value |\n|---|---|\n");
    for (name, value) in &facts {
        page.push_str(&format!("| {name} | {value} |\n"));
    }
    page.push_str(
        "\n| campaign | passed | failed | violations | seconds |\n|---|---|---|---|---|\n",
    );
    for outcome in outcomes {
        page.push_str(&format!(
            "| {} | {} | {} | {} | {:.1} |\n",
            outcome.name, outcome.passed, outcome.failed, outcome.violation_count, outcome.seconds
        ));
    }
    for outcome in outcomes {
        let text = outcome.text("umbel-torture");
        page.push_str(&format!("\n## {}\n\n```text\n{text}```\n", outcome.name));
    }
    let facts: Vec<String> =
        facts.iter().map(|(name, value)| format!("{}: {}", quoted(name), quoted(value))).collect();
    let campaigns: Vec<String> = outcomes.iter().map(Outcome::json).collect();
    let json =
        format!("{{{}, \"campaigns\": [\n{}\n]}}\n", facts.join(", "), campaigns.join(",\n"));
    let said = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    std::fs::write(path, page).map_err(said)?;
    std::fs::write(path.with_extension("json"), json).map_err(said)
}

fn line_of(path: &str, start: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(start))?;
    Some(line.split_once(": ").map_or(line, |(_, value)| value).trim().to_string())
}

fn processor() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let model = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_string());
    format!("{model}, {cores} cores")
}

fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
    text.unwrap_or_else(|_| "unknown".to_string())
}

/// The date of today, UTC.
fn today() -> String {
    let seconds = Env::system().clock.wall_micros() / 1_000_000;
    // Days to a civil date by Hinnant's algorithm.
    let days = seconds as i64 / 86_400 + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_part = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_part + 2) / 5 + 1;
    let month = if month_part < 10 { month_part + 3 } else { month_part - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}
