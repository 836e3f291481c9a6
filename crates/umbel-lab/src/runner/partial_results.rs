//! Results of stopped runs: the rounds in which every subject was measured.

use std::path::Path;

use umbel_env::{Access, Env};

use crate::experiment::Experiment;
use crate::experiments::ALL;
use crate::lab_error::LabError;
use crate::results::journal::{self, JournalEntry, ParsedJournal};
use crate::results::result_file;
use crate::runner::run_experiment;

/// Makes a result from the complete rounds of each stopped run without a result in this folder. The
/// repetitions stay for `--resume`. Returns a sentence for each run.
///
/// # Errors
/// [`LabError::Damaged`] for a damaged journal, [`LabError::System`].
pub fn save_whole_rounds(env: &Env, out: &Path) -> Result<Vec<String>, LabError> {
    let mut paragraphs = Vec::new();
    for experiment in ALL {
        let (left, result) =
            (journal::path_of(out, experiment.name), result_file::path_of(out, experiment.name));
        let exists = |path: &Path| {
            let exists = env.files.exists(path);
            exists.map_err(|error| LabError::System(format!("{}: {error}", path.display())))
        };
        if exists(&left)? && !exists(&result)? {
            paragraphs.push(save_one(env, experiment, &left, &result)?);
        }
    }
    Ok(paragraphs)
}

fn save_one(
    env: &Env,
    experiment: &Experiment,
    left: &Path,
    result: &Path,
) -> Result<String, LabError> {
    let refused = |error| LabError::System(format!("could not read {}: {error}", left.display()));
    let file = env.files.open(left, Access::Read).map_err(refused)?;
    let mut text = vec![0; file.len().map_err(refused)? as usize];
    file.read_exact_at(&mut text, 0).map_err(refused)?;
    let parsed = journal::parse(left, &text)?;
    let Some(ParsedJournal { mut heading, mut entries, rejected, .. }) = parsed else {
        return Ok(format!("{}: nothing was measured yet", experiment.name));
    };
    let requested = heading.rounds;
    heading.rounds = complete_rounds(&entries, heading.subjects.len());
    if heading.rounds == 0 {
        return Ok(format!("{}: the first round is not complete yet", experiment.name));
    }
    entries.retain(|entry| entry.round < heading.rounds);
    let rounds = heading.rounds;
    result_file::save(env, result, &run_experiment::outcome_of(experiment, heading, &entries))?;
    let rejected: String = rejected.iter().map(|line| format!("\n{line}")).collect();
    Ok(format!(
        "{}: {rounds} complete rounds of a stopped run; {requested} were requested, and more \
         where too few repetitions count{rejected}",
        experiment.name
    ))
}

/// Returns the number of rounds, from the first, that have an entry of each subject.
fn complete_rounds(entries: &[JournalEntry], subjects: usize) -> u32 {
    let of_round = |round: u32| entries.iter().filter(|entry| entry.round == round).count();
    (0..).take_while(|&round| subjects > 0 && of_round(round) == subjects).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(subject: usize, round: u32) -> JournalEntry {
        JournalEntry { subject, round, seconds: 1.0, records: Vec::new() }
    }

    #[test]
    fn a_round_counts_once_each_subject_had_a_turn() {
        assert_eq!(complete_rounds(&[], 2), 0);
        assert_eq!(complete_rounds(&[], 0), 0);
        assert_eq!(complete_rounds(&[entry(0, 0)], 2), 0);
        assert_eq!(complete_rounds(&[entry(0, 0), entry(1, 0), entry(1, 1)], 2), 1);
        // Without the second round, the third does not count.
        let gap = [entry(0, 0), entry(1, 0), entry(1, 1), entry(0, 2), entry(1, 2)];
        assert_eq!(complete_rounds(&gap, 2), 1);
        assert_eq!(complete_rounds(&[entry(1, 1), entry(0, 1), entry(1, 0), entry(0, 0)], 2), 2);
    }
}
