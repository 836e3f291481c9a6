//! The repetitions of a run that is under way, on disk one by one, so that a run that was cut short
//! goes on where it stopped.
//!
//! FORMAT: `NAME.part.jsonl` beside the result file: lines of JSON. The first one says what is
//! measured; each other one is what a subject measured in a round. A line that does not end is the
//! one that was being written. The file is removed when the result file is there.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use umbel_env::{Access, Env, File};

use crate::lab_error::LabError;
use crate::machine::Machine;
use crate::outcome::{EngineNote, Repetition, Scale};
use crate::recorder::Record;

/// What a run measures: one with another heading cannot go on with these repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heading {
    /// The version of the format.
    pub umbel_lab_part: u32,
    /// The experiment.
    pub experiment: String,
    /// How much.
    pub scale: Scale,
    /// The engines.
    pub engines: Vec<EngineNote>,
    /// What is the same for all points.
    pub settings: Vec<(String, String)>,
    /// Who is measured in each round.
    pub subjects: Vec<String>,
    /// Where; a run may go on on another day.
    pub machine: Machine,
    /// When it began.
    pub started: String,
    /// How many rounds were asked for; a run may go on with another number.
    pub rounds: u32,
}

impl Heading {
    /// Whether a run with this heading may go on with what one with the other left, or why not.
    fn may_continue(&self, left: &Heading) -> Result<(), String> {
        let differ = |what: &str| Err(format!("it was measured with another {what}"));
        match () {
            () if self.umbel_lab_part != left.umbel_lab_part => differ("version of umbel"),
            () if self.experiment != left.experiment => differ("experiment"),
            () if self.scale != left.scale => differ("--scale"),
            () if self.engines != left.engines => differ("--engine, or other settings of one"),
            () if self.settings != left.settings => differ("--data, or other settings"),
            () if self.subjects != left.subjects => differ("list of subjects"),
            () if self.machine.commit != left.machine.commit => differ("commit"),
            () if self.machine.binary != left.machine.binary => differ("build of umbel"),
            () if !self.machine.is_same(&left.machine) => differ("machine or kernel"),
            () => Ok(()),
        }
    }
}

/// What a subject measured in a round.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Which of the subjects.
    pub subject: usize,
    /// Which round.
    pub round: u32,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// The figures.
    pub records: Vec<Record>,
}

/// A line behind the first.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    subject: usize,
    round: u32,
    seconds: f64,
    /// Series, place, figure, value, flags.
    records: Vec<(String, String, String, f64, Vec<String>)>,
}

/// The file of the repetitions so far.
pub struct Journal {
    env: Env,
    path: PathBuf,
    file: Arc<dyn File>,
    end: u64,
}

/// The journal of an experiment in a folder.
pub fn path_of(out: &Path, experiment: &str) -> PathBuf {
    out.join(format!("{experiment}.part.jsonl"))
}

