//! One experiment from beginning to end: a warm-up, rounds in which everybody is measured in turn,
//! and more of them where too few repetitions count.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::engine::{Engine, Failure, Settings};
use crate::experiment::{Experiment, Needs, Subject, named};
use crate::journal::{self, Entry, Heading, Journal};
use crate::lab::{Lab, remove};
use crate::lab_error::LabError;
use crate::machine::{Machine, utc};
use crate::outcome::{EngineNote, FigureNote, Order, Outcome, VERSION};
use crate::progress::Progress;
use crate::recorder::{Recorder, Stopped};
use crate::space;
use crate::turns::turns;

/// How many rounds are added for repetitions that do not count.
const EXTRA_ROUNDS: u32 = 2;
/// How many repetitions must count before no round is added.
const SOUND_LEAST: usize = 2;

/// How an experiment is run.
#[derive(Debug, Clone, Copy)]
pub struct Manner<'a> {
    /// Rounds, where the user said how many.
    pub rounds: Option<u32>,
    /// Whether repetitions that a run left are taken over.
    pub resume: bool,
    /// Where results and repetitions are kept.
    pub out: &'a Path,
    /// The engines, as results name them.
    pub engines: &'a [EngineNote],
    /// Where it is measured, and with what program.
    pub machine: &'a Machine,
    /// Whether somebody asked to stop.
    pub stop: &'a AtomicBool,
}

/// Runs an experiment and says what it found. Its repetitions are kept in its journal, which is
/// there until the caller has the result in a file and calls [`Done::forget`].
///
/// # Errors
/// Any [`LabError`]; repetitions that are done are kept.
pub fn run(
    experiment: &Experiment,
    lab: &Lab<'_>,
    manner: &Manner<'_>,
    progress: &mut Progress,
) -> Result<Done, LabError> {
    LabError::check_path("the results", manner.out)?;
    let needs = match lab.data {
        None => (experiment.how.needs)(lab.scale),
        // The log and a compaction under way besides the tables, and what the system keeps.
        Some(data) => Needs { disk_bytes: data.bytes() * 4 + (64 << 20), memory_bytes: 256 << 20 },
    };
    space::check(experiment.name, needs, lab)?;
    let failed = |failure: Failure| LabError::of(experiment.name, "before it began", &failure);
    let mut subjects = (experiment.subjects)(lab).map_err(|failure| match lab.data {
        Some(_) => LabError::Usage(format!("{}: {failure}", experiment.name)),
        None => failed(failure),
    })?;
    let heading = heading_of(experiment, lab, manner, &subjects);
    let path = journal::path_of(manner.out, experiment.name);
    let left = if manner.resume { Journal::resume(lab.env, &path, &heading)? } else { None };
    let (journal, heading, entries) = match left {
        Some(journal::Left { journal, heading, entries, rejected }) => {
            for line in rejected {
                progress.note(&line);
            }
            (journal, heading, entries)
        }
        None => (Journal::begin(lab.env, &path, &heading)?, heading, Vec::new()),
    };
    let rounds = rounds_of(experiment, lab, manner);
    let mut course = Course { experiment, lab, manner, journal, entries, progress };
    course.progress.begin(experiment.name, u64::from(rounds) * subjects.len() as u64);
    course.go(&mut subjects, rounds)?;
    let outcome = outcome_of(experiment, Heading { rounds, ..heading }, &course.entries);
    Ok(Done { outcome, journal: course.journal })
}

/// Whether a result is what this very run would measure, so that it need not.
pub fn is_done(
    experiment: &Experiment,
    lab: &Lab<'_>,
    manner: &Manner<'_>,
    outcome: &Outcome,
) -> bool {
    let journal = journal::path_of(manner.out, experiment.name);
    // Where there is one, repetitions of a later run wait there.
    !lab.env.files.exists(&journal).unwrap_or(true)
        && outcome.scale == lab.scale
        && outcome.engines == manner.engines
        && outcome.settings == settings_of(experiment, lab)
        && outcome.rounds == rounds_of(experiment, lab, manner)
        && outcome.machine.is_same(manner.machine)
}

fn rounds_of(experiment: &Experiment, lab: &Lab<'_>, manner: &Manner<'_>) -> u32 {
    manner.rounds.unwrap_or((experiment.how.rounds)(lab.scale)).max(1)
}

fn heading_of(
    experiment: &Experiment,
    lab: &Lab<'_>,
    manner: &Manner<'_>,
    subjects: &[Box<dyn Subject>],
) -> Heading {
    Heading {
        umbel_lab_part: VERSION,
        experiment: experiment.name.to_string(),
        scale: lab.scale,
        engines: manner.engines.to_vec(),
        settings: settings_of(experiment, lab),
        subjects: subjects.iter().map(|subject| subject.name()).collect(),
        machine: manner.machine.clone(),
        started: utc(lab.env.clock.wall_micros()),
        rounds: rounds_of(experiment, lab, manner),
    }
}

