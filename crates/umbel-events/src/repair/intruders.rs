//! Whole chunks of another store under names that this one's could have, where no table tells them
//! apart.
//!
//! The streams tell: in the chunks of one store the revisions of a stream only rise, and in the
//! next chunk that has events of it they go on. The chunk that contradicts most others is moved
//! aside, or one of which the index knows nothing. An index alone is not enough: that of another
//! store, into which this one wrote, knows later chunks and not the first.

use std::cmp::Reverse;
use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_env::Env;

use super::copies::open_index;
use super::examine::Candidate;
use super::misplaced::{Outline, unplaced};
use super::own_index::{DENIED, count_known};
use super::survey::{Found, Survey};
use crate::error::Result;

/// Takes the chunks of other stores out of the candidates, which rise, and notes them.
pub fn take_out(
    env: &Env,
    folder: &Path,
    candidates: &mut Vec<Candidate>,
    survey: &mut Survey,
) -> Result<()> {
    let mut conflicts = Conflicts::of(env, folder, candidates, survey)?;
    conflicts.denied = denied(env, folder, candidates, survey)?;
    while let Some(id) = conflicts.worst() {
        conflicts.forget(id);
        if let Some(at) = candidates.iter().position(|other| other.found.entry.id == id) {
            let candidate = candidates.remove(at);
            survey.unplaced.push(unplaced(&candidate));
            survey.strangers.push(candidate.name);
        }
    }
    Ok(())
}

/// The ids of the candidates of which an index that knows most of the chunks knows nothing.
fn denied(
    env: &Env,
    folder: &Path,
    candidates: &[Candidate],
    survey: &Survey,
) -> Result<BTreeSet<u64>> {
    let Some(index) = open_index(env, folder, survey)? else { return Ok(BTreeSet::new()) };
    let (mut agree, mut disagree, mut denied) = (0, 0, BTreeSet::new());
    let whole = survey.chunks.iter().filter(|found| found.damage.is_none());
    let own = whole.map(|found| (found, false));
    let others = candidates.iter().map(|candidate| (&candidate.found, true));
    for (found, may_be_denied) in own.chain(others) {
        let (asked, known) = count_known(&index, env, folder, found)?;
        agree += usize::from(known * 2 > asked);
        disagree += usize::from(known * 2 <= asked && asked > 0);
        if may_be_denied && known == 0 && asked >= DENIED {
            denied.insert(found.entry.id);
        }
    }
    Ok(if agree > disagree { denied } else { BTreeSet::new() })
}

/// Which chunks cannot be of one store.
#[derive(Default)]
struct Conflicts {
    /// In how many streams two chunks, by their ids, contradict each other.
    pairs: BTreeMap<(u64, u64), u64>,
    /// In how many streams a chunk goes on from an earlier one, or a later one from it.
    joined: BTreeMap<u64, u64>,
    /// The chunks that the table proves.
    proven: BTreeSet<u64>,
    /// Those of which the index knows nothing.
    denied: BTreeSet<u64>,
}

impl Conflicts {
    fn of(
        env: &Env,
        folder: &Path,
        candidates: &[Candidate],
        survey: &Survey,
    ) -> Result<Conflicts> {
        let mut conflicts = Conflicts::default();
        let whole = survey.chunks.iter().filter(|found| found.damage.is_none());
        let whole: Vec<&Found> = whole.collect();
        conflicts.proven = whole.iter().map(|found| found.entry.id).collect();
        let own = candidates.iter().map(|candidate| &candidate.found);
        let mut chunks: Vec<&Found> = whole.into_iter().chain(own).collect();
        chunks.sort_by_key(|found| found.entry.id);
        // The last revision of each stream, by a hash of its name, and the chunk that has it.
        let mut newest: HashMap<u64, (u64, u64)> = HashMap::new();
        for found in chunks {
            let id = found.entry.id;
            for (name, (first, last)) in Outline::of(env, folder, found)?.streams {
                match newest.entry(checksum(0, 0, name.as_bytes())) {
                    Entry::Vacant(place) => drop(place.insert((last, id))),
                    Entry::Occupied(place) if place.get().0 >= first => {
                        *conflicts.pairs.entry((place.get().1, id)).or_default() += 1;
                    }
                    Entry::Occupied(mut place) => {
                        let (before, other) = place.insert((last, id));
                        if before + 1 == first {
                            *conflicts.joined.entry(other).or_default() += 1;
                            *conflicts.joined.entry(id).or_default() += 1;
                        }
                    }
                }
            }
        }
        Ok(conflicts)
    }

    /// A chunk that has to go: one that the index denies and in which no stream goes on, else the
    /// one that most others contradict, of several the one that goes on in fewer streams.
    fn worst(&self) -> Option<u64> {
        let joined = |id: &u64| self.joined.get(id).copied().unwrap_or(0);
        if let Some(id) = self.denied.iter().find(|id| joined(id) == 0) {
            return Some(*id);
        }
        let mut weights: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for ((one, other), count) in &self.pairs {
            for id in [one, other] {
                let (partners, streams) = weights.entry(*id).or_default();
                (*partners, *streams) = (*partners + 1, *streams + count);
            }
        }
        let weights = weights.into_iter().filter(|(id, _)| !self.proven.contains(id));
        let worst = weights.max_by_key(|(id, (partners, streams))| {
            (self.denied.contains(id), *partners, Reverse(joined(id)), *streams)
        });
        worst.map(|(id, _)| id)
    }

    /// Leaves a chunk out.
    fn forget(&mut self, id: u64) {
        self.denied.remove(&id);
        self.pairs.retain(|(one, other), _| *one != id && *other != id);
    }
}
