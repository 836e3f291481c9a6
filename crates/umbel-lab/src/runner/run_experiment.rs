//! Runs one experiment: a warm-up, rounds that measure each subject in turn, and additional rounds
//! if too few repetitions count.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use crate::engine::{BoxError, Engine, EngineSettings};
use crate::experiment::lab_context::{LabContext, remove};
use crate::experiment::{Experiment, ResourceNeeds, Subject, owned_settings};
use crate::lab_error::LabError;
use crate::measure::machine::{Machine, utc};
use crate::results::journal::{self, Journal, JournalEntry, JournalHeading};
use crate::results::outcome::{EngineNote, FigureNote, Order, Outcome, VERSION};
use crate::results::sample_recorder::{Recorder, StopRequested};
use crate::runner::free_space;
use crate::runner::progress::Progress;
use crate::runner::subject_order::subject_order;

/// Maximum number of rounds that are added for repetitions that do not count.
const EXTRA_ROUNDS: u32 = 2;
/// Number of counted repetitions below which a round is added.
const SOUND_REPETITIONS_MIN: usize = 2;

/// Setup of an experiment.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions<'a> {
    /// Number of rounds, if the user chose it.
    pub rounds: Option<u32>,
    /// Whether the repetitions of a stopped run are reused.
    pub resume: bool,
    /// Folder of results and repetitions.
    pub out: &'a Path,
    /// The engines, as named in results.
    pub engines: &'a [EngineNote],
    /// The machine and the measuring program.
    pub machine: &'a Machine,
    /// Whether the operator stopped the run.
    pub stop: &'a AtomicBool,
}

/// Runs an experiment and returns its outcome. The repetitions stay in the experiment's journal
/// until the caller has saved the result and calls [`CompletedRun::remove_journal`].
///
/// # Errors
/// Any [`LabError`]; finished repetitions are kept.
pub fn run(
    experiment: &Experiment,
    lab: &LabContext<'_>,
    options: &RunOptions<'_>,
    progress: &mut Progress,
) -> Result<CompletedRun, LabError> {
    LabError::check_path("the results", options.out)?;
    let needs = match lab.data {
        None => (experiment.options.needs)(lab.scale),
        // Space for the log and a running compaction besides the tables, and for the system.
        Some(data) => {
            ResourceNeeds { disk_bytes: data.bytes() * 4 + (64 << 20), memory_bytes: 256 << 20 }
        }
    };
    free_space::check(experiment.name, needs, lab)?;
    let failed = |failure: BoxError| LabError::of(experiment.name, "before it began", &failure);
    let mut subjects = (experiment.subjects)(lab).map_err(|failure| match lab.data {
        Some(_) => LabError::Usage(format!("{}: {failure}", experiment.name)),
        None => failed(failure),
    })?;
    let heading = heading_of(experiment, lab, options, &subjects);
    let path = journal::path_of(options.out, experiment.name);
    let left = if options.resume { Journal::resume(lab.env, &path, &heading)? } else { None };
    let (journal, heading, entries) = match left {
        Some(journal::InterruptedRun { journal, heading, entries, rejected }) => {
            for line in rejected {
                progress.note(&line);
            }
            (journal, heading, entries)
        }
        None => (Journal::begin(lab.env, &path, &heading)?, heading, Vec::new()),
    };
    let rounds = rounds_of(experiment, lab, options);
    let mut course = RunState { experiment, lab, options, journal, entries, progress };
    course.progress.begin(experiment.name, u64::from(rounds) * subjects.len() as u64);
    course.run_rounds(&mut subjects, rounds)?;
    let outcome = outcome_of(experiment, JournalHeading { rounds, ..heading }, &course.entries);
    Ok(CompletedRun { outcome, journal: course.journal })
}

/// Whether a result equals the result that this run would produce, so that the run can be skipped.
pub fn is_done(
    experiment: &Experiment,
    lab: &LabContext<'_>,
    options: &RunOptions<'_>,
    outcome: &Outcome,
) -> bool {
    let journal = journal::path_of(options.out, experiment.name);
    // With a journal, repetitions of a later run exist.
    !lab.env.files.exists(&journal).unwrap_or(true)
        && outcome.scale == lab.scale
        && outcome.engines == options.engines
        && outcome.settings == settings_of(experiment, lab)
        && outcome.rounds == rounds_of(experiment, lab, options)
        && outcome.machine.is_same(options.machine)
}

fn rounds_of(experiment: &Experiment, lab: &LabContext<'_>, options: &RunOptions<'_>) -> u32 {
    options.rounds.unwrap_or((experiment.options.rounds)(lab.scale)).max(1)
}