impl Journal {
    /// Begins a new one, in place of one that is there.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn begin(env: &Env, path: &Path, heading: &Heading) -> Result<Journal, LabError> {
        let refused = |error| system(path, &error);
        if env.files.exists(path).map_err(refused)? {
            env.files.remove_file(path).map_err(refused)?;
        }
        let file = env.files.create(path).map_err(refused)?;
        let mut journal = Journal { env: env.clone(), path: path.to_path_buf(), file, end: 0 };
        journal.append(&serde_json::to_string(heading).map_err(LabError::bug)?)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        env.files.sync_dir(folder).map_err(refused)?;
        Ok(journal)
    }

    /// Goes on with one that is there; `None` where none is.
    ///
    /// # Errors
    /// [`LabError::Usage`] where it is of another run, [`LabError::Damaged`] where a line inside
    /// is none, [`LabError::System`].
    pub fn resume(
        env: &Env,
        path: &Path,
        heading: &Heading,
    ) -> Result<Option<(Journal, Heading, Vec<Entry>)>, LabError> {
        let refused = |error| system(path, &error);
        if !env.files.exists(path).map_err(refused)? {
            return Ok(None);
        }
        let file = env.files.open(path, Access::ReadWrite).map_err(refused)?;
        let mut text = vec![0; file.len().map_err(refused)? as usize];
        file.read_exact_at(&mut text, 0).map_err(refused)?;
        let Some((left, mut entries, end)) = parse(path, &text)? else {
            return Ok(None);
        };
        heading.may_continue(&left).map_err(|reason| {
            LabError::Usage(format!(
                "--resume cannot go on with {}: {reason}; leave --resume out to measure anew",
                path.display()
            ))
        })?;
        file.set_len(end).map_err(refused)?;
        if left.rounds != heading.rounds {
            // Nobody is to have more repetitions than the others.
            entries.retain(|entry| entry.round < heading.rounds);
        }
        let journal = Journal { env: env.clone(), path: path.to_path_buf(), file, end };
        Ok(Some((journal, left, entries)))
    }

    /// Keeps what a subject measured in a round; it is on the disk when this returns.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn keep(&mut self, entry: &Entry) -> Result<(), LabError> {
        let records = entry.records.iter().map(|record| {
            let Repetition { value, flags, .. } = record.repetition.clone();
            (record.series.clone(), record.x.clone(), record.figure.clone(), value, flags)
        });
        let line = Line {
            subject: entry.subject,
            round: entry.round,
            seconds: entry.seconds,
            records: records.collect(),
        };
        self.append(&serde_json::to_string(&line).map_err(LabError::bug)?)
    }

    fn append(&mut self, line: &str) -> Result<(), LabError> {
        let bytes = format!("{line}\n");
        let written = self.file.write_all_at(bytes.as_bytes(), self.end);
        written.and_then(|()| self.file.sync()).map_err(|error| system(&self.path, &error))?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Removes the file: the result is in its own.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn finish(self) -> Result<(), LabError> {
        self.env.files.remove_file(&self.path).map_err(|error| system(&self.path, &error))
    }
}

fn system(path: &Path, error: &umbel_base::Error) -> LabError {
    LabError::System(format!("could not keep repetitions in {}: {error}", path.display()))
}

/// What the text of a journal says.
pub type Parsed = (Heading, Vec<Entry>, u64);

/// The heading, the entries and where the last whole line ends; `None` where there is no whole
/// line.
///
/// # Errors
/// [`LabError::Damaged`] with the number of a line that is none.
pub fn parse(path: &Path, text: &[u8]) -> Result<Option<Parsed>, LabError> {
    let damaged = |number: usize, error: &dyn std::fmt::Display| {
        LabError::Damaged(format!(
            "{}, line {number}: {error}; leave --resume out to measure anew",
            path.display()
        ))
    };
    let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let mut lines = text[..end].split(|byte| *byte == b'\n');
    let heading = lines.next().unwrap_or_default();
    let heading: Heading = serde_json::from_slice(heading).map_err(|error| damaged(1, &error))?;
    let mut entries = Vec::new();
    for (number, line) in (2..).zip(lines) {
        let line: Line = serde_json::from_slice(line).map_err(|error| damaged(number, &error))?;
        if line.subject >= heading.subjects.len() {
            return Err(damaged(number, &"there is no such subject"));
        }
        let is_it = |entry: &Entry| entry.subject == line.subject && entry.round == line.round;
        if entries.iter().any(is_it) {
            return Err(damaged(number, &"this subject has this round already"));
        }
        if !line.seconds.is_finite() || line.seconds < 0.0 {
            return Err(damaged(number, &"it took no length of time"));
        }
        let records = line.records.into_iter().map(|(series, x, figure, value, flags)| Record {
            series,
            x,
            figure,
            repetition: Repetition { round: line.round, value, flags },
        });
        entries.push(Entry {
            subject: line.subject,
            round: line.round,
            seconds: line.seconds,
            records: records.collect(),
        });
    }
    Ok(Some((heading, entries, end as u64 + 1)))
}
