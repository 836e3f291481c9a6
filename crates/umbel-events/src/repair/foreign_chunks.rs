//! Whole chunks of another store under names that this one's could have, where no table tells them
//! apart.
//!
//! The streams tell: in the chunks of one store the revisions of a stream only rise, and in the
//! next chunk that has events of it they go on. Of chunks that contradict each other the longest
//! row stays in which none does; one of which the index knows nothing counts little there. An
//! index alone is not enough: that of another store, into which this one wrote, knows later chunks
//! and not the first.

use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, HashMap};
use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_env::Env;

use super::examine::Candidate;
use super::misplaced::{Outline, unplaced};
use super::old_index::OldIndex;
use super::own_index::{DENIED, count_known};
use super::survey::{ChunkFile, Found, Survey};
use crate::error::Result;

/// Of more streams, counted in each chunk, a share is looked at.
const STREAMS_MOST: usize = 1 << 22;
/// Of more chunks the one with the most contradictions goes before others are compared.
const COMPARED_MOST: usize = 256;

/// What a chunk counts in a row of those that fit, ...
const CHUNK: i64 = 4;
/// ... where the table proves it, ...
const PROVEN: i64 = 1 << 32;
/// ... where the streams go on from one to the next, ...
const JOINED: i64 = 2;
/// ... and where the time does not.
const RETURNS: i64 = -1;

/// Takes the chunks of other stores out of the candidates, which rise, and notes them.
pub fn take_out(
    env: &Env,
    folder: &Path,
    files: &[ChunkFile],
    index: Option<&OldIndex>,
    candidates: &mut Vec<Candidate>,
    survey: &mut Survey,
) -> Result<()> {
    let mut row = Row::of(env, folder, candidates, survey)?;
    if let Some(index) = index {
        let denied = denied(env, folder, files, index, candidates, survey)?;
        row.chunks.iter_mut().for_each(|chunk| chunk.is_denied = denied.contains(&chunk.id));
    }
    for id in row.intruders() {
        if let Some(at) = candidates.iter().position(|other| other.found.entry.id == id) {
            let candidate = candidates.remove(at);
            survey.unplaced.push(unplaced(&candidate));
            survey.strangers.push(candidate.name);
        }
    }
    Ok(())
}

/// The ids of the candidates of which an index that knows most of the chunks knows nothing. One of
/// several files of a chunk may be from before a scavenge, whose events it forgot.
fn denied(
    env: &Env,
    folder: &Path,
    files: &[ChunkFile],
    index: &OldIndex,
    candidates: &[Candidate],
    survey: &Survey,
) -> Result<BTreeSet<u64>> {
    let (mut agree, mut disagree, mut denied) = (0, 0, BTreeSet::new());
    let whole = survey.chunks.iter().filter(|found| found.damage.is_none());
    let own = whole.map(|found| (found, false));
    let others = candidates.iter().map(|candidate| (&candidate.found, true));
    for (found, may_be_denied) in own.chain(others) {
        let id = found.entry.id;
        let (asked, known) = count_known(index, env, folder, found)?;
        agree += usize::from(known * 2 > asked);
        disagree += usize::from(known * 2 <= asked && asked > 0);
        let is_only = files.iter().filter(|file| file.id == id).count() < 2;
        if may_be_denied && is_only && known == 0 && asked >= DENIED {
            denied.insert(id);
        }
    }
    Ok(if agree > disagree { denied } else { BTreeSet::new() })
}

/// What is known of a chunk.
struct Known {
    id: u64,
    /// Whether the table proves it.
    is_proven: bool,
    /// Whether the index knows nothing of it.
    is_denied: bool,
    is_out: bool,
    /// Whether it has no events.
    is_empty: bool,
    /// When its first and its last event were appended.
    created: (u64, u64),
    /// The first and the last revision of each stream, by a hash of its name.
    streams: HashMap<u64, (u64, u64)>,
}

/// The chunks, by their ids.
struct Row {
    chunks: Vec<Known>,
}

/// Which chunks contradict others, and which go on in others.
#[derive(Debug, Default)]
struct Fit {
    /// In how many streams revisions of a chunk do not rise from or to another.
    conflicts: Vec<u64>,
    /// In how many they go on without a hole.
    joined: Vec<u64>,
}

impl Known {
    /// What is between this chunk and a later one, in a row; `None` where they contradict.
    fn before(&self, later: &Known) -> Option<i64> {
        let is_larger = self.streams.len() > later.streams.len();
        let (less, more) = if is_larger { (later, self) } else { (self, later) };
        let (mut shared, mut joined) = (0, 0);
        for (hash, ends) in &less.streams {
            let Some(others) = more.streams.get(hash) else { continue };
            let (last, first) = if is_larger { (others.1, ends.0) } else { (ends.1, others.0) };
            if last >= first {
                return None;
            }
            shared += 1;
            joined += u64::from(last + 1 == first);
        }
        let joined = if joined * 2 > shared { JOINED } else { 0 };
        let returns = if self.created.1 > later.created.0 { RETURNS } else { 0 };
        Some(joined + returns)
    }

    fn weight(&self) -> i64 {
        match (self.is_proven, self.is_denied) {
            (true, _) => PROVEN,
            (false, true) => 0,
            (false, false) => CHUNK,
        }
    }
}

