//! Whole chunks of another store under names that chunks of this store could have, where no
//! manifest distinguishes them.
//!
//! The streams show which chunks belong together. Within the chunks of one store the revisions of a
//! stream only rise, and continue in the next chunk that has events of the stream. If chunks
//! contradict each other, the sequence of chunks with the highest score and without a contradiction
//! stays. A chunk of which the index knows nothing has little weight in a sequence. The index alone
//! does not suffice. If this store wrote into another store's log, that store's index knows later
//! chunks but not the first.

use std::collections::BTreeSet;
use std::collections::hash_map::{Entry, HashMap};
use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_env::Env;

use crate::repair::index_ownership::{DENIED_EVENTS_MIN, count_indexed};
use crate::repair::inspect_orphan::OrphanChunk;
use crate::repair::log_survey::{ChunkFile, FoundChunk, LogSurvey};
use crate::repair::old_index_events::OldIndexEvents;
use crate::repair::renamed_chunks::{ChunkOutline, unplaced_chunk};
use crate::types::error::Result;

/// If the streams of all chunks, counted once for each chunk, exceed this number, only a sample of
/// the streams is compared.
const SAMPLED_STREAMS_MAX: usize = 1 << 22;
/// If more chunks than this are compared, the chunk with the most contradictions is removed first.
const COMPARED_CHUNKS_MAX: usize = 256;

/// Weight of a chunk in the score of a sequence without contradictions.
const CHUNK_WEIGHT: i64 = 4;
/// Weight of a chunk that the manifest proves.
const PROVEN_WEIGHT: i64 = 1 << 32;
/// Weight of streams that continue from one chunk of a sequence to the next.
const JOINED_WEIGHT: i64 = 2;
/// Weight of a creation time that goes backwards from one chunk of a sequence to the next.
const TIME_REVERSAL_WEIGHT: i64 = -1;

/// Removes the chunks of other stores from the candidates, which are in ascending order, and
/// records the removed chunks.
pub fn remove_foreign(
    env: &Env,
    folder: &Path,
    files: &[ChunkFile],
    index: Option<&OldIndexEvents>,
    candidates: &mut Vec<OrphanChunk>,
    survey: &mut LogSurvey,
) -> Result<()> {
    let mut row = ChunkSequence::of(env, folder, candidates, survey)?;
    if let Some(index) = index {
        let denied = find_denied(env, folder, files, index, candidates, survey)?;
        row.chunks.iter_mut().for_each(|chunk| chunk.is_denied = denied.contains(&chunk.id));
    }
    for id in row.find_foreign() {
        if let Some(at) = candidates.iter().position(|other| other.chunk.entry.id == id) {
            let candidate = candidates.remove(at);
            survey.unplaced.push(unplaced_chunk(&candidate));
            survey.unrelated_files.push(candidate.name);
        }
    }
    Ok(())
}

/// Returns the ids of the candidates of which the index, although it knows most chunks, knows
/// nothing. If a chunk has several files, one may be older than a scavenge whose removed events the
/// index no longer has.
fn find_denied(
    env: &Env,
    folder: &Path,
    files: &[ChunkFile],
    index: &OldIndexEvents,
    candidates: &[OrphanChunk],
    survey: &LogSurvey,
) -> Result<BTreeSet<u64>> {
    let (mut agree, mut disagree, mut denied) = (0, 0, BTreeSet::new());
    let whole = survey.chunks.iter().filter(|found| found.damage.is_none());
    let own = whole.map(|found| (found, false));
    let others = candidates.iter().map(|candidate| (&candidate.chunk, true));
    for (found, may_be_denied) in own.chain(others) {
        let id = found.entry.id;
        let (sampled, known) = count_indexed(index, env, folder, found)?;
        agree += usize::from(known * 2 > sampled);
        disagree += usize::from(known * 2 <= sampled && sampled > 0);
        let is_only = files.iter().filter(|file| file.id == id).count() < 2;
        if may_be_denied && is_only && known == 0 && sampled >= DENIED_EVENTS_MIN {
            denied.insert(id);
        }
    }
    Ok(if agree > disagree { denied } else { BTreeSet::new() })
}

/// Evidence about a chunk.
struct ChunkEvidence {
    id: u64,
    /// Whether the manifest proves the chunk.
    is_proven: bool,
    /// Whether the index knows no event of the chunk.
    is_denied: bool,
    is_removed: bool,
    /// Whether the chunk has no events.
    is_empty: bool,
    /// Times of the first and the last event of the chunk, ordered across the clock epochs.
    times: (u64, u64),
    /// The first and the last revision of each stream, by a hash of its name.
    streams: HashMap<u64, (u64, u64)>,
}

/// The chunks, by their ids.
struct ChunkSequence {
    chunks: Vec<ChunkEvidence>,
}

/// Contradictions and continuations between chunks.
#[derive(Debug, Default)]
struct SequenceConflicts {
    /// For each chunk, the number of streams whose revisions do not rise from or to another chunk.
    conflicts: Vec<u64>,
    /// For each chunk, the number of streams that continue without a gap from or to another chunk.
    joined: Vec<u64>,
}

