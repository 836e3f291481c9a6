//! The repetitions of a run that is under way, on disk one by one, so that a run that was cut short
//! goes on where it stopped.
//!
//! FORMAT: `NAME.part.jsonl` beside the result file: lines of JSON, each with a checksum. The first
//! one says what is measured; each other one is what a subject measured in a round. A line that
//! does not end is the one that was being written. The file is removed when the result file is
//! there.
//!
//! INVARIANT: an entry counts only where its checksum fits it and the first line: a changed line,
//! or one from another journal, is reported and measured again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use umbel_env::{Access, Env, File};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::lab_error::LabError;
use crate::machine::Machine;
use crate::outcome::{Cost, EngineNote, Repetition, Scale};
use crate::recorder::Record;
use crate::results;

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

/// A line: what it says, with a checksum over that.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<T> {
    /// FORMAT: 16 hexadecimal digits of XXH3-64 over the other field as compact JSON; its seed is 0
    /// in the first line, and that line's checksum in the others.
    checksum: String,
    /// What it says.
    says: T,
}

/// What a line behind the first says.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryLine {
    subject: usize,
    round: u32,
    seconds: f64,
    records: Vec<RecordLine>,
}

/// Series, place, figure, value, flags, cost.
type RecordLine = (String, String, String, f64, Vec<String>, Option<Cost>);

fn checksum_of<T: Serialize>(says: &T, seed: u64) -> Result<u64, serde_json::Error> {
    Ok(xxh3_64_with_seed(serde_json::to_string(says)?.as_bytes(), seed))
}

/// The text of a line with its end, and its checksum.
fn line_of<T: Serialize>(says: T, seed: u64) -> Result<(String, u64), LabError> {
    let checksum = checksum_of(&says, seed).map_err(LabError::bug)?;
    let line = Line { checksum: format!("{checksum:016x}"), says };
    Ok((serde_json::to_string(&line).map_err(LabError::bug)? + "\n", checksum))
}

/// What a line says, with its checksum, or why it is not believed.
fn says_of<'a, T: Serialize + Deserialize<'a>>(
    line: &'a [u8],
    seed: u64,
) -> Result<(T, u64), String> {
    let Line::<T> { checksum, says } =
        serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let fitting = checksum_of(&says, seed).map_err(|error| error.to_string())?;
    match format!("{fitting:016x}") == checksum {
        true => Ok((says, fitting)),
        false => Err("its checksum does not fit".to_string()),
    }
}

/// The file of the repetitions so far.
pub struct Journal {
    env: Env,
    path: PathBuf,
    file: Arc<dyn File>,
    end: u64,
    /// What the checksums of entries begin with.
    seed: u64,
}

