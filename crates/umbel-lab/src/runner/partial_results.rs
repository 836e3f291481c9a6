//! What runs that were stopped have found so far: the rounds in which everybody had a turn.

use std::path::Path;

use umbel_env::{Access, Env};

use crate::experiment::Experiment;
use crate::experiments::ALL;
use crate::journal::{self, Entry, Parsed};
use crate::lab_error::LabError;
use crate::{results, run};

/// Makes a result of the whole rounds of each run that was stopped in this folder and has none.
/// The repetitions stay, so that `--resume` goes on with them. Returns a sentence for each run.
///
/// # Errors
/// [`LabError::Damaged`] where what a run left is not what it wrote, [`LabError::System`].
pub fn save_whole_rounds(env: &Env, out: &Path) -> Result<Vec<String>, LabError> {
    let mut said = Vec::new();
    for experiment in ALL {
        let (left, result) =
            (journal::path_of(out, experiment.name), results::path_of(out, experiment.name));
        let exists = |path: &Path| {
            let exists = env.files.exists(path);
            exists.map_err(|error| LabError::System(format!("{}: {error}", path.display())))
        };
        if exists(&left)? && !exists(&result)? {
            said.push(save_one(env, experiment, &left, &result)?);
        }
    }
    Ok(said)
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
    let Some(Parsed { mut heading, mut entries, rejected, .. }) = parsed else {
        return Ok(format!("{}: nothing was measured yet", experiment.name));
    };
    let asked = heading.rounds;
    heading.rounds = whole_rounds(&entries, heading.subjects.len());
    if heading.rounds == 0 {
        return Ok(format!("{}: nobody's first round is whole yet", experiment.name));
    }
    entries.retain(|entry| entry.round < heading.rounds);
    let rounds = heading.rounds;
    results::save(env, result, &run::outcome_of(experiment, heading, &entries))?;
    let rejected: String = rejected.iter().map(|line| format!("\n{line}")).collect();
    Ok(format!(
        "{}: {rounds} whole rounds of a run that was stopped; {asked} were asked for, and more \
         where too few repetitions count{rejected}",
        experiment.name
    ))
}

/// How many rounds from the first on have an entry of each of so many subjects.
fn whole_rounds(entries: &[Entry], subjects: usize) -> u32 {
    let of_round = |round: u32| entries.iter().filter(|entry| entry.round == round).count();
    (0..).take_while(|&round| subjects > 0 && of_round(round) == subjects).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(subject: usize, round: u32) -> Entry {
        Entry { subject, round, seconds: 1.0, records: Vec::new() }
    }

    #[test]
    fn a_round_is_whole_once_everybody_had_a_turn() {
        assert_eq!(whole_rounds(&[], 2), 0);
        assert_eq!(whole_rounds(&[], 0), 0);
        assert_eq!(whole_rounds(&[entry(0, 0)], 2), 0);
        assert_eq!(whole_rounds(&[entry(0, 0), entry(1, 0), entry(1, 1)], 2), 1);
        // Without the second, the third is not counted.
        let gap = [entry(0, 0), entry(1, 0), entry(1, 1), entry(0, 2), entry(1, 2)];
        assert_eq!(whole_rounds(&gap, 2), 1);
        assert_eq!(whole_rounds(&[entry(1, 1), entry(0, 1), entry(1, 0), entry(0, 0)], 2), 2);
    }
}
