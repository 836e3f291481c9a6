//! What a repair is going to do, and what it has to report: made before anything is changed.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use umbel_env::{Access, Env};

use super::ends;
use super::examine::is_prepared;
use super::old_index::{KnownEvent, KnownEvents, OldIndex};
use super::own_index;
use super::report::{ChunkRepair, LostRange, LostRevisions, RepairOptions, RepairReport};
use super::salvage::{KnownPart, Lost, Saved, Source};
use super::survey::{Found, Survey, chunk_files, read_file};
use crate::chunk::FIRST_EVENT_AT;
use crate::chunk_table::{ChunkTable, Ended, Packed, version_path};
use crate::error::Result;
use crate::event::{EventId, NewEvent, Position};
use crate::format::{FRAME_HEADER_BYTES, Frame, Place, Stamp};
use crate::limits::REVISION_MAX;
use crate::packed::{self, Gaps, Packer, Points};

/// The type of an event that is lost with everything that would tell its type.
const UNKNOWN_TYPE: &str = "$lost";

/// What is wrong with an index that knows other streams than the event log has.
const OTHER_INDEX: &str = "what it holds is not what the event log holds: it is of another store";

/// What is going to be done.
#[derive(Debug)]
pub struct Plan {
    /// The table of the repaired store, but for the chunks that are written anew.
    pub table: ChunkTable,
    /// The generation of the table on the disk; 0 where that cannot be read.
    pub generation: u64,
    /// Whether the store's seed is lost.
    pub is_seed_new: bool,
    /// The chunks that are written anew.
    pub rebuilds: Vec<Rebuild>,
    /// Files that have to be made durable before the table says that they have ended.
    pub unsynced: Vec<PathBuf>,
    /// The names of the streams in the rebuilds' events.
    pub streams: Vec<String>,
    /// What is said about it.
    pub report: RepairReport,
}

/// A chunk that is written anew with what was saved of it.
#[derive(Debug)]
pub struct Rebuild {
    /// Which of the table's chunks it is.
    pub number: usize,
    id: u64,
    start: u64,
    /// The file that was found.
    path: PathBuf,
    /// The version of the new file.
    version: u64,
    /// Where in the file that was found the events begin that were saved.
    offsets: Vec<u64>,
    /// Events that the index knows and that were not saved.
    missing: Vec<KnownEvent>,
    /// What had been scavenged before.
    gaps: Gaps,
}

impl Plan {
    /// Makes the plan. Reads all that is damaged, and the index, or says why that is not believed.
    pub fn make(
        env: &Env,
        folder: &Path,
        index: Option<core::result::Result<OldIndex, String>>,
        mut survey: Survey,
        options: RepairOptions,
    ) -> Result<Plan> {
        let (index, mut index_damage) = match index {
            Some(Ok(index)) => match own_index::is_of(&index, env, folder, &mut survey)? {
                true => (Some(index), None),
                false => (None, Some(OTHER_INDEX.to_string())),
            },
            Some(Err(reason)) => (None, Some(reason)),
            None => (None, None),
        };
        if let Some(damage) = survey.remains_damage.take() {
            index_damage.get_or_insert_with(|| {
                format!("it may hold what stood in a chunk that was written anew, but {damage}")
            });
        }
        let furthest = if let Some(index) = &index {
            ends::note_holes(&mut survey, index)?;
            ends::note_behind(&mut survey, index.furthest()?, "index");
            index.furthest()?
        } else {
            ends::note_short(&mut survey);
            ends::note_uncovered(env, folder, &mut survey)
        };
        let mut plan = Plan {
            table: survey.table.clone(),
            generation: survey.generation,
            is_seed_new: survey.is_seed_lost,
            rebuilds: Vec::new(),
            unsynced: Vec::new(),
            streams: Vec::new(),
            report: RepairReport {
                table: survey.table_damage.clone(),
                strangers: survey.strangers.clone(),
                unplaced: survey.unplaced.clone(),
                existence: survey.existence_damage.clone(),
                is_end_unknown: ends::is_end_unknown(&survey, furthest),
                index_through: index.as_ref().map(|index| Position(index.through)),
                ..RepairReport::default()
            },
        };
        let known = known_events(index.as_ref(), &survey)?;
        plan.table.chunks = survey.chunks.iter().map(|found| found.entry).collect();
        plan.table.scavenge_from = 0;
        for (number, found) in survey.chunks.iter().enumerate() {
            if found.is_unsynced && found.damage.is_none() {
                plan.unsynced.push(found.entry.path(folder));
            }
            if found.damage.is_some() {
                plan.add(env, folder, (number, found), &known, options)?;
            }
        }
        plan.streams = known.streams;
        plan.note_lost(env, folder, &survey)?;
        plan.report.index = match index_damage {
            None if survey.is_damaged() => Some("it is made of the event log".to_string()),
            damage => damage,
        };
        Ok(plan)
    }