/// An experiment that was run.
pub struct Done {
    /// What it found.
    pub outcome: Outcome,
    journal: Journal,
}

impl Done {
    /// Removes the repetitions: the result is in a file.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn forget(self) -> Result<Outcome, LabError> {
        self.journal.finish()?;
        Ok(self.outcome)
    }
}

struct Course<'a> {
    experiment: &'a Experiment,
    lab: &'a Lab<'a>,
    manner: &'a Manner<'a>,
    journal: Journal,
    entries: Vec<Entry>,
    progress: &'a mut Progress,
}

impl Course<'_> {
    fn go(&mut self, subjects: &mut [Box<dyn Subject>], rounds: u32) -> Result<(), LabError> {
        let is_new = self.entries.len() < rounds as usize * subjects.len();
        if is_new
            && self.experiment.how.warms_up
            && let Some(first) = subjects.first_mut()
        {
            self.measure(first.as_mut(), 0, "warm-up")?;
        }
        for round in 0..rounds {
            self.round(subjects, round)?;
        }
        for round in rounds..rounds + EXTRA_ROUNDS {
            // Somebody who was measured again alone would have another hour than the others.
            if (0..subjects.len()).any(|at| self.lacks_sound_repetitions(at, rounds as usize)) {
                self.progress.add(subjects.len() as u64);
                self.round(subjects, round)?;
            }
        }
        Ok(())
    }

    fn round(&mut self, subjects: &mut [Box<dyn Subject>], round: u32) -> Result<(), LabError> {
        for at in turns(subjects.len(), round) {
            self.repeat(at, subjects[at].as_mut(), round)?;
        }
        Ok(())
    }

    /// Whether a point of this subject has too few repetitions that count.
    fn lacks_sound_repetitions(&self, subject: usize, rounds: usize) -> bool {
        let of_subject = || self.entries.iter().filter(|entry| entry.subject == subject);
        let Some(first) = of_subject().next() else { return false };
        first.records.iter().any(|point| {
            let is_point = |record: &&crate::recorder::Record| {
                (&record.series, &record.x, &record.figure)
                    == (&point.series, &point.x, &point.figure)
            };
            let records = of_subject().flat_map(|entry| &entry.records).filter(is_point);
            let sound = records.filter(|record| record.repetition.flags.is_empty()).count();
            sound < SOUND_LEAST.min(rounds)
        })
    }

    fn repeat(&mut self, at: usize, subject: &mut dyn Subject, round: u32) -> Result<(), LabError> {
        let is_it = |entry: &Entry| entry.subject == at && entry.round == round;
        if self.entries.iter().any(is_it) {
            self.progress.step();
            return Ok(());
        }
        let entry = self.measure(subject, round, &format!("round {}", round + 1))?;
        let entry = Entry { subject: at, ..entry };
        self.journal.keep(&entry)?;
        self.entries.push(entry);
        self.progress.step();
        Ok(())
    }

    fn measure(
        &mut self,
        subject: &mut dyn Subject,
        round: u32,
        what: &str,
    ) -> Result<Entry, LabError> {
        let (name, began) = (subject.name(), self.lab.env.clock.now());
        let (stop, progress) = (self.manner.stop, &*self.progress);
        let say = |doing: &str| progress.say(&format!("{what}, {name}: {doing}"));
        let mut recorder = Recorder::new(round, &say, stop);
        let measured = recorder.next("").map_err(Failure::from);
        let measured = measured.and_then(|()| {
            self.lab.settle();
            subject.measure(&mut recorder)
        });
        measured.map_err(|failure| {
            if failure.is::<Stopped>() {
                return self.stopped();
            }
            LabError::of(self.experiment.name, &name, &failure)
        })?;
        let seconds = self.lab.env.clock.now().saturating_sub(began).as_secs_f64();
        Ok(Entry { subject: 0, round, seconds, records: recorder.into_records() })
    }

    fn stopped(&self) -> LabError {
        LabError::Stopped(format!(
            "stopped in {}; {} of its repetitions are kept in {}, and the same command with \
             --resume goes on",
            self.experiment.name,
            self.entries.len(),
            self.manner.out.display()
        ))
    }
}