/// What a run left.
pub struct Left {
    /// The journal, to go on with.
    pub journal: Journal,
    /// What was measured.
    pub heading: Heading,
    /// The repetitions that are believed.
    pub entries: Vec<Entry>,
    /// A sentence for each line that is not believed, and is measured again.
    pub rejected: Vec<String>,
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
        let file = results::create(env, path).map_err(refused)?;
        let (line, seed) = line_of(heading, 0)?;
        let path_kept = path.to_path_buf();
        let mut journal = Journal { env: env.clone(), path: path_kept, file, end: 0, seed };
        journal.append(&line)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        env.files.sync_dir(folder).map_err(refused)?;
        Ok(journal)
    }

    /// Goes on with one that is there; `None` where none is.
    ///
    /// # Errors
    /// [`LabError::Usage`] where it is of another run, [`LabError::Damaged`] where its first line
    /// is none, [`LabError::System`].
    pub fn resume(env: &Env, path: &Path, heading: &Heading) -> Result<Option<Left>, LabError> {
        let refused = |error| system(path, &error);
        if !env.files.exists(path).map_err(refused)? {
            return Ok(None);
        }
        let file = env.files.open(path, Access::ReadWrite).map_err(refused)?;
        let mut text = vec![0; file.len().map_err(refused)? as usize];
        file.read_exact_at(&mut text, 0).map_err(refused)?;
        let Some(Parsed { heading: left, seed, mut entries, rejected, end }) = parse(path, &text)?
        else {
            return Ok(None);
        };
        heading.may_continue(&left).map_err(|reason| {
            LabError::Usage(format!(
                "--resume cannot go on with {}: {reason}; leave --resume out to measure anew",
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
            // Nobody is to have more repetitions than the others.
            entries.retain(|entry| entry.round < heading.rounds);
        }
        Ok(Some(Left { journal, heading: left, entries, rejected }))
    }

    /// Puts a journal of these lines alone in the place of the one that is there.
    fn rewrite(&mut self, heading: &Heading, entries: &[Entry]) -> Result<(), LabError> {
        let text = text_of(heading, entries)?;
        results::write_whole(&self.env, &self.path, text.as_bytes())?;
        let opened = self.env.files.open(&self.path, Access::ReadWrite);
        self.file = opened.map_err(|error| system(&self.path, &error))?;
        self.end = text.len() as u64;
        Ok(())
    }

    /// Keeps what a subject measured in a round; it is on the disk when this returns.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn keep(&mut self, entry: &Entry) -> Result<(), LabError> {
        let (line, _) = line_of(EntryLine::from(entry), self.seed)?;
        self.append(&line)
    }

    fn append(&mut self, line: &str) -> Result<(), LabError> {
        let written = self.file.write_all_at(line.as_bytes(), self.end);
        written.and_then(|()| self.file.sync()).map_err(|error| system(&self.path, &error))?;
        self.end += line.len() as u64;
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

impl From<&Entry> for EntryLine {
    fn from(entry: &Entry) -> EntryLine {
        let records = entry.records.iter().map(|record| {
            let Repetition { value, flags, cost, .. } = record.repetition.clone();
            (record.series.clone(), record.x.clone(), record.figure.clone(), value, flags, cost)
        });
        let Entry { subject, round, seconds, .. } = *entry;
        EntryLine { subject, round, seconds, records: records.collect() }
    }
}

impl From<EntryLine> for Entry {
    fn from(line: EntryLine) -> Entry {
        let EntryLine { subject, round, seconds, records } = line;
        let records = records.into_iter().map(|(series, x, figure, value, flags, cost)| {
            let repetition = Repetition { round, value, flags, cost };
            Record { series, x, figure, repetition }
        });
        Entry { subject, round, seconds, records: records.collect() }
    }
}

/// The text of a journal.
///
/// # Errors
/// [`LabError::Failed`] where an entry has a number that JSON cannot say.
pub fn text_of(heading: &Heading, entries: &[Entry]) -> Result<String, LabError> {
    let (mut text, seed) = line_of(heading, 0)?;
    for entry in entries {
        text.push_str(&line_of(EntryLine::from(entry), seed)?.0);
    }
    Ok(text)
}

/// What the text of a journal says.
#[derive(Debug)]
pub struct Parsed {
    /// The first line.
    pub heading: Heading,
    /// What the checksums of entries begin with.
    pub seed: u64,
    /// The entries that are believed.
    pub entries: Vec<Entry>,
    /// A sentence for each line that is not.
    pub rejected: Vec<String>,
    /// Where the last whole line ends.
    pub end: u64,
}

/// What a journal says; `None` where it has no whole line.
///
/// # Errors
/// [`LabError::Damaged`] where the first line is none.
pub fn parse(path: &Path, text: &[u8]) -> Result<Option<Parsed>, LabError> {
    let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
        return Ok(None);
    };
    let mut lines = text[..end].split(|byte| *byte == b'\n');
    let (heading, seed) =
        says_of::<Heading>(lines.next().unwrap_or_default(), 0).map_err(|reason| {
            LabError::Damaged(format!(
                "{}, line 1: {reason}; leave --resume out to measure anew",
                path.display()
            ))
        })?;
    let (mut entries, mut rejected) = (Vec::new(), Vec::new());
    for (number, line) in (2..).zip(lines) {
        match entry_of(line, seed, &heading, &entries) {
            Ok(entry) => entries.push(entry),
            Err(reason) => rejected.push(format!(
                "{}, line {number}: {reason}; what it says is measured again",
                path.display()
            )),
        }
    }
    Ok(Some(Parsed { heading, seed, entries, rejected, end: end as u64 + 1 }))
}

/// The entry of a line, or why it is not believed.
fn entry_of(line: &[u8], seed: u64, heading: &Heading, before: &[Entry]) -> Result<Entry, String> {
    let (line, _) = says_of::<EntryLine>(line, seed)?;
    if line.subject >= heading.subjects.len() {
        return Err("there is no such subject".to_string());
    }
    let is_it = |entry: &Entry| entry.subject == line.subject && entry.round == line.round;
    if before.iter().any(is_it) {
        return Err("this subject has this round already".to_string());
    }
    if !line.seconds.is_finite() || line.seconds < 0.0 {
        return Err("it took no length of time".to_string());
    }
    Ok(Entry::from(line))
}
