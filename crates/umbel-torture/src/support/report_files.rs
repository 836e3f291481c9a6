//! The report of a run as a Markdown page and as JSON.

use std::path::{Path, PathBuf};
use std::process::Command;

use umbel::Env;

use crate::support::campaign_tally::{CampaignResult, json_string};
use crate::support::scratch_directory;

/// Facts that are recorded before the campaigns.
#[derive(Debug)]
pub struct RunEnvironment {
    date: String,
    commit: String,
    load: String,
    place: PathBuf,
    file_system: String,
}

impl RunEnvironment {
    /// Detects the machine and the checkout. `place` is the folder of stores on a real disk.
    pub fn detect(place: &Path) -> RunEnvironment {
        let load = line_of("/proc/loadavg", "").unwrap_or_default();
        let load = load.split(' ').next().unwrap_or_default().to_string();
        let file_system =
            scratch_directory::file_system(place).unwrap_or_else(|| "unknown".to_string());
        let place = place.to_path_buf();
        RunEnvironment { date: today(), commit: commit(), load, place, file_system }
    }
}

/// Writes the page to `path` and the JSON beside it.
pub fn write(
    path: &Path,
    outcomes: &[CampaignResult],
    begun: &RunEnvironment,
    seed: u64,
    small: bool,
) -> Result<(), String> {
    let facts = [
        ("date", begun.date.clone()),
        ("processor", processor()),
        ("load average at the beginning", begun.load.clone()),
        ("system", kernel()),
        ("file system of the stores on a real disk", begun.file_system.clone()),
        ("commit", begun.commit.clone()),
        ("seed", seed.to_string()),
        ("part", if small { "small" } else { "full" }.to_string()),
        ("faults inside the product", has_failpoints().to_string()),
        ("arguments", std::env::args().skip(1).collect::<Vec<_>>().join(" ")),
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
    let facts: Vec<String> = facts
        .iter()
        .map(|(name, value)| format!("{}: {}", json_string(name), json_string(value)))
        .collect();
    let campaigns: Vec<String> = outcomes.iter().map(CampaignResult::json).collect();
    let json =
        format!("{{{}, \"campaigns\": [\n{}\n]}}\n", facts.join(", "), campaigns.join(",\n"));
    let describe = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let paths = paths(&begun.place);
    std::fs::write(path, strip_paths(&page, &paths)).map_err(describe)?;
    std::fs::write(path.with_extension("json"), strip_paths(&json, &paths)).map_err(describe)
}

/// Returns paths of this machine that error texts may contain, and the text that replaces each of
/// them.
fn paths(place: &Path) -> Vec<(PathBuf, &'static str)> {
    let here = std::env::current_dir().unwrap_or_default();
    let program = std::env::current_exe().unwrap_or_default();
    let program = program.parent().unwrap_or(Path::new("")).to_path_buf();
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    // Longer paths first, because some contain others.
    vec![
        (place.canonicalize().unwrap_or_default(), "SCRATCH"),
        (place.to_path_buf(), "SCRATCH"),
        (program, "TARGET"),
        (here, "CHECKOUT"),
        (home, "HOME"),
        (std::env::temp_dir(), "TEMPORARY"),
    ]
}

fn strip_paths(text: &str, paths: &[(PathBuf, &'static str)]) -> String {
    let mut text = text.to_string();
    for (path, stands_for) in paths.iter().filter(|(path, _)| path.components().count() > 1) {
        text = text.replace(&*path.to_string_lossy(), stands_for);
    }
    text
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

/// Returns the version of the kernel as numbers, without a suffix of its builder.
fn kernel() -> String {
    let release = line_of("/proc/sys/kernel/osrelease", "").unwrap_or_default();
    let numbers = release.split(|c: char| !c.is_ascii_digit() && c != '.').next();
    format!("{} {}", std::env::consts::OS, numbers.unwrap_or_default())
}

/// Returns the commit, and whether the sources differ from it.
fn commit() -> String {
    let git = |arguments: &[&str]| Command::new("git").args(arguments).output();
    let Ok(output) = git(&["rev-parse", "HEAD"]) else { return "unknown".to_string() };
    let commit = String::from_utf8_lossy(&output.stdout).trim().to_string();
    let sources = ["diff", "--quiet", "HEAD", "--", ":/crates", ":/Cargo.toml", ":/Cargo.lock"];
    let is_clean = git(&sources).is_ok_and(|output| output.status.success());
    if is_clean { commit } else { format!("{commit} and changes that are not committed") }
}

/// Returns whether the program has the failpoints of the product.
fn has_failpoints() -> &'static str {
    match cfg!(feature = "failpoints") {
        true => "built in (feature `failpoints`), activated by the campaigns that hunt them",
        false => "not built in",
    }
}

/// Returns the bytes of available memory, if the system reports them.
pub fn free_memory() -> Option<u64> {
    let line = line_of("/proc/meminfo", "MemAvailable")?;
    line.split(' ').next()?.parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// Returns the current date, UTC.
fn today() -> String {
    let seconds = Env::system().clock.wall_micros() / 1_000_000;
    // Converts days to a civil date by Hinnant's algorithm.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_no_path_of_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("place");
        std::fs::create_dir_all(&place).unwrap();
        let tally = crate::support::campaign_tally::CampaignTally::new("example");
        let home = std::env::var("HOME").unwrap_or_default();
        let here = std::env::current_dir().unwrap().display().to_string();
        tally.violation(format!("{}/a {here}/b {home}/c", place.display()), "example".into());
        tally.note(format!("kept in {}", folder.path().display()));
        let page = folder.path().join("report.md");
        let begun = RunEnvironment::detect(&place);
        write(&page, &[tally.end()], &begun, 1, true).unwrap();
        for file in [page.clone(), page.with_extension("json")] {
            let text = std::fs::read_to_string(file).unwrap();
            assert!(text.contains("SCRATCH/a CHECKOUT/b"), "{text}");
            assert!(!text.contains(&here), "{text}");
            assert!(home.len() < 2 || !text.contains(&home), "{text}");
            assert!(!text.contains(&*std::env::temp_dir().to_string_lossy()), "{text}");
            for fact in ["date", "processor", "system", "commit", "seed", "part"] {
                assert!(text.contains(fact), "{fact}: {text}");
            }
        }
    }
}