    /// Whether anything has to be done.
    pub fn is_needed(&self) -> bool {
        !self.report.is_whole()
    }

    /// Finds out what can be saved of a damaged chunk.
    fn add(
        &mut self,
        env: &Env,
        folder: &Path,
        (number, found): (usize, &Found),
        known: &KnownEvents,
        options: RepairOptions,
    ) -> Result<()> {
        let entry = found.entry;
        let path = found.path(folder);
        let range = (entry.start, entry.start + entry.capacity);
        // Nothing in the file of another store is this one's.
        let is_foreign = found.is_foreign || found.is_unproven && known.between(range).is_empty();
        let bytes = if is_foreign { Vec::new() } else { read_file(env, &path)? };
        let part = self.report.index_through.map(|through| KnownPart {
            events: known.between(range),
            streams: &known.streams,
            through: through.0,
        });
        let known = known.between(range);
        let (mut saved, gaps) = match entry.packed {
            Some(packed) => save_packed(env, &path, &bytes, (found, packed), part),
            None => (save_appended(&bytes, found, part, options), Gaps::default()),
        };
        let is_all_known = self.report.index_through.is_some_and(|p| p.0 >= range.1);
        if found.is_guessed && is_all_known && known.is_empty() {
            // There was no chunk, or an empty one.
            saved.lost.clear();
        }
        let source = Source::new(entry.id, entry.start, &bytes);
        let positions: Vec<u64> = saved
            .offsets
            .iter()
            .filter_map(|offset| Some(source.frame(*offset)?.stamp.position))
            .collect();
        let scavenged = scavenged(known, &gaps, &positions);
        let is_missing = |event: &&KnownEvent| {
            let position = &event.position;
            positions.binary_search(position).is_err() && !scavenged.contains(position)
        };
        let missing: Vec<KnownEvent> = known.iter().filter(is_missing).cloned().collect();
        name_missing(&missing, &mut saved.lost);
        let lost = saved.lost.iter().map(|lost: &Lost| LostRange {
            from: Position(lost.from),
            to: Position(lost.to),
            bytes: lost.bytes,
            unproven: lost.unproven,
        });
        self.report.chunks.push(ChunkRepair {
            id: entry.id,
            reason: found.damage.clone().unwrap_or_default(),
            events_saved: saved.offsets.len() as u64,
            lost: lost.collect(),
        });
        let files = chunk_files(env, folder)?;
        let versions = files.iter().filter(|file| file.id == entry.id).map(|file| file.version);
        let version = free_version(&versions.collect::<Vec<_>>(), entry.packed);
        self.rebuilds.push(Rebuild {
            number,
            id: entry.id,
            start: entry.start,
            path,
            version,
            offsets: saved.offsets,
            missing,
            gaps,
        });
        Ok(())
    }