impl Row {
    fn of(env: &Env, folder: &Path, candidates: &[Candidate], survey: &Survey) -> Result<Row> {
        let whole = survey.chunks.iter().filter(|found| found.damage.is_none());
        let others = candidates.iter().map(|candidate| (&candidate.found, false));
        let mut found: Vec<(&Found, bool)> = whole.map(|f| (f, true)).chain(others).collect();
        found.sort_by_key(|(found, _)| found.entry.id);
        // Nobody who names streams knows which names have the same hash.
        let mut secret = [0; 8];
        env.entropy.fill(&mut secret)?;
        let secret = u64::from_le_bytes(secret);
        let (mut chunks, mut count, mut share) = (Vec::new(), 0, 0);
        for (found, is_proven) in found {
            let outline = Outline::of(env, folder, found)?;
            let hashed = outline
                .streams
                .iter()
                .map(|(name, revisions)| (checksum(secret, 0, name.as_bytes()), *revisions));
            let streams: HashMap<u64, (u64, u64)> =
                hashed.filter(|(hash, _)| hash & share == 0).collect();
            count += streams.len();
            let (id, created) = (found.entry.id, outline.created);
            let (is_denied, is_empty) = (false, outline.positions.is_none());
            let is_out = is_empty;
            chunks.push(Known { id, is_proven, is_denied, is_out, is_empty, created, streams });
            while count > STREAMS_MOST {
                share = share << 1 | 1;
                chunks.iter_mut().for_each(|c| c.streams.retain(|hash, _| hash & share == 0));
                count = chunks.iter().map(|chunk| chunk.streams.len()).sum();
            }
        }
        Ok(Row { chunks })
    }

    /// Which of the chunks that are left contradict others.
    fn fit(&self) -> Fit {
        let none = vec![0; self.chunks.len()];
        let mut fit = Fit { conflicts: none.clone(), joined: none };
        // The last revision of each stream, and the chunk that has it.
        let mut newest: HashMap<u64, (u64, usize)> = HashMap::new();
        for (number, chunk) in self.chunks.iter().enumerate().filter(|(_, chunk)| !chunk.is_out) {
            for (hash, (first, last)) in &chunk.streams {
                let (before, other) = match newest.entry(*hash) {
                    Entry::Vacant(place) => {
                        place.insert((*last, number));
                        continue;
                    }
                    Entry::Occupied(mut place) if place.get().0 < *first => {
                        place.insert((*last, number))
                    }
                    Entry::Occupied(place) => *place.get(),
                };
                let counts = match before >= *first {
                    true => &mut fit.conflicts,
                    false if before + 1 == *first => &mut fit.joined,
                    false => continue,
                };
                counts[other] += 1;
                counts[number] += 1;
            }
        }
        fit
    }

    /// The ids of the chunks that have to go, until no two contradict each other: those that the
    /// index denies and in which no stream goes on, and those that are not in the best row.
    fn intruders(&mut self) -> Vec<u64> {
        loop {
            let fit = self.fit();
            let may_go = |(_, chunk): &(usize, &Known)| !chunk.is_out && !chunk.is_proven;
            let numbered = self.chunks.iter().enumerate().filter(may_go);
            let alone = numbered.clone().find(|(at, c)| c.is_denied && fit.joined[*at] == 0);
            let worst = numbered.clone().max_by_key(|(at, _)| fit.conflicts[*at]);
            let worst = worst.filter(|(at, _)| fit.conflicts[*at] > 0);
            let Some((worst, _)) = alone.or(worst) else { break };
            let left = self.chunks.iter().filter(|chunk| !chunk.is_out).count();
            if alone.is_none() && left <= COMPARED_MOST {
                let row = self.best_row();
                let contradicts = numbered.filter(|(at, _)| fit.conflicts[*at] > 0);
                let numbers = contradicts.map(|(at, _)| at);
                let gone: Vec<usize> = numbers.filter(|at| !row.contains(at)).collect();
                if !gone.is_empty() {
                    gone.into_iter().for_each(|at| self.chunks[at].is_out = true);
                    continue;
                }
            }
            self.chunks[worst].is_out = true;
        }
        self.chunks.iter().filter(|c| c.is_out && !c.is_empty).map(|chunk| chunk.id).collect()
    }

    /// The numbers of the chunks in the row that counts most and in which none contradicts the one
    /// before it.
    fn best_row(&self) -> BTreeSet<usize> {
        let left = self.chunks.iter().enumerate().filter(|(_, chunk)| !chunk.is_out);
        // What the best row counts that ends with each, and the one before it.
        let mut rows: Vec<(usize, i64, Option<usize>)> = Vec::new();
        for (number, chunk) in left {
            let longer = rows.iter().enumerate().filter_map(|(at, (before, count, _))| {
                Some((count + self.chunks[*before].before(chunk)?, Some(at)))
            });
            let (count, at) = longer.max_by_key(|(count, _)| *count).unwrap_or((0, None));
            rows.push((number, count.max(0) + chunk.weight(), at.filter(|_| count > 0)));
        }
        let last = rows.iter().enumerate().max_by_key(|(_, (_, count, _))| *count);
        let mut next = last.map(|(at, _)| at);
        let mut row = BTreeSet::new();
        while let Some(at) = next {
            row.insert(rows[at].0);
            next = rows[at].2;
        }
        row
    }
}
