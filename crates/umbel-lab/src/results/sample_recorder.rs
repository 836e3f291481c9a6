//! Records the measurements of a subject in one round, with the reasons not to trust them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::results::outcome::{Cost, Repetition};

/// A figure at a point, measured once.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The series.
    pub series: String,
    /// The place on it.
    pub x: String,
    /// The name of the figure.
    pub figure: String,
    /// The value, with the reasons why it does not count.
    pub repetition: Repetition,
}

/// Evidence about a value.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MeasurementEvidence {
    /// Reasons not to trust it.
    pub flags: Vec<String>,
    /// Cost of the work in which it was measured.
    pub cost: Option<Cost>,
}

impl From<Vec<String>> for MeasurementEvidence {
    fn from(flags: Vec<String>) -> MeasurementEvidence {
        MeasurementEvidence { flags, cost: None }
    }
}

/// Recorder of the measurements of a subject in one round.
pub struct Recorder<'a> {
    round: u32,
    records: Vec<Record>,
    say: &'a dyn Fn(&str),
    stop: &'a AtomicBool,
}

/// The operator stopped the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopRequested;

impl std::fmt::Display for StopRequested {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for StopRequested {}

impl<'a> Recorder<'a> {
    /// Creates the recorder of a round. `say` receives the current activity; `stop` becomes true
    /// when the operator stops the run.
    pub fn new(round: u32, say: &'a dyn Fn(&str), stop: &'a AtomicBool) -> Recorder<'a> {
        Recorder { round, records: Vec::new(), say, stop }
    }

    /// Returns the round, from 0.
    pub fn round(&self) -> u32 {
        self.round
    }

    /// Reports the next activity and checks for a stop.
    ///
    /// # Errors
    /// [`StopRequested`] if the operator stopped the run; propagate it.
    pub fn next(&self, doing: &str) -> Result<(), StopRequested> {
        (self.say)(doing);
        self.check_stop()
    }

    /// Checks for a stop, for long work: one atomic load.
    ///
    /// # Errors
    /// [`StopRequested`] if the operator stopped the run; propagate it.
    #[inline]
    pub fn check_stop(&self) -> Result<(), StopRequested> {
        if self.stop.load(Ordering::Relaxed) { Err(StopRequested) } else { Ok(()) }
    }

    /// Records a figure at a point, with the reasons not to trust it and its cost.
    pub fn record(
        &mut self,
        series: &str,
        x: &str,
        figure: &str,
        value: f64,
        evidence: impl Into<MeasurementEvidence>,
    ) {
        let MeasurementEvidence { mut flags, cost } = evidence.into();
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

    /// Returns the records.
    pub fn into_records(self) -> Vec<Record> {
        self.records
    }
}
