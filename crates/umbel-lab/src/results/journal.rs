//! Journal of a run in progress, with each finished repetition, so that a stopped run can resume.
//!
//! FORMAT: `NAME.part.jsonl` beside the result file: lines of JSON, each with a checksum. The first
//! line is the heading; each other line is the measurement of a subject in a round. A line without
//! line break was unfinished when the run stopped. The journal is removed once the result file
//! exists.
//!
//! INVARIANT: an entry counts only if its checksum matches the entry and the first line. A changed
//! line, or a line of another journal, is reported, and its round is measured again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use umbel_env::{Access, Env, File};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::lab_error::LabError;
use crate::measure::machine::Machine;
use crate::results::outcome::{Cost, EngineNote, Repetition, Scale};
use crate::results::result_file;
use crate::results::sample_recorder::Record;

/// Heading of a journal; a run with another heading cannot resume it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalHeading {
    /// The version of the format.
    pub umbel_lab_part: u32,
    /// The experiment.
    pub experiment: String,
    /// Scale of the measurement.
    pub scale: Scale,
    /// The engines.
    pub engines: Vec<EngineNote>,
    /// Settings that are the same for all points.
    pub settings: Vec<(String, String)>,
    /// Subjects that are measured in each round.
    pub subjects: Vec<String>,
    /// Machine; a run may resume on another day.
    pub machine: Machine,
    /// Time at which the run began.
    pub started: String,
    /// Requested number of rounds; a run may resume with another number.
    pub rounds: u32,
}

impl JournalHeading {
    /// Whether a run with this heading may resume a journal with heading `left`, or the reason
    /// against.
    fn may_continue(&self, left: &JournalHeading) -> Result<(), String> {
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

/// Measurement of a subject in a round.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalEntry {
    /// Index of the subject.
    pub subject: usize,
    /// The round.
    pub round: u32,
    /// Time that it took, in seconds.
    pub seconds: f64,
    /// The measured figures.
    pub records: Vec<Record>,
}

/// A line of the journal: content and checksum.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JournalLine<T> {
    /// FORMAT: 16 hexadecimal digits of XXH3-64 over `says` as compact JSON. The seed is 0 in the
    /// first line, and the first line's checksum in all other lines.
    checksum: String,
    /// Content.
    says: T,
}

/// Content of a line after the first.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryJson {
    subject: usize,
    round: u32,
    seconds: f64,
    records: Vec<RecordJson>,
}

/// Series, place, figure, value, flags, cost.
type RecordJson = (String, String, String, f64, Vec<String>, Option<Cost>);

fn checksum_of<T: Serialize>(says: &T, seed: u64) -> Result<u64, serde_json::Error> {
    Ok(xxh3_64_with_seed(serde_json::to_string(says)?.as_bytes(), seed))
}

/// Returns the text of a line with its line break, and its checksum.
fn line_of<T: Serialize>(says: T, seed: u64) -> Result<(String, u64), LabError> {
    let checksum = checksum_of(&says, seed).map_err(LabError::bug)?;
    let line = JournalLine { checksum: format!("{checksum:016x}"), says };
    Ok((serde_json::to_string(&line).map_err(LabError::bug)? + "\n", checksum))
}

/// Returns the content of a line with its checksum, or the reason to reject it.
fn verify_line<'a, T: Serialize + Deserialize<'a>>(
    line: &'a [u8],
    seed: u64,
) -> Result<(T, u64), String> {
    let JournalLine::<T> { checksum, says } =
        serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let fitting = checksum_of(&says, seed).map_err(|error| error.to_string())?;
    match format!("{fitting:016x}") == checksum {
        true => Ok((says, fitting)),
        false => Err("its checksum does not match".to_string()),
    }
}

/// The file of the repetitions so far.
pub struct Journal {
    env: Env,
    path: PathBuf,
    file: Arc<dyn File>,
    end: u64,
    /// Seed of the checksums of entries.
    seed: u64,
}

/// State of a stopped run.
pub struct InterruptedRun {
    /// The journal, which the run continues.
    pub journal: Journal,
    /// The journal's heading.
    pub heading: JournalHeading,
    /// The valid repetitions.
    pub entries: Vec<JournalEntry>,
    /// A sentence for each rejected line, which is measured again.
    pub rejected: Vec<String>,
}

/// Returns the path of the journal of an experiment in a folder.
pub fn path_of(out: &Path, experiment: &str) -> PathBuf {
    out.join(format!("{experiment}.part.jsonl"))
}