impl ChunkEvidence {
    /// Returns the score of a sequence in which this chunk precedes a later one; `None` if the two
    /// chunks contradict each other.
    fn score_before(&self, later: &ChunkEvidence) -> Option<i64> {
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
        let joined = if joined * 2 > shared { JOINED_WEIGHT } else { 0 };
        let returns = if self.times.1 > later.times.0 { TIME_REVERSAL_WEIGHT } else { 0 };
        Some(joined + returns)
    }

    fn weight(&self) -> i64 {
        match (self.is_proven, self.is_denied) {
            (true, _) => PROVEN_WEIGHT,
            (false, true) => 0,
            (false, false) => CHUNK_WEIGHT,
        }
    }
}

impl ChunkSequence {
    fn of(
        env: &Env,
        folder: &Path,
        candidates: &[OrphanChunk],
        survey: &LogSurvey,
    ) -> Result<ChunkSequence> {
        let whole = survey.chunks.iter().filter(|found| found.damage.is_none());
        let others = candidates.iter().map(|candidate| (&candidate.chunk, false));
        let mut found: Vec<(&FoundChunk, bool)> = whole.map(|f| (f, true)).chain(others).collect();
        found.sort_by_key(|(found, _)| found.entry.id);
        // A writer that chooses stream names cannot predict which names have the same hash.
        let mut secret = [0; 8];
        env.entropy.fill(&mut secret)?;
        let secret = u64::from_le_bytes(secret);
        let (mut chunks, mut count, mut share) = (Vec::new(), 0, 0);
        for (found, is_proven) in found {
            let outline = ChunkOutline::of(env, folder, &survey.manifest.epochs, found)?;
            let hashed = outline
                .streams
                .iter()
                .map(|(name, revisions)| (checksum(secret, 0, name.as_bytes()), *revisions));
            let streams: HashMap<u64, (u64, u64)> =
                hashed.filter(|(hash, _)| hash & share == 0).collect();
            count += streams.len();
            let (id, times) = (found.entry.id, outline.times);
            let (is_denied, is_empty) = (false, outline.positions.is_none());
            let is_out = is_empty;
            chunks.push(ChunkEvidence {
                id,
                is_proven,
                is_denied,
                is_removed: is_out,
                is_empty,
                times,
                streams,
            });
            while count > SAMPLED_STREAMS_MAX {
                share = share << 1 | 1;
                chunks.iter_mut().for_each(|c| c.streams.retain(|hash, _| hash & share == 0));
                count = chunks.iter().map(|chunk| chunk.streams.len()).sum();
            }
        }
        Ok(ChunkSequence { chunks })
    }

    /// Returns which of the remaining chunks contradict others.
    fn evaluate(&self) -> SequenceConflicts {
        let none = vec![0; self.chunks.len()];
        let mut fit = SequenceConflicts { conflicts: none.clone(), joined: none };
        // The last revision of each stream, and the chunk that has it.
        let mut newest: HashMap<u64, (u64, usize)> = HashMap::new();
        for (number, chunk) in self.chunks.iter().enumerate().filter(|(_, chunk)| !chunk.is_removed)
        {
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

    /// Returns the ids of the chunks to remove so that no two remaining chunks contradict each
    /// other. Removed are chunks outside the best sequence, and chunks that the index denies and in
    /// which no stream continues.
    fn find_foreign(&mut self) -> Vec<u64> {
        loop {
            let fit = self.evaluate();
            let may_go =
                |(_, chunk): &(usize, &ChunkEvidence)| !chunk.is_removed && !chunk.is_proven;
            let numbered = self.chunks.iter().enumerate().filter(may_go);
            let alone = numbered.clone().find(|(at, c)| c.is_denied && fit.joined[*at] == 0);
            let worst = numbered.clone().max_by_key(|(at, _)| fit.conflicts[*at]);
            let worst = worst.filter(|(at, _)| fit.conflicts[*at] > 0);
            let Some((worst, _)) = alone.or(worst) else { break };
            let left = self.chunks.iter().filter(|chunk| !chunk.is_removed).count();
            if alone.is_none() && left <= COMPARED_CHUNKS_MAX {
                let row = self.best_sequence();
                let contradicts = numbered.filter(|(at, _)| fit.conflicts[*at] > 0);
                let numbers = contradicts.map(|(at, _)| at);
                let removed: Vec<usize> = numbers.filter(|at| !row.contains(at)).collect();
                if !removed.is_empty() {
                    removed.into_iter().for_each(|at| self.chunks[at].is_removed = true);
                    continue;
                }
            }
            self.chunks[worst].is_removed = true;
        }
        self.chunks.iter().filter(|c| c.is_removed && !c.is_empty).map(|chunk| chunk.id).collect()
    }

    /// Returns the indexes of the chunks of the sequence with the highest score, among sequences in
    /// which no chunk contradicts the previous one.
    fn best_sequence(&self) -> BTreeSet<usize> {
        let left = self.chunks.iter().enumerate().filter(|(_, chunk)| !chunk.is_removed);
        // The score of the best sequence that ends with each chunk, and the previous chunk in it.
        let mut rows: Vec<(usize, i64, Option<usize>)> = Vec::new();
        for (number, chunk) in left {
            let longer = rows.iter().enumerate().filter_map(|(at, (before, count, _))| {
                Some((count + self.chunks[*before].score_before(chunk)?, Some(at)))
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
