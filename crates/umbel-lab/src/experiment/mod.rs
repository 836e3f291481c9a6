//! What an experiment is: a question, what is measured, and what the articles found.

use crate::engine::{Engine, Result, Tunes};
use crate::lab::Lab;
use crate::outcome::{Better, Outcome, Scale};
use crate::recorder::Recorder;

/// An experiment, as a table of facts and three functions.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// What it asks, as a question.
    pub asks: &'static str,
    /// What one would expect, and where that comes from.
    pub hypothesis: &'static str,
    /// Whose question it is.
    pub source: Source,
    /// What the points of a series differ in.
    pub axis: &'static str,
    /// What is measured.
    pub figures: &'static [Figure],
    /// What others found.
    pub seeds: &'static [Seed],
    /// How it is run.
    pub how: How,
    /// Who is measured.
    pub subjects: fn(&Lab<'_>) -> Result<Subjects>,
    /// What the figures mean, a paragraph each.
    pub meaning: fn(&Outcome) -> Vec<String>,
}

/// How an experiment is run, which those of one article share.
#[derive(Clone, Copy)]
pub struct How {
    /// How it is measured, in words: the sizes of this scale.
    pub settings: fn(Scale) -> Vec<(String, String)>,
    /// What it needs at this scale.
    pub needs: fn(Scale) -> Needs,
    /// How often everybody is measured.
    pub rounds: fn(Scale) -> u32,
    /// Whether several engines can be measured in one run.
    pub several_engines: bool,
    /// Whether the first subject is measured once for nothing before the rounds.
    pub warms_up: bool,
    /// Whether it can be run with the user's own keys and queries.
    pub takes_data: bool,
    /// Why an engine that can be told no more than that cannot be measured; `None` where it can.
    pub wants: fn(&Tunes) -> Option<&'static str>,
}

/// Where a question comes from.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// The article or system.
    pub name: &'static str,
    /// Which part of it.
    pub part: &'static str,
}

/// Something to measure.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Which way is better.
    pub better: Better,
    /// Whether it is worth a plot of its own.
    pub plot: bool,
}

/// A series that an article published.
#[derive(Debug, Clone, Copy)]
pub struct Seed {
    /// What it is called beside ours.
    pub series: &'static str,
    /// Which of our series stands beside it.
    pub beside: &'static str,
    /// Which figure.
    pub figure: &'static str,
    /// Its unit in the article.
    pub unit: &'static str,
    /// The place and the value of each point.
    pub points: &'static [(&'static str, f64)],
}

/// What an experiment takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Bytes on the disk.
    pub disk_bytes: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// Settings in words, as results keep them.
pub fn named<const COUNT: usize>(said: [(&str, String); COUNT]) -> Vec<(String, String)> {
    said.map(|(name, value)| (name.to_string(), value)).to_vec()
}

/// Everybody who is measured, in the order of each round.
pub type Subjects = Vec<Box<dyn Subject>>;

/// Somebody who is measured once in each round.
pub trait Subject {
    /// What it is called in the progress line.
    fn name(&self) -> String;

    /// Measures once.
    ///
    /// # Errors
    /// What went wrong. The round does not count.
    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()>;
}

/// The experiment of this name, or the name that comes nearest.
///
/// # Errors
/// A sentence that says what there is.
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

/// The engine of this name.
///
/// # Errors
/// A sentence that says which there are.
pub fn engine_named(name: &str, engines: &[Engine]) -> std::result::Result<Engine, String> {
    match engines.iter().find(|engine| engine.name == name) {
        Some(Engine { missing: Some(why), .. }) => Err(format!("`{name}` is not here: {why}")),
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
