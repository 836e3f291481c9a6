//! Results of a campaign: counts, violations with the commands that replay them, and duration.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel::Env;

/// Maximum number of violations of one campaign whose text is kept; all violations are counted.
const VIOLATIONS_KEPT_MAX: usize = 40;
/// Maximum number of violations that are printed before the campaign ends.
const VIOLATIONS_SHOWN_MAX: u64 = 5;
/// Interval between two progress lines with counts.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// A promise that did not hold.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Description of the violation.
    pub what: String,
    /// Argument of `--replay` that repeats the violation.
    pub replay: String,
}

/// Results of a running campaign, shared by its threads.
#[derive(Debug)]
pub struct CampaignTally {
    name: String,
    begun: Duration,
    inner: Mutex<TallyState>,
}

#[derive(Debug, Default, Clone)]
struct TallyState {
    counts: BTreeMap<String, u64>,
    notes: Vec<String>,
    violations: Vec<Violation>,
    violation_count: u64,
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
    last_line: Duration,
}

/// Results of a finished campaign.
#[derive(Debug, Clone)]
pub struct CampaignResult {
    /// Name of the campaign.
    pub name: String,
    /// Counts, by name.
    pub counts: BTreeMap<String, u64>,
    /// Findings that are no violations: measured rates, times, lists.
    pub notes: Vec<String>,
    /// The first violations.
    pub violations: Vec<Violation>,
    /// Number of all violations.
    pub violation_count: u64,
    /// Number of scenarios without a violation.
    pub passed: u64,
    /// Number of scenarios with a violation.
    pub failed: u64,
    /// Skipped parts, with the reason.
    pub skipped: Vec<String>,
    /// Duration of the campaign in seconds.
    pub seconds: f64,
}

impl CampaignTally {
    /// Creates the results of a campaign that begins now.
    pub fn new(name: &str) -> CampaignTally {
        println!("{name}: begins");
        let begun = now();
        let inner = Mutex::new(TallyState { last_line: begun, ..TallyState::default() });
        CampaignTally { name: name.to_string(), begun, inner }
    }

    /// Prints the progress of the campaign.
    pub fn print_progress(&self, what: &str) {
        let mut inner = self.inner();
        inner.last_line = now();
        println!(
            "  {} after {:.0} s: {what}",
            self.name,
            (inner.last_line - self.begun).as_secs_f64()
        );
    }

    /// Prints the counts if nothing was printed for a while.
    fn print_counts(&self, inner: &mut TallyState) {
        let now = now();
        if now - inner.last_line < PROGRESS_INTERVAL {
            return;
        }
        inner.last_line = now;
        let done = format!("{} scenarios", inner.passed + inner.failed);
        let counts = inner.counts.iter().map(|(what, count)| format!("{what}: {count}"));
        let counts = [done].into_iter().chain(counts).collect::<Vec<_>>().join(", ");
        println!("  {} after {:.0} s: {counts:.200}", self.name, (now - self.begun).as_secs_f64());
    }

    fn inner(&self) -> MutexGuard<'_, TallyState> {
        self.inner.lock().ignore_poison()
    }

    /// Adds to a count.
    pub fn add(&self, what: &str, count: u64) {
        let mut inner = self.inner();
        match inner.counts.get_mut(what) {
            Some(sum) => *sum += count,
            None => {
                inner.counts.insert(what.to_string(), count);
            }
        }
        self.print_counts(&mut inner);
    }

    /// Returns a count.
    pub fn count(&self, what: &str) -> u64 {
        self.inner().counts.get(what).copied().unwrap_or(0)
    }

    /// Raises a count to a value, if the value is larger.
    pub fn max(&self, what: &str, value: u64) {
        let mut inner = self.inner();
        let largest = inner.counts.entry(what.to_string()).or_insert(0);
        *largest = (*largest).max(value);
    }

    /// Adds a finding.
    pub fn note(&self, note: String) {
        self.inner().notes.push(note);
    }

    /// Adds a violation.
    pub fn violation(&self, what: String, replay: String) {
        let mut inner = self.inner();
        inner.violation_count += 1;
        if inner.violation_count <= VIOLATIONS_SHOWN_MAX {
            println!("  {}: VIOLATION: {what}", self.name);
        }
        if inner.violations.len() < VIOLATIONS_KEPT_MAX {
            inner.violations.push(Violation { what, replay });
        }
    }

    /// Number of violations so far.
    pub fn violations(&self) -> u64 {
        self.inner().violation_count
    }

    /// Counts a finished scenario.
    pub fn scenario(&self, held: bool) {
        let mut inner = self.inner();
        if held {
            inner.passed += 1
        } else {
            inner.failed += 1
        }
        self.print_counts(&mut inner);
    }

    /// Records a skipped scenario.
    pub fn skip(&self, why: String) {
        self.inner().skipped.push(why);
    }

    /// Ends the campaign.
    pub fn end(self) -> CampaignResult {
        let inner = self.inner().clone();
        CampaignResult {
            name: self.name,
            counts: inner.counts,
            notes: inner.notes,
            violations: inner.violations,
            violation_count: inner.violation_count,
            passed: inner.passed,
            failed: inner.failed,
            skipped: inner.skipped,
            seconds: (now() - self.begun).as_secs_f64(),
        }
    }
}

impl CampaignResult {
    /// Formats the campaign as text.
    pub fn text(&self, program: &str) -> String {
        let mut out = format!(
            "{}: {} passed, {} failed, {} skipped, {} violations, {:.1} s\n",
            self.name,
            self.passed,
            self.failed,
            self.skipped.len(),
            self.violation_count,
            self.seconds
        );
        for (what, count) in &self.counts {
            out.push_str(&format!("  {what}: {count}\n"));
        }
        for note in &self.notes {
            out.push_str(&format!("  {note}\n"));
        }
        for why in &self.skipped {
            out.push_str(&format!("  SKIPPED: {why}\n"));
        }
        for violation in &self.violations {
            out.push_str(&format!("  VIOLATION: {}\n", violation.what));
            out.push_str(&format!("    replay: {program} --replay '{}'\n", violation.replay));
        }
        out
    }

    /// Formats the campaign as one JSON object.
    pub fn json(&self) -> String {
        let counts: Vec<String> = self
            .counts
            .iter()
            .map(|(what, count)| format!("{}: {count}", json_string(what)))
            .collect();
        let strings =
            |all: &[String]| all.iter().map(|s| json_string(s)).collect::<Vec<_>>().join(", ");
        let violations: Vec<String> =
            self.violations.iter().map(|v| format!("{} [{}]", v.what, v.replay)).collect();
        format!(
            "{{\"campaign\": {}, \"passed\": {}, \"failed\": {}, \"violations\": {}, \
             \"seconds\": {:.1}, \"counts\": {{{}}}, \"notes\": [{}], \"skipped\": [{}], \
             \"violation_texts\": [{}]}}",
            json_string(&self.name),
            self.passed,
            self.failed,
            self.violation_count,
            self.seconds,
            counts.join(", "),
            strings(&self.notes),
            strings(&self.skipped),
            strings(&violations)
        )
    }
}

/// Returns the time, for measurements.
pub fn now() -> Duration {
    // Each environment counts from a moment of its own, so one is shared.
    static SYSTEM_ENV: OnceLock<Env> = OnceLock::new();
    SYSTEM_ENV.get_or_init(Env::system).clock.now()
}

/// Formats a JSON string.
pub fn json_string(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