fn heading_of(
    experiment: &Experiment,
    lab: &LabContext<'_>,
    options: &RunOptions<'_>,
    subjects: &[Box<dyn Subject>],
) -> JournalHeading {
    JournalHeading {
        umbel_lab_part: VERSION,
        experiment: experiment.name.to_string(),
        scale: lab.scale,
        engines: options.engines.to_vec(),
        settings: settings_of(experiment, lab),
        subjects: subjects.iter().map(|subject| subject.name()).collect(),
        machine: options.machine.clone(),
        started: utc(lab.env.clock.wall_micros()),
        rounds: rounds_of(experiment, lab, options),
    }
}

/// A finished run of an experiment.
pub struct CompletedRun {
    /// The outcome of the run.
    pub outcome: Outcome,
    journal: Journal,
}

impl CompletedRun {
    /// Removes the journal, because the result is in a file.
    ///
    /// # Errors
    /// [`LabError::System`].
    pub fn remove_journal(self) -> Result<Outcome, LabError> {
        self.journal.finish()?;
        Ok(self.outcome)
    }
}

struct RunState<'a> {
    experiment: &'a Experiment,
    lab: &'a LabContext<'a>,
    options: &'a RunOptions<'a>,
    journal: Journal,
    entries: Vec<JournalEntry>,
    progress: &'a mut Progress,
}

impl RunState<'_> {
    fn run_rounds(
        &mut self,
        subjects: &mut [Box<dyn Subject>],
        rounds: u32,
    ) -> Result<(), LabError> {
        let is_new = self.entries.len() < rounds as usize * subjects.len();
        if is_new
            && self.experiment.options.warms_up
            && let Some(first) = subjects.first_mut()
        {
            self.measure(first.as_mut(), 0, "warm-up")?;
        }
        for round in 0..rounds {
            self.round(subjects, round)?;
        }
        for round in rounds..rounds + EXTRA_ROUNDS {
            // A subject measured again alone would be measured at another time than the others.
            if (0..subjects.len()).any(|at| self.lacks_sound_repetitions(at, rounds as usize)) {
                self.progress.add(subjects.len() as u64);
                self.round(subjects, round)?;
            }
        }
        Ok(())
    }

    fn round(&mut self, subjects: &mut [Box<dyn Subject>], round: u32) -> Result<(), LabError> {
        for at in subject_order(subjects.len(), round) {
            self.run_repetition(at, subjects[at].as_mut(), round)?;
        }
        Ok(())
    }

    /// Whether a point of this subject has too few counted repetitions.
    fn lacks_sound_repetitions(&self, subject: usize, rounds: usize) -> bool {
        let of_subject = || self.entries.iter().filter(|entry| entry.subject == subject);
        let Some(first) = of_subject().next() else { return false };
        first.records.iter().any(|point| {
            let is_point = |record: &&crate::results::sample_recorder::Record| {
                (&record.series, &record.x, &record.figure)
                    == (&point.series, &point.x, &point.figure)
            };
            let records = of_subject().flat_map(|entry| &entry.records).filter(is_point);
            let sound = records.filter(|record| record.repetition.flags.is_empty()).count();
            sound < SOUND_REPETITIONS_MIN.min(rounds)
        })
    }

    fn run_repetition(
        &mut self,
        at: usize,
        subject: &mut dyn Subject,
        round: u32,
    ) -> Result<(), LabError> {
        let is_it = |entry: &JournalEntry| entry.subject == at && entry.round == round;
        if self.entries.iter().any(is_it) {
            self.progress.step();
            return Ok(());
        }
        let entry = self.measure(subject, round, &format!("round {}", round + 1))?;
        let entry = JournalEntry { subject: at, ..entry };
        self.journal.append_entry(&entry)?;
        self.entries.push(entry);
        self.progress.step();
        Ok(())
    }

    fn measure(
        &mut self,
        subject: &mut dyn Subject,
        round: u32,
        what: &str,
    ) -> Result<JournalEntry, LabError> {
        let (name, began) = (subject.name(), self.lab.env.clock.now());
        let (stop, progress) = (self.options.stop, &*self.progress);
        let say = |doing: &str| progress.set_message(&format!("{what}, {name}: {doing}"));
        let mut recorder = Recorder::new(round, &say, stop);
        let measured = recorder.next("").map_err(BoxError::from);
        let measured = measured.and_then(|()| {
            self.lab.settle();
            subject.measure(&mut recorder)
        });
        measured.map_err(|failure| {
            if failure.is::<StopRequested>() {
                return self.stopped();
            }
            LabError::of(self.experiment.name, &name, &failure)
        })?;
        let seconds = self.lab.env.clock.now().saturating_sub(began).as_secs_f64();
        Ok(JournalEntry { subject: 0, round, seconds, records: recorder.into_records() })
    }

    fn stopped(&self) -> LabError {
        LabError::Stopped(format!(
            "stopped in {}; {} of its repetitions are kept in {}; the same command with \
             --resume continues",
            self.experiment.name,
            self.entries.len(),
            self.options.out.display()
        ))
    }
}