impl Journal {
    /// Begins a new journal and replaces an existing one.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn begin(env: &Env, path: &Path, heading: &JournalHeading) -> Result<Journal, LabError> {
        let refused = |error| system(path, &error);
        if env.files.exists(path).map_err(refused)? {
            env.files.remove_file(path).map_err(refused)?;
        }
        let file = result_file::create(env, path).map_err(refused)?;
        let (line, seed) = line_of(heading, 0)?;
        let path_kept = path.to_path_buf();
        let mut journal = Journal { env: env.clone(), path: path_kept, file, end: 0, seed };
        journal.append(&line)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        env.files.sync_dir(folder).map_err(refused)?;
        Ok(journal)
    }

    /// Resumes an existing journal; `None` if no journal exists.
    ///
    /// # Errors
    /// [`LabError::Usage`] for a journal of another run, [`LabError::Damaged`] for an invalid first
    /// line, [`LabError::System`].
    pub fn resume(
        env: &Env,
        path: &Path,
        heading: &JournalHeading,
    ) -> Result<Option<InterruptedRun>, LabError> {
        let refused = |error| system(path, &error);
        if !env.files.exists(path).map_err(refused)? {
            return Ok(None);
        }
        let file = env.files.open(path, Access::ReadWrite).map_err(refused)?;
        let mut text = vec![0; file.len().map_err(refused)? as usize];
        file.read_exact_at(&mut text, 0).map_err(refused)?;
        let Some(ParsedJournal { heading: left, seed, mut entries, rejected, end }) =
            parse(path, &text)?
        else {
            return Ok(None);
        };
        heading.may_continue(&left).map_err(|reason| {
            LabError::Usage(format!(
                "--resume cannot continue {}: {reason}; leave --resume out to measure again",
                path.display()
            ))
        })?;
        let (env, path) = (env.clone(), path.to_path_buf());
        let mut journal = Journal { env, path, file, end, seed };
        if rejected.is_empty() {
            journal.file.set_len(end).map_err(|error| system(&journal.path, &error))?;
        } else {
            journal.rewrite(&left, &entries)?;
        }
        if left.rounds != heading.rounds {
            // No engine may have more repetitions than the others.
            entries.retain(|entry| entry.round < heading.rounds);
        }
        Ok(Some(InterruptedRun { journal, heading: left, entries, rejected }))
    }

    /// Replaces the existing journal by one with these lines only.
    fn rewrite(
        &mut self,
        heading: &JournalHeading,
        entries: &[JournalEntry],
    ) -> Result<(), LabError> {
        let text = text_of(heading, entries)?;
        result_file::write_whole(&self.env, &self.path, text.as_bytes())?;
        let opened = self.env.files.open(&self.path, Access::ReadWrite);
        self.file = opened.map_err(|error| system(&self.path, &error))?;
        self.end = text.len() as u64;
        Ok(())
    }

    /// Appends the measurement of a subject in a round; it is durable when this returns.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn append_entry(&mut self, entry: &JournalEntry) -> Result<(), LabError> {
        let (line, _) = line_of(EntryJson::from(entry), self.seed)?;
        self.append(&line)
    }

    fn append(&mut self, line: &str) -> Result<(), LabError> {
        let written = self.file.write_all_at(line.as_bytes(), self.end);
        written.and_then(|()| self.file.sync()).map_err(|error| system(&self.path, &error))?;
        self.end += line.len() as u64;
        Ok(())
    }

    /// Removes the file, because the result has a file of its own.
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

impl From<&JournalEntry> for EntryJson {
    fn from(entry: &JournalEntry) -> EntryJson {
        let records = entry.records.iter().map(|record| {
            let Repetition { value, flags, cost, .. } = record.repetition.clone();
            (record.series.clone(), record.x.clone(), record.figure.clone(), value, flags, cost)
        });
        let JournalEntry { subject, round, seconds, .. } = *entry;
        EntryJson { subject, round, seconds, records: records.collect() }
    }
}

impl From<EntryJson> for JournalEntry {
    fn from(line: EntryJson) -> JournalEntry {
        let EntryJson { subject, round, seconds, records } = line;
        let records = records.into_iter().map(|(series, x, figure, value, flags, cost)| {
            let repetition = Repetition { round, value, flags, cost };
            Record { series, x, figure, repetition }
        });
        JournalEntry { subject, round, seconds, records: records.collect() }
    }
}

/// Returns the text of a journal.
///
/// # Errors
/// [`LabError::Failed`] for an entry with a number that JSON cannot represent.
pub fn text_of(heading: &JournalHeading, entries: &[JournalEntry]) -> Result<String, LabError> {
    let (mut text, seed) = line_of(heading, 0)?;
    for entry in entries {
        text.push_str(&line_of(EntryJson::from(entry), seed)?.0);
    }
    Ok(text)
}

/// Parsed text of a journal.
#[derive(Debug)]
pub struct ParsedJournal {
    /// The first line.
    pub heading: JournalHeading,
    /// Seed of the checksums of entries.
    pub seed: u64,
    /// The valid entries.
    pub entries: Vec<JournalEntry>,
    /// A sentence for each rejected line.
    pub rejected: Vec<String>,
    /// End of the last complete line.
    pub end: u64,
}

/// Parses a journal; `None` if it has no complete line.
///
/// # Errors
/// [`LabError::Damaged`] for an invalid first line.
pub fn parse(path: &Path, text: &[u8]) -> Result<Option<ParsedJournal>, LabError> {
    let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let mut lines = text[..end].split(|byte| *byte == b'\n');
    let (heading, seed) = verify_line::<JournalHeading>(lines.next().unwrap_or_default(), 0)
        .map_err(|reason| {
            LabError::Damaged(format!(
                "{}, line 1: {reason}; leave --resume out to measure again",
                path.display()
            ))
        })?;
    let (mut entries, mut rejected) = (Vec::new(), Vec::new());
    for (number, line) in (2..).zip(lines) {
        match entry_of(line, seed, &heading, &entries) {
            Ok(entry) => entries.push(entry),
            Err(reason) => rejected.push(format!(
                "{}, line {number}: {reason}; its repetition is measured again",
                path.display()
            )),
        }
    }
    Ok(Some(ParsedJournal { heading, seed, entries, rejected, end: end as u64 + 1 }))
}

/// Returns the entry of a line, or the reason to reject it.
fn entry_of(
    line: &[u8],
    seed: u64,
    heading: &JournalHeading,
    before: &[JournalEntry],
) -> Result<JournalEntry, String> {
    let (line, _) = verify_line::<EntryJson>(line, seed)?;
    if line.subject >= heading.subjects.len() {
        return Err("there is no such subject".to_string());
    }
    let is_it = |entry: &JournalEntry| entry.subject == line.subject && entry.round == line.round;
    if before.iter().any(is_it) {
        return Err("this subject has this round already".to_string());
    }
    if !line.seconds.is_finite() || line.seconds < 0.0 {
        return Err("its duration is not a positive number".to_string());
    }
    Ok(JournalEntry::from(line))
}