fn settings_of(experiment: &Experiment, lab: &Lab<'_>) -> Vec<(String, String)> {
    let Some(data) = lab.data else {
        return (experiment.how.settings)(lab.scale);
    };
    let said = [
        ("keys and queries", format!("{}, XXH3 {:016x}", data.name, data.digest)),
        ("puts", data.puts.len().to_string()),
        ("gets", data.gets.len().to_string()),
        ("of these of keys that were never put", data.missing.len().to_string()),
    ];
    let own = named(said).into_iter();
    let made = |(name, _): &(String, String)| !["keys", "values", "reads"].contains(&name.as_str());
    own.chain((experiment.how.settings)(lab.scale).into_iter().filter(made)).collect()
}

/// Asks every engine for its version, by opening a store of it.
///
/// # Errors
/// [`LabError::Failed`].
pub fn engine_notes(lab: &Lab<'_>) -> Result<Vec<EngineNote>, LabError> {
    let note = |engine: &Engine| -> crate::engine::Result<EngineNote> {
        let folder = lab.folder(&format!("{}-version", engine.name))?;
        let store = folder.open(engine, &Settings::default())?;
        let version = store.version();
        store.close()?;
        Ok(EngineNote {
            name: engine.name.to_string(),
            version,
            settings: (engine.settings)(),
            recommended: engine.recommended.iter().map(|link| (*link).to_string()).collect(),
            bloom_bits_max: engine.tunes.bloom_bits_max,
        })
    };
    let said = |engine: &Engine| {
        note(engine).map_err(|failure| LabError::of("engines", engine.name, &failure))
    };
    lab.engines.iter().map(said).collect()
}

/// What the repetitions of an experiment say.
pub fn outcome_of(experiment: &Experiment, heading: Heading, entries: &[Entry]) -> Outcome {
    let figures = experiment.figures.iter().map(|figure| FigureNote {
        name: figure.name.to_string(),
        unit: figure.unit.to_string(),
        better: figure.better,
    });
    let order = order_of(heading.subjects, entries);
    let mut outcome = Outcome {
        umbel_lab: VERSION,
        experiment: heading.experiment,
        scale: heading.scale,
        engines: heading.engines,
        machine: heading.machine,
        started: heading.started,
        rounds: heading.rounds,
        order: Some(order),
        seconds: entries.iter().map(|entry| entry.seconds).sum(),
        settings: heading.settings,
        axis: experiment.axis.to_string(),
        figures: figures.collect(),
        points: Vec::new(),
    };
    // Points come in the order of the list, whoever had the first turn.
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by_key(|entry| (entry.round, entry.subject));
    for record in sorted.into_iter().flat_map(|entry| &entry.records) {
        let (series, x, figure) = (&record.series, &record.x, &record.figure);
        outcome.add(series, x, figure, record.repetition.clone());
    }
    outcome
}

/// In which order the repetitions were measured.
fn order_of(subjects: Vec<String>, entries: &[Entry]) -> Order {
    let last = entries.iter().map(|entry| entry.round).max();
    let turns = |round: u32| {
        let of_round = entries.iter().filter(|entry| entry.round == round);
        of_round.map(|entry| entry.subject).collect()
    };
    let rounds = (0..last.map_or(0, |last| last + 1)).map(turns).collect();
    Order { subjects, rounds }
}

/// What a run of several experiments needs at most at one time.
pub fn most(experiments: &[&'static Experiment], lab: &Lab<'_>) -> Needs {
    let needs = experiments.iter().map(|experiment| (experiment.how.needs)(lab.scale));
    needs.fold(Needs { disk_bytes: 0, memory_bytes: 0 }, |most, needs| Needs {
        disk_bytes: most.disk_bytes.max(needs.disk_bytes),
        memory_bytes: most.memory_bytes.max(needs.memory_bytes),
    })
}

/// The file that says that a folder of stores is this program's own.
const MARK: &str = "made-by-umbel-lab";

/// Where stores are made: a folder of this program's own inside the one that was named, which is
/// emptied of what a run that was killed left.
///
/// # Errors
/// [`LabError::Usage`] where the path is empty, otherwise [`LabError::System`].
pub fn stores_in(folder: &Path) -> Result<PathBuf, LabError> {
    LabError::check_path("the folder of stores", folder)?;
    let stores = folder.join("umbel-lab-stores");
    let mark = stores.join(MARK);
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    if is_there(&stores) && !is_there(&mark) {
        return Err(LabError::System(format!(
            "{} is there and was not made by umbel lab; move it away, or name another place with \
             --stores DIR",
            stores.display()
        )));
    }
    let made = remove(&stores)
        .and_then(|()| std::fs::create_dir_all(&stores))
        .and_then(|()| std::fs::write(&mark, "what is in this folder is removed\n"));
    made.map_err(|error| {
        LabError::System(format!("could not make room for stores in {}: {error}", stores.display()))
    })?;
    Ok(stores)
}
