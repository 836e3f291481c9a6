//! Takes what a subject measures in one round, with what speaks against it.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::outcome::{Cost, Repetition};

/// A figure at a point, measured once.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The series.
    pub series: String,
    /// The place on it.
    pub x: String,
    /// The name of the figure.
    pub figure: String,
    /// The value, and the reasons for which it does not count.
    pub repetition: Repetition,
}

/// What is known of a value besides it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Evidence {
    /// What speaks against it.
    pub flags: Vec<String>,
    /// What the work took that it was measured in.
    pub cost: Option<Cost>,
}

impl From<Vec<String>> for Evidence {
    fn from(flags: Vec<String>) -> Evidence {
        Evidence { flags, cost: None }
    }
}

/// Takes what a subject measures in one round.
pub struct Recorder<'a> {
    round: u32,
    records: Vec<Record>,
    say: &'a dyn Fn(&str),
    stop: &'a AtomicBool,
}

/// Somebody asked the run to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for Stopped {}

impl<'a> Recorder<'a> {
    /// For a round. `say` is told what is done next; `stop` becomes true when somebody asks to.
    pub fn new(round: u32, say: &'a dyn Fn(&str), stop: &'a AtomicBool) -> Recorder<'a> {
        Recorder { round, records: Vec::new(), say, stop }
    }

    /// Which round it is, from 0.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Says what is done next, and learns whether to go on.
    ///
    /// # Errors
    /// [`Stopped`] where somebody asked for that; hand it on.
    pub fn next(&self, doing: &str) -> Result<(), Stopped> {
        (self.say)(doing);
        self.go_on()
    }

    /// Whether to go on, for work that takes long: one load.
    ///
    /// # Errors
    /// [`Stopped`] where somebody asked for that; hand it on.
    #[inline]
    pub fn go_on(&self) -> Result<(), Stopped> {
        if self.stop.load(Ordering::Relaxed) { Err(Stopped) } else { Ok(()) }
    }

    /// Takes a figure at a point, with what speaks against it and what it took.
    pub fn record(
        &mut self,
        series: &str,
        x: &str,
        figure: &str,
        value: f64,
        evidence: impl Into<Evidence>,
    ) {
        let Evidence { mut flags, cost } = evidence.into();
        if !value.is_finite() {
            flags.push(format!("{value} is no measurement"));
        }
        let value = if value.is_finite() { value } else { 0.0 };
        self.records.push(Record {
            series: series.to_string(),
            x: x.to_string(),
            figure: figure.to_string(),
            repetition: Repetition { round: self.round, value, flags, cost },
        });
    }

    /// What was taken.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }
}