fn settings_of(experiment: &Experiment, lab: &LabContext<'_>) -> Vec<(String, String)> {
    let Some(data) = lab.data else {
        return (experiment.options.settings)(lab.scale);
    };
    let rows = [
        ("keys and queries", format!("{}, XXH3 {:016x}", data.name, data.digest)),
        ("puts", data.puts.len().to_string()),
        ("gets", data.gets.len().to_string()),
        ("of these of keys that were never put", data.missing.len().to_string()),
    ];
    let own = owned_settings(rows).into_iter();
    let made = |(name, _): &(String, String)| !["keys", "values", "reads"].contains(&name.as_str());
    own.chain((experiment.options.settings)(lab.scale).into_iter().filter(made)).collect()
}

/// Returns every engine's version, by opening a store of it.
///
/// # Errors
/// [`LabError::Failed`].
pub fn engine_notes(lab: &LabContext<'_>) -> Result<Vec<EngineNote>, LabError> {
    let note = |engine: &Engine| -> crate::engine::Result<EngineNote> {
        let folder = lab.folder(&format!("{}-version", engine.name))?;
        let store = folder.open(engine, &EngineSettings::default())?;
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
    let describe = |engine: &Engine| {
        note(engine).map_err(|failure| LabError::of("engines", engine.name, &failure))
    };
    lab.engines.iter().map(describe).collect()
}

/// Builds the outcome from the repetitions of an experiment.
pub fn outcome_of(
    experiment: &Experiment,
    heading: JournalHeading,
    entries: &[JournalEntry],
) -> Outcome {
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
    // Points are in the order of the list, whichever subject had the first turn.
    let mut sorted: Vec<&JournalEntry> = entries.iter().collect();
    sorted.sort_by_key(|entry| (entry.round, entry.subject));
    for record in sorted.into_iter().flat_map(|entry| &entry.records) {
        let (series, x, figure) = (&record.series, &record.x, &record.figure);
        outcome.add(series, x, figure, record.repetition.clone());
    }
    outcome
}

/// Returns the order in which the repetitions were measured.
fn order_of(subjects: Vec<String>, entries: &[JournalEntry]) -> Order {
    let last = entries.iter().map(|entry| entry.round).max();
    let turns = |round: u32| {
        let of_round = entries.iter().filter(|entry| entry.round == round);
        of_round.map(|entry| entry.subject).collect()
    };
    let rounds = (0..last.map_or(0, |last| last + 1)).map(turns).collect();
    Order { subjects, rounds }
}

/// Returns the largest needs of several experiments.
pub fn resource_peak(experiments: &[&'static Experiment], lab: &LabContext<'_>) -> ResourceNeeds {
    let needs = experiments.iter().map(|experiment| (experiment.options.needs)(lab.scale));
    needs.fold(ResourceNeeds { disk_bytes: 0, memory_bytes: 0 }, |peak, needs| ResourceNeeds {
        disk_bytes: peak.disk_bytes.max(needs.disk_bytes),
        memory_bytes: peak.memory_bytes.max(needs.memory_bytes),
    })
}

/// Marker file of a stores folder that this program created.
const STORES_MARKER: &str = "made-by-umbel-lab";

/// Returns the folder for stores: this program's own folder inside the named one, emptied of
/// leftovers of a killed run.
///
/// # Errors
/// [`LabError::Usage`] for an empty path, otherwise [`LabError::System`].
pub fn stores_in(folder: &Path) -> Result<PathBuf, LabError> {
    LabError::check_path("the directory of stores", folder)?;
    let stores = folder.join("umbel-lab-stores");
    let mark = stores.join(STORES_MARKER);
    let is_there = |path: &Path| path.symlink_metadata().is_ok();
    if is_there(&stores) && !is_there(&mark) {
        return Err(LabError::System(format!(
            "{} exists and was not made by umbel lab; move it away, or choose another directory \
             with --stores DIR",
            stores.display()
        )));
    }
    let made = remove(&stores)
        .and_then(|()| std::fs::create_dir_all(&stores))
        .and_then(|()| std::fs::write(&mark, "umbel lab removes the contents of this folder\n"));
    made.map_err(|error| {
        LabError::System(format!("could not create the directory {}: {error}", stores.display()))
    })?;
    Ok(stores)
}