    /// Notes which revisions of streams are lost.
    fn note_lost(&mut self, env: &Env, folder: &Path, survey: &Survey) -> Result<()> {
        let mut events: Vec<(&str, u64)> = Vec::new();
        for event in self.rebuilds.iter().flat_map(|rebuild| &rebuild.missing) {
            let name = self.streams.get(event.stream).map_or("", String::as_str);
            events.push((name, event.revision));
        }
        events.sort_unstable();
        let mut lost: Vec<LostRevisions> = Vec::new();
        for (stream, revision) in events {
            match lost.last_mut() {
                Some(last) if last.stream == stream && last.last + 1 == revision => {
                    last.last = revision;
                }
                _ => {
                    let (stream, first, last) = (stream.to_string(), revision, revision);
                    lost.push(LostRevisions { stream, first, last, is_certain: true });
                }
            }
        }
        // What the index did not know is told by the events around it.
        let through = self.report.index_through.map_or(0, |position| position.0);
        let ranges = self.report.chunks.iter().flat_map(|chunk| &chunk.lost);
        let unknown: Vec<(u64, u64)> = ranges
            .filter(|range| range.to.0 > through)
            .map(|range| (range.from.0.max(through), range.to.0))
            .collect();
        if !unknown.is_empty() {
            lost.extend(self.jumps(env, folder, survey, &unknown)?);
        }
        self.report.streams = lost;
        Ok(())
    }

    /// Jumps of revisions over ranges of positions that are lost.
    fn jumps(
        &self,
        env: &Env,
        folder: &Path,
        survey: &Survey,
        ranges: &[(u64, u64)],
    ) -> Result<Vec<LostRevisions>> {
        let mut jumps = Vec::new();
        let mut newest: HashMap<String, (u64, u64)> = HashMap::new();
        let is_over = |from: u64, to: u64| ranges.iter().any(|r| r.0 < to && r.1 > from);
        let mut look = |frame: &Frame<'_>| {
            let (revision, position) = (frame.stamp.revision, frame.stamp.position);
            let before = newest.get(frame.stream).copied();
            let (wanted, from) = before.map_or((0, 0), |(last, at)| (last + 1, at));
            if revision > wanted && revision <= REVISION_MAX && is_over(from, position) {
                let (stream, last) = (frame.stream.to_string(), revision - 1);
                jumps.push(LostRevisions { stream, first: wanted, last, is_certain: false });
            }
            newest.insert(frame.stream.to_string(), (revision, position));
        };
        for (number, found) in survey.chunks.iter().enumerate() {
            let entry = found.entry;
            let bytes = read_file(env, &found.path(folder))?;
            let source = Source::new(entry.id, entry.start, &bytes);
            if let Some(rebuild) = self.rebuilds.iter().find(|rebuild| rebuild.number == number) {
                rebuild.offsets.iter().filter_map(|at| source.frame(*at)).for_each(|f| look(&f));
                continue;
            }
            let is_packed = entry.packed.is_some();
            let mut offset = if is_packed { packed::HEADER_BYTES } else { FIRST_EVENT_AT };
            while let Some(frame) = source.frame(offset) {
                look(&frame);
                offset += if is_packed { frame.bytes as u64 } else { frame.step() };
            }
        }
        Ok(jumps)
    }
}

/// Adds the places of events that the index knows and that stand in no range that is lost: the file
/// that was found is whole, and one from behind a scavenge or of another time.
fn name_missing(missing: &[KnownEvent], lost: &mut Vec<Lost>) {
    lost.sort_unstable_by_key(|range| range.from);
    let is_named = |position: u64| {
        let behind = lost.partition_point(|range| range.from <= position);
        behind.checked_sub(1).is_some_and(|index| position < lost[index].to)
    };
    let bytes = FRAME_HEADER_BYTES as u64;
    let places = missing.iter().map(|event| event.position).filter(|at| !is_named(*at));
    let more: Vec<Lost> =
        places.map(|at| Lost { from: at, to: at + bytes, bytes, unproven: 0 }).collect();
    lost.extend(more);
    lost.sort_unstable_by_key(|range| range.from);
}

