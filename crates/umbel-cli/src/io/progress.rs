//! [`Progress`]: progress of long work on standard error. A terminal shows a bar; a pipe gets a
//! line every few seconds. Work that ends sooner prints nothing.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use umbel_env::Clock;

use crate::io::output::note;

/// Time between two plain lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Unit of the progress count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of input.
    Bytes,
    /// Operations.
    Operations,
}

/// Progress of one long task.
pub struct Progress {
    name: String,
    unit: Unit,
    total: Option<u64>,
    bar: Option<ProgressBar>,
    clock: Arc<dyn Clock>,
    started: Duration,
    line_due: Duration,
}

impl Progress {
    /// Starts the progress of a task called `name` that ends at `total` units, if the total is
    /// known.
    pub fn new(name: &str, unit: Unit, total: Option<u64>, clock: &Arc<dyn Clock>) -> Progress {
        let started = clock.now();
        let bar = io::stderr().is_terminal().then(|| progress_bar(name, unit, total));
        Progress {
            name: name.to_string(),
            unit,
            total,
            bar,
            clock: Arc::clone(clock),
            started,
            line_due: started + LINE_INTERVAL,
        }
    }

    /// Time since the task began.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().saturating_sub(self.started)
    }

    /// Sets the number of finished units, with a message that is built only when it is shown.
    pub fn set(&mut self, done: u64, message: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(message());
            return;
        }
        let now = self.clock.now();
        if now < self.line_due {
            return;
        }
        self.line_due = now + LINE_INTERVAL;
        note(&self.text(done, now.saturating_sub(self.started), &message()));
    }

    fn text(&self, done: u64, elapsed: Duration, message: &str) -> String {
        let share = match self.total {
            Some(total) if total > 0 => {
                format!(" {:.0} %,", 100.0 * done.min(total) as f64 / total as f64)
            }
            _ => String::new(),
        };
        let done = match self.unit {
            Unit::Bytes => format!("{} read", crate::text::numbers::bytes(done)),
            Unit::Operations => format!("finished {} ops", crate::text::numbers::grouped(done)),
        };
        let seconds = elapsed.as_secs();
        let message = if message.is_empty() { String::new() } else { format!(", {message}") };
        format!("... {}:{share} {done} in {seconds} s{message}", self.name)
    }

    /// Removes the progress bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}

fn progress_bar(name: &str, unit: Unit, total: Option<u64>) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::new_spinner(),
    };
    let template = match (unit, total.is_some()) {
        (Unit::Bytes, true) => "{prefix} [{bar:30}] {bytes}/{total_bytes} {msg} {eta} left",
        (Unit::Bytes, false) => "{prefix} {spinner} {bytes} {msg}",
        (Unit::Operations, true) => "{prefix:16} [{bar:30}] {human_pos}/{human_len} {msg}",
        (Unit::Operations, false) => "{prefix:16} {spinner} {human_pos} {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_prefix(name.to_string());
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbel::Env;

    #[test]
    fn plain_progress_lines_state_work_done() {
        let clock = Env::system().clock;
        let progress = Progress::new("words.txt", Unit::Bytes, Some(2048), &clock);
        assert_eq!(
            progress.text(1024, Duration::from_secs(6), "1,000 keys"),
            "... words.txt: 50 %, 1.0 KiB read in 6 s, 1,000 keys"
        );
        let progress = Progress::new("readrandom", Unit::Operations, None, &clock);
        assert_eq!(
            progress.text(1_500_000, Duration::from_secs(5), ""),
            "... readrandom: finished 1,500,000 ops in 5 s"
        );
    }
}
