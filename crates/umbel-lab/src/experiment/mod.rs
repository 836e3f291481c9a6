//! Definition of an experiment: question, figures, and the published results.

use crate::engine::{Engine, Result, TunableSettings};
use crate::experiment::lab_context::LabContext;
use crate::results::outcome::{Better, Outcome, Scale};
use crate::results::sample_recorder::Recorder;

pub mod lab_context;

/// An experiment, as a table of facts and three functions.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// The experiment's name on the command line.
    pub name: &'static str,
    /// The experiment's title.
    pub title: &'static str,
    /// The question that the experiment answers.
    pub question: &'static str,
    /// The expected result, and the source of the expectation.
    pub hypothesis: &'static str,
    /// Source of the question.
    pub source: ArticleSource,
    /// Property in which the points of a series differ.
    pub axis: &'static str,
    /// Figures that are measured.
    pub figures: &'static [Figure],
    /// Results that articles published.
    pub seeds: &'static [PublishedSeries],
    /// Setup of the measurement.
    pub options: ExperimentOptions,
    /// Subjects that are measured.
    pub subjects: fn(&LabContext<'_>) -> Result<Subjects>,
    /// Returns the interpretation of the figures, one paragraph each.
    pub meaning: fn(&Outcome) -> Vec<String>,
}

/// Setup of an experiment, shared by the experiments of one article.
#[derive(Clone, Copy)]
pub struct ExperimentOptions {
    /// Returns the sizes of this scale in words.
    pub settings: fn(Scale) -> Vec<(String, String)>,
    /// Returns the disk space and memory that the experiment needs at this scale.
    pub needs: fn(Scale) -> ResourceNeeds,
    /// Number of measurements of each subject.
    pub rounds: fn(Scale) -> u32,
    /// Whether several engines can be measured in one run.
    pub several_engines: bool,
    /// Whether the first subject is measured once, uncounted, before the rounds.
    pub warms_up: bool,
    /// Whether the experiment can be run with the user's own keys and queries.
    pub takes_data: bool,
    /// Returns the reason why an engine with these tunable settings cannot be measured; `None` if
    /// it can be.
    pub unsupported: fn(&TunableSettings) -> Option<&'static str>,
}

/// Source of a question.
#[derive(Debug, Clone, Copy)]
pub struct ArticleSource {
    /// The article or system.
    pub name: &'static str,
    /// Part of it.
    pub part: &'static str,
}

/// Figure to measure.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// The figure's name.
    pub name: &'static str,
    /// The figure's unit.
    pub unit: &'static str,
    /// Better direction.
    pub better: Better,
    /// Whether the figure has a plot of its own.
    pub plot: bool,
}

/// A series that an article published.
#[derive(Debug, Clone, Copy)]
pub struct PublishedSeries {
    /// Name of the published series.
    pub series: &'static str,
    /// Our series with which the published series is compared.
    pub beside: &'static str,
    /// Name of the figure.
    pub figure: &'static str,
    /// The figure's unit in the article.
    pub unit: &'static str,
    /// The place on the axis and the value of each point.
    pub points: &'static [(&'static str, f64)],
}

/// Resources that an experiment needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceNeeds {
    /// Bytes on the disk.
    pub disk_bytes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// Returns settings in words as owned strings, as results keep them.
pub fn owned_settings<const COUNT: usize>(
    settings: [(&str, String); COUNT],
) -> Vec<(String, String)> {
    settings.map(|(name, value)| (name.to_string(), value)).to_vec()
}

/// All subjects that an experiment measures, in their listed order.
pub type Subjects = Vec<Box<dyn Subject>>;

/// A subject that is measured once in each round.
pub trait Subject {
    /// Returns the subject's name in the progress line.
    fn name(&self) -> String;

    /// Measures the subject once.
    ///
    /// # Errors
    /// The error of the measurement. The round then does not count.
    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()>;
}

/// Finds the experiment of this name.
///
/// # Errors
/// A sentence that names the nearest experiment.
pub fn find(
    name: &str,
    all: &[&'static Experiment],
) -> std::result::Result<&'static Experiment, String> {
    if let Some(found) = all.iter().find(|experiment| experiment.name == name) {
        return Ok(found);
    }
    let apart = |experiment: &&&Experiment| strsim::damerau_levenshtein(experiment.name, name);
    let nearest = all.iter().min_by_key(apart);
    let nearest = nearest.filter(|experiment| apart(experiment) <= name.len() / 2 + 1);
    let hint =
        nearest.map_or_else(String::new, |found| format!("; did you mean `{}`?", found.name));
    Err(format!("there is no experiment `{name}`{hint} (`umbel lab list` names all)"))
}

/// Finds the engine of this name.
///
/// # Errors
/// A sentence that names the available engines.
pub fn engine_named(name: &str, engines: &[Engine]) -> std::result::Result<Engine, String> {
    match engines.iter().find(|engine| engine.name == name) {
        Some(Engine { missing_reason: Some(why), .. }) => {
            Err(format!("the engine `{name}` is not in this program: {why}"))
        }
        Some(engine) => Ok(*engine),
        None => {
            let known: Vec<&str> = engines.iter().map(|engine| engine.name).collect();
            Err(format!(
                "there is no engine `{name}` in this program, but {}; `cargo xtask rivals lab` \
                 builds one with all rivals",
                known.join(", ")
            ))
        }
    }
}