/// The positions of events that a scavenge took and that an index from before it still knows.
fn scavenged(known: &[KnownEvent], gaps: &Gaps, saved: &[u64]) -> HashSet<u64> {
    let mut positions = HashSet::new();
    for run in &gaps.runs {
        let first = known.partition_point(|event| event.position < run.position);
        let is_whole = known.get(first).is_some_and(|event| event.position == run.position);
        let events = known[first..].iter().map(|event| event.position);
        let events = events.take_while(|position| saved.binary_search(position).is_err());
        positions.extend(events.take(run.events as usize).filter(|_| is_whole));
    }
    positions
}

/// A version that no file of a chunk has: behind all of them, where there is such a number.
fn free_version(versions: &[u64], packed: Option<Packed>) -> u64 {
    let named = packed.map_or(0, |packed| packed.version);
    let newest = versions.iter().copied().max().unwrap_or(0).max(named);
    let is_free = |version: &u64| !versions.contains(version) && *version != named;
    newest.checked_add(1).or_else(|| (1..).find(is_free)).unwrap_or(1)
}

/// What the index knows of the events of damaged chunks.
fn known_events(index: Option<&OldIndex>, survey: &Survey) -> Result<KnownEvents> {
    let damaged = survey.chunks.iter().filter(|found| found.damage.is_some());
    let ranges: Vec<(u64, u64)> =
        damaged.map(|f| (f.entry.start, f.entry.start + f.entry.capacity)).collect();
    match index.filter(|_| !ranges.is_empty()) {
        Some(index) => index.events(&ranges),
        None => Ok(KnownEvents::default()),
    }
}

fn save_appended(
    bytes: &[u8],
    found: &Found,
    known: Option<KnownPart<'_>>,
    options: RepairOptions,
) -> Saved {
    let entry = found.entry;
    let ended = entry.ended.filter(|ended| ended.last_event > 0);
    let room = entry.capacity.min(bytes.len() as u64);
    let end = match ended {
        _ if found.is_end_known && entry.ended != Some(Ended::EMPTY) => {
            entry.ended.map(|ended| ended.end)
        }
        // It was torn, and what follows says that there was more.
        Some(_) => Some(room),
        // It is missing, or nothing is left of it.
        None if bytes.iter().all(|byte| *byte == 0) => Some(entry.capacity),
        None => None,
    };
    let events = known.iter().flat_map(|known| known.events);
    let mut proven: Vec<u64> = events.map(|event| event.position - entry.start).collect();
    // The index may know of more than is there.
    let known_end = proven.last().map_or(0, |last| last + FRAME_HEADER_BYTES as u64);
    let end = end.map(|end| end.min(entry.capacity).max(known_end));
    if end.is_none() && proven.is_empty() && is_prepared(entry.id, bytes) {
        return Saved::default();
    }
    proven.extend(ended.map(|ended| ended.last_event));
    let source = Source { id: entry.id, start: entry.start, bytes, end, known };
    let saved = source.appended(&proven, options.accept_unproven);
    if end.is_some() || !saved.offsets.is_empty() || !saved.lost.is_empty() {
        return saved;
    }
    // Nobody noted where it ended, and it is another chunk's or damaged all over: whatever its room
    // held is lost.
    let end = Some(entry.capacity);
    Source { end, ..source }.appended(&proven, options.accept_unproven)
}

