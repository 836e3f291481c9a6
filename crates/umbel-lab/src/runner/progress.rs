//! Progress on standard error, with the remaining time: a bar on a terminal, a line from time to
//! time in a log file.

use std::cell::RefCell;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use umbel_env::Clock;

/// Interval between two lines of a log.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Progress of a run.
pub struct Progress {
    clock: Arc<dyn Clock>,
    bar: Option<ProgressBar>,
    experiment: String,
    began: Duration,
    done: u64,
    total: u64,
    /// Time of the last line, and the last message.
    last_line: RefCell<(Duration, String)>,
}

impl Progress {
    /// Creates the display.
    pub fn new(clock: &Arc<dyn Clock>) -> Progress {
        Progress {
            clock: Arc::clone(clock),
            bar: None,
            experiment: String::new(),
            began: Duration::ZERO,
            done: 0,
            total: 0,
            last_line: RefCell::default(),
        }
    }

    /// Begins an experiment with this number of repetitions.
    pub fn begin(&mut self, experiment: &str, total: u64) {
        self.finish();
        self.experiment = experiment.to_string();
        (self.began, self.done, self.total) = (self.clock.now(), 0, total);
        if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(total);
            let template = "{prefix} {bar:24} {pos}/{len}, {eta} left  {wide_msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_prefix(self.experiment.clone());
            bar.enable_steady_tick(Duration::from_millis(500));
            self.bar = Some(bar);
        }
    }

    /// Sets the current activity.
    pub fn set_message(&self, doing: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(doing.to_string());
            return;
        }
        let now = self.clock.now();
        let mut last_line = self.last_line.borrow_mut();
        if now.saturating_sub(last_line.0) < LINE_INTERVAL && !last_line.1.is_empty() {
            return;
        }
        *last_line = (now, doing.to_string());
        let left = self.left().map_or_else(String::new, |left| format!(", {left} left"));
        let Progress { experiment, done, total, .. } = self;
        let _ = writeln!(std::io::stderr(), "{experiment}: {done} of {total}{left}: {doing}");
    }

    /// Writes a permanent line.
    pub fn note(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => {
                // A closed standard error does not stop the run.
                let _ = writeln!(std::io::stderr(), "{text}");
            }
        }
    }

    /// Adds repetitions that were not planned.
    pub fn add(&mut self, more: u64) {
        self.total += more;
        if let Some(bar) = &self.bar {
            bar.inc_length(more);
        }
    }

    /// Counts a finished repetition.
    pub fn step(&mut self) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Returns the remaining time, estimated from the repetitions so far.
    fn left(&self) -> Option<String> {
        let elapsed = self.clock.now().saturating_sub(self.began).as_secs_f64();
        let left = self.total.saturating_sub(self.done) as f64;
        (self.done > 0).then(|| {
            let seconds = (elapsed / self.done as f64 * left).round() as u64;
            if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) }
        })
    }

    /// Ends the experiment.
    pub fn finish(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
