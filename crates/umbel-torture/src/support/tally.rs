//! What a campaign did and found: counts, violations with the command that replays each, seconds.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use umbel::Env;

/// Most violations of one campaign whose text is kept; all are counted.
const KEPT_MAX: usize = 40;
/// Most of them that are shown at once, before the campaign ends.
const SHOWN_MAX: u64 = 5;
/// How often a campaign that counts shows its counts.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// A promise that did not hold.
#[derive(Debug, Clone)]
pub struct Violation {
    /// What was seen, in a sentence.
    pub what: String,
    /// What `--replay` takes to see it again.
    pub replay: String,
}

/// What a campaign came to. Shared by its threads.
#[derive(Debug)]
pub struct Tally {
    name: String,
    begun: Duration,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default, Clone)]
struct Inner {
    counts: BTreeMap<String, u64>,
    notes: Vec<String>,
    violations: Vec<Violation>,
    violation_count: u64,
    passed: u64,
    failed: u64,
    skipped: Vec<String>,
    said: Duration,
}

/// A campaign that has ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The campaign.
    pub name: String,
    /// What was counted, by name.
    pub counts: BTreeMap<String, u64>,
    /// Findings that are no violations: measured rates, times, lists.
    pub notes: Vec<String>,
    /// The first violations.
    pub violations: Vec<Violation>,
    /// All of them.
    pub violation_count: u64,
    /// Scenarios without a violation.
    pub passed: u64,
    /// Scenarios with one.
    pub failed: u64,
    /// What was left out, with the reason.
    pub skipped: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

impl Tally {
    /// A campaign that begins now.
    pub fn new(name: &str) -> Tally {
        println!("{name}: begins");
        let begun = now();
        let inner = Mutex::new(Inner { said: begun, ..Inner::default() });
        Tally { name: name.to_string(), begun, inner }
    }

    /// Shows whoever waits how far the campaign is.
    pub fn say(&self, what: &str) {
        let mut inner = self.inner();
        inner.said = now();
        println!("  {} after {:.0} s: {what}", self.name, (inner.said - self.begun).as_secs_f64());
    }

    /// Shows the counts where nothing was shown for a while.
    fn say_counts(&self, inner: &mut Inner) {
        let now = now();
        if now - inner.said < SAY_EVERY {
            return;
        }
        inner.said = now;
        let done = format!("{} scenarios", inner.passed + inner.failed);
        let counts = inner.counts.iter().map(|(what, count)| format!("{what}: {count}"));
        let counts = [done].into_iter().chain(counts).collect::<Vec<_>>().join(", ");
        println!("  {} after {:.0} s: {counts:.200}", self.name, (now - self.begun).as_secs_f64());
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts.
    pub fn add(&self, what: &str, count: u64) {
        let mut inner = self.inner();
        match inner.counts.get_mut(what) {
            Some(sum) => *sum += count,
            None => {
                inner.counts.insert(what.to_string(), count);
            }
        }
        self.say_counts(&mut inner);
    }

    /// What was counted so far.
    pub fn count(&self, what: &str) -> u64 {
        self.inner().counts.get(what).copied().unwrap_or(0)
    }

    /// Keeps the largest.
    pub fn max(&self, what: &str, value: u64) {
        let mut inner = self.inner();
        let most = inner.counts.entry(what.to_string()).or_insert(0);
        *most = (*most).max(value);
    }

    /// Adds a finding.
    pub fn note(&self, note: String) {
        self.inner().notes.push(note);
    }

    /// Adds a violation.
    pub fn violation(&self, what: String, replay: String) {
        let mut inner = self.inner();
        inner.violation_count += 1;
        if inner.violation_count <= SHOWN_MAX {
            println!("  {}: VIOLATION: {what}", self.name);
        }
        if inner.violations.len() < KEPT_MAX {
            inner.violations.push(Violation { what, replay });
        }
    }

    /// How many violations there were so far.
    pub fn violations(&self) -> u64 {
        self.inner().violation_count
    }

    /// Ends a scenario.
    pub fn scenario(&self, held: bool) {
        let mut inner = self.inner();
        if held {
            inner.passed += 1
        } else {
            inner.failed += 1
        }
        self.say_counts(&mut inner);
    }

    /// Leaves a scenario out.
    pub fn skip(&self, why: String) {
        self.inner().skipped.push(why);
    }

    /// Ends the campaign.
    pub fn end(self) -> Outcome {
        let inner = self.inner().clone();
        Outcome {
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

impl Outcome {
    /// The campaign as text.
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

    /// The campaign as one JSON object.
    pub fn json(&self) -> String {
        let counts: Vec<String> =
            self.counts.iter().map(|(what, count)| format!("{}: {count}", quoted(what))).collect();
        let strings = |all: &[String]| all.iter().map(|s| quoted(s)).collect::<Vec<_>>().join(", ");
        let violations: Vec<String> =
            self.violations.iter().map(|v| format!("{} [{}]", v.what, v.replay)).collect();
        format!(
            "{{\"campaign\": {}, \"passed\": {}, \"failed\": {}, \"violations\": {}, \
             \"seconds\": {:.1}, \"counts\": {{{}}}, \"notes\": [{}], \"skipped\": [{}], \
             \"violation_texts\": [{}]}}",
            quoted(&self.name),
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

/// Time, for measuring.
pub fn now() -> Duration {
    // Each world counts from a moment of its own.
    static WORLD: OnceLock<Env> = OnceLock::new();
    WORLD.get_or_init(Env::system).clock.now()
}

/// A JSON string.
pub fn quoted(text: &str) -> String {
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