fn save_packed(
    env: &Env,
    path: &Path,
    bytes: &[u8],
    (found, packed): (&Found, Packed),
    known: Option<KnownPart<'_>>,
) -> (Saved, Gaps) {
    let entry = found.entry;
    let (id, start) = (entry.id, entry.start);
    let range = (start, start + entry.capacity);
    let file = env.files.open(path, Access::Read);
    let points: Option<Points> = file
        .as_ref()
        .ok()
        .and_then(|file| packed::read_points(&**file, id, packed.version, range).ok());
    let gaps = points
        .as_ref()
        .and_then(|points| packed::read_gaps(&**file.as_ref().ok()?, id, points, range).ok());
    let source = Source { known, ..Source::new(id, start, bytes) };
    let last = (packed.last_event > 0 && found.is_end_known).then_some(start + packed.last_event);
    let mut saved = source.packed(range.1, points.as_ref(), last);
    if packed.last_event == 0 && found.is_end_known {
        // There was nothing in it but what says what had been scavenged.
        saved.lost.clear();
    }
    (saved, gaps.unwrap_or_default())
}

impl Rebuild {
    /// The bytes of the new file, and what the table says of it.
    pub fn pack(&self, env: &Env, streams: &[String]) -> Result<(Vec<u8>, Packed)> {
        let bytes = read_file(env, &self.path)?;
        let source = Source::new(self.id, self.start, &bytes);
        let mut packer = Packer::new(self.id, self.start, self.version, self.version - 1);
        let mut missing = Missing {
            rebuild: self,
            streams,
            events: self.missing.iter().peekable(),
            runs: self.gaps.runs.iter().peekable(),
        };
        let mut created = 0;
        for offset in &self.offsets {
            let Some(frame) = source.frame(*offset) else {
                let reason = "the event here could be read when the repair began";
                return Err(umbel::Error::corruption(&self.path, *offset, reason).into());
            };
            created = frame.stamp.created;
            missing.leave_before(&mut packer, frame.stamp.position, created);
            packer.keep(&frame, frame.is_stub);
        }
        missing.leave_before(&mut packer, u64::MAX, created);
        Ok(packer.finish())
    }

    /// The path of the new file in the store's folder.
    pub fn target(&self, folder: &Path) -> PathBuf {
        version_path(folder, self.id, self.version)
    }
}

/// What is not there between the events that were saved.
struct Missing<'a> {
    rebuild: &'a Rebuild,
    streams: &'a [String],
    events: std::iter::Peekable<std::slice::Iter<'a, KnownEvent>>,
    runs: std::iter::Peekable<std::slice::Iter<'a, packed::Gap>>,
}

impl Missing<'_> {
    /// Notes what is missing before a position. The last event of a stream leaves its revision, so
    /// that it is not given again; it is said to be of the time of the next event.
    fn leave_before(&mut self, packer: &mut Packer, position: u64, created: u64) {
        loop {
            let event = self.events.peek().map_or(u64::MAX, |event| event.position);
            let run = self.runs.peek().map_or(u64::MAX, |run| run.position);
            if event.min(run) >= position {
                return;
            }
            if run <= event {
                if let Some(run) = self.runs.next() {
                    packer.leave_again(&self.rebuild.gaps, run);
                }
                continue;
            }
            let Some(event) = self.events.next() else { return };
            let stream = self.streams.get(event.stream).map_or("", String::as_str);
            let kind = event.kind.as_deref().unwrap_or(UNKNOWN_TYPE);
            let frame = stub(self.rebuild.id, stream, kind, event, created);
            match event.is_last {
                true => packer.keep(&frame, true),
                false => packer.leave(&frame),
            }
        }
    }
}

/// What stands for an event that is lost.
fn stub<'a>(
    chunk: u64,
    stream: &'a str,
    kind: &'a str,
    event: &KnownEvent,
    created: u64,
) -> Frame<'a> {
    let (position, revision) = (event.position, event.revision);
    let place = Place { chunk, offset: 0 };
    let stamp = Stamp { place, position, back: 0, revision, created, ends_append: true };
    let (id, data): (EventId, &[u8]) = (EventId([0; 16]), &[]);
    let event = NewEvent { id, kind, is_json: false, data, metadata: data };
    Frame { stamp, stream, event, bytes: FRAME_HEADER_BYTES, is_stub: true }
}
