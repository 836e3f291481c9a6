//! Plan of a repair and its report, made before anything is changed.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use umbel_env::{Access, Env};

use super::salvage::{ChunkBytes, IndexedRange, LostSpan, SalvageResult};
use crate::event_log::chunk::FIRST_EVENT_OFFSET;
use crate::event_log::chunk_manifest::{
    ChunkEnd, ChunkManifest, ScavengedFile, chunk_version_path,
};
use crate::event_log::event_format::{FRAME_HEADER_BYTES, Frame, FrameLocation, FrameMeta};
use crate::event_log::scavenged_chunk::{self, PositionMap, RemovedEvents, ScavengedChunkWriter};
use crate::limits::REVISION_MAX;
use crate::repair::index_ownership;
use crate::repair::inspect_orphan::is_unused;
use crate::repair::log_survey::{FoundChunk, LogSurvey, chunk_files, read_file};
use crate::repair::lost_epochs;
use crate::repair::lost_tail;
use crate::repair::old_index_events::{OldIndexEntries, OldIndexEntry, OldIndexEvents};
use crate::repair::renamed_chunks::ChunkOutline;
use crate::repair::repair_report::{
    ChunkRepair, LostRange, LostRevisions, RepairOptions, RepairReport,
};
use crate::types::error::Result;
use crate::types::event::{EventId, NewEvent, Position};

/// Type of a lost event whose type is unknown.
const UNKNOWN_TYPE: &str = "$lost";

/// Description of an index whose streams differ from those of the event log.
const OTHER_INDEX: &str = "the contents of the index differ from the event log: the index belongs \
     to another store";

/// Plan of a repair.
#[derive(Debug)]
pub struct RepairPlan {
    /// Manifest of the repaired store, without the chunks that are rebuilt.
    pub manifest: ChunkManifest,
    /// Generation of the manifest on disk; 0 if it cannot be read.
    pub generation: u64,
    /// Whether the repaired store gets a new seed, because its seed is lost.
    pub is_seed_new: bool,
    /// Chunks to rebuild.
    pub rebuilds: Vec<ChunkRebuild>,
    /// Files to sync before the manifest records their end.
    pub unsynced: Vec<PathBuf>,
    /// Names of the streams of the rebuilds' events.
    pub streams: Vec<String>,
    /// Report of the repair.
    pub report: RepairReport,
}

/// Chunk that is rebuilt with its salvaged events.
#[derive(Debug)]
pub struct ChunkRebuild {
    /// Index of the chunk among the manifest's chunks.
    pub manifest_index: usize,
    id: u64,
    start: u64,
    /// Path of the damaged file.
    path: PathBuf,
    /// Version of the new file.
    version: u64,
    /// Offsets of the salvaged events in the file that was found.
    offsets: Vec<u64>,
    /// Events that the index knows and that were not salvaged.
    missing: Vec<OldIndexEntry>,
    /// Events that a scavenge had removed before.
    removed: RemovedEvents,
    /// Least time of an event of the chunk.
    created_min: u64,
}

impl RepairPlan {
    /// Builds the plan. Reads all damaged files, and the index or the reason not to trust the
    /// index.
    pub fn build(
        env: &Env,
        folder: &Path,
        index: Option<core::result::Result<OldIndexEvents, String>>,
        mut survey: LogSurvey,
        options: RepairOptions,
    ) -> Result<RepairPlan> {
        let (index, mut index_damage) = match index {
            Some(Ok(index)) => {
                match index_ownership::belongs_to_log(&index, env, folder, &mut survey)? {
                    true => (Some(index), None),
                    false => (None, Some(OTHER_INDEX.to_string())),
                }
            }
            Some(Err(reason)) => (None, Some(reason)),
            None => (None, None),
        };
        if let Some(damage) = survey.replaced_file_damage.take() {
            index_damage.get_or_insert_with(|| {
                format!("the index may hold events of a chunk that was rewritten, but {damage}")
            });
        }
        let furthest = if let Some(index) = &index {
            lost_tail::note_lost_chunks(&mut survey, index)?;
            lost_tail::note_lost_tail(&mut survey, index.last_indexed_position()?, "index");
            index.last_indexed_position()?
        } else {
            lost_tail::note_short_files(&mut survey);
            lost_tail::note_filter_ahead(env, folder, &mut survey)
        };
        let mut plan = RepairPlan {
            manifest: survey.manifest.clone(),
            generation: survey.generation,
            is_seed_new: survey.is_seed_lost,
            rebuilds: Vec::new(),
            unsynced: Vec::new(),
            streams: Vec::new(),
            report: RepairReport {
                manifest: survey.manifest_damage.clone(),
                unrelated_files: survey.unrelated_files.clone(),
                unplaced: survey.unplaced.clone(),
                existence: survey.existence_damage.clone(),
                is_end_unknown: lost_tail::is_end_unknown(&survey, furthest),
                index_through: index.as_ref().map(|index| Position(index.through)),
                ..RepairReport::default()
            },
        };
        let known = load_known_events(index.as_ref(), &survey)?;
        plan.manifest.chunks = survey.chunks.iter().map(|found| found.entry).collect();
        plan.manifest.scavenge_from = 0;
        plan.manifest.epochs = lost_epochs::derive_epochs(env, folder, &survey)?;
        for (number, found) in survey.chunks.iter().enumerate() {
            if found.is_unsynced && found.damage.is_none() {
                plan.unsynced.push(found.entry.path(folder));
            }
            if found.damage.is_some() {
                plan.add_rebuild(env, folder, (number, found), &known, options)?;
                plan.set_created_min(env, folder, &survey)?;
            }
        }
        plan.streams = known.streams;
        plan.note_lost(env, folder, &survey)?;
        plan.report.index = match index_damage {
            None if survey.is_damaged() => {
                Some("the index is derived from the event log".to_string())
            }
            damage => damage,
        };
        Ok(plan)
    }

    /// Whether a repair is needed.
    pub fn is_needed(&self) -> bool {
        !self.report.is_undamaged()
    }

    /// Salvages a damaged chunk and adds its rebuild.
    fn add_rebuild(
        &mut self,
        env: &Env,
        folder: &Path,
        (number, found): (usize, &FoundChunk),
        known: &OldIndexEntries,
        options: RepairOptions,
    ) -> Result<()> {
        let entry = found.entry;
        let path = found.path(folder);
        let range = (entry.start, entry.start + entry.capacity);
        // A file of another store holds nothing of this one.
        let is_foreign = found.is_foreign || found.is_unproven && known.between(range).is_empty();
        let bytes = if is_foreign { Vec::new() } else { read_file(env, &path)? };
        let part = self.report.index_through.map(|through| IndexedRange {
            events: known.between(range),
            streams: &known.streams,
            through: through.0,
        });
        let known = known.between(range);
        let (mut saved, gaps) = match entry.scavenged {
            Some(scavenged) => salvage_scavenged(env, &path, &bytes, (found, scavenged), part),
            None => (salvage_appended(&bytes, found, part, options), RemovedEvents::default()),
        };
        let is_all_known = self.report.index_through.is_some_and(|p| p.0 >= range.1);
        if found.is_guessed && is_all_known && known.is_empty() {
            // There was no chunk, or an empty one.
            saved.lost.clear();
        }
        let source = ChunkBytes::new(entry.id, entry.start, &bytes);
        let positions: Vec<u64> = saved
            .offsets
            .iter()
            .filter_map(|offset| Some(source.frame(*offset)?.meta.position))
            .collect();
        let scavenged = scavenged_positions(known, &gaps, &positions);
        let is_missing = |event: &&OldIndexEntry| {
            let position = &event.position;
            positions.binary_search(position).is_err() && !scavenged.contains(position)
        };
        let missing: Vec<OldIndexEntry> = known.iter().filter(is_missing).cloned().collect();
        merge_missing(&missing, &mut saved.lost);
        let lost = saved.lost.iter().map(|lost: &LostSpan| LostRange {
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
        let version = unused_version(&versions.collect::<Vec<_>>(), entry.scavenged);
        self.rebuilds.push(ChunkRebuild {
            manifest_index: number,
            id: entry.id,
            start: entry.start,
            path,
            version,
            offsets: saved.offsets,
            missing,
            removed: gaps,
            created_min: 0,
        });
        Ok(())
    }

    /// Sets the least time of the last rebuild, whose stubs have it if no event was salvaged.
    fn set_created_min(&mut self, env: &Env, folder: &Path, survey: &LogSurvey) -> Result<()> {
        let Some((rebuild, earlier)) = self.rebuilds.split_last_mut() else { return Ok(()) };
        if !rebuild.offsets.is_empty() || rebuild.missing.is_empty() {
            return Ok(());
        }
        let epochs = &self.manifest.epochs;
        for number in (0..rebuild.manifest_index).rev() {
            let found = &survey.chunks[number];
            let known = earlier.last().filter(|other| other.manifest_index == number);
            let last = match known.filter(|other| other.created_min > 0) {
                Some(other) => (other.start, other.created_min),
                None => {
                    let outline = ChunkOutline::of(env, folder, epochs, found)?;
                    let Some((_, last)) = outline.positions else { continue };
                    (last, outline.last_created)
                }
            };
            rebuild.created_min = epochs.created_min(rebuild.start, last);
            break;
        }
        Ok(())
    }

    /// Records which revisions of streams are lost.
    fn note_lost(&mut self, env: &Env, folder: &Path, survey: &LogSurvey) -> Result<()> {
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
        // Surrounding events show what the index did not know.
        let through = self.report.index_through.map_or(0, |position| position.0);
        let ranges = self.report.chunks.iter().flat_map(|chunk| &chunk.lost);
        let unknown: Vec<(u64, u64)> = ranges
            .filter(|range| range.to.0 > through)
            .map(|range| (range.from.0.max(through), range.to.0))
            .collect();
        if !unknown.is_empty() {
            lost.extend(self.revision_gaps(env, folder, survey, &unknown)?);
        }
        self.report.streams = lost;
        Ok(())
    }

    /// Gaps in revisions across lost ranges of positions.
    fn revision_gaps(
        &self,
        env: &Env,
        folder: &Path,
        survey: &LogSurvey,
        ranges: &[(u64, u64)],
    ) -> Result<Vec<LostRevisions>> {
        let mut jumps = Vec::new();
        let mut newest: HashMap<String, (u64, u64)> = HashMap::new();
        let is_over = |from: u64, to: u64| ranges.iter().any(|r| r.0 < to && r.1 > from);
        let mut look = |frame: &Frame<'_>| {
            let (revision, position) = (frame.meta.revision, frame.meta.position);
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
            let source = ChunkBytes::new(entry.id, entry.start, &bytes);
            if let Some(rebuild) =
                self.rebuilds.iter().find(|rebuild| rebuild.manifest_index == number)
            {
                rebuild.offsets.iter().filter_map(|at| source.frame(*at)).for_each(|f| look(&f));
                continue;
            }
            let is_scavenged = entry.scavenged.is_some();
            let mut offset =
                if is_scavenged { scavenged_chunk::HEADER_BYTES } else { FIRST_EVENT_OFFSET };
            while let Some(frame) = source.frame(offset) {
                look(&frame);
                offset += if is_scavenged { frame.bytes as u64 } else { frame.next_distance() };
            }
        }
        Ok(jumps)
    }
}

/// Adds the positions of events that the index knows outside the lost ranges. The chunk's file is
/// whole but lacks these events: it is newer than a scavenge that the index does not know, or from
/// another time.
fn merge_missing(missing: &[OldIndexEntry], lost: &mut Vec<LostSpan>) {
    lost.sort_unstable_by_key(|range| range.from);
    let is_named = |position: u64| {
        let next_index = lost.partition_point(|range| range.from <= position);
        next_index.checked_sub(1).is_some_and(|index| position < lost[index].to)
    };
    let bytes = FRAME_HEADER_BYTES as u64;
    let places = missing.iter().map(|event| event.position).filter(|at| !is_named(*at));
    let more: Vec<LostSpan> =
        places.map(|at| LostSpan { from: at, to: at + bytes, bytes, unproven: 0 }).collect();
    lost.extend(more);
    lost.sort_unstable_by_key(|range| range.from);
}

/// Positions of scavenged events that an index from before the scavenge still knows.
fn scavenged_positions(
    known: &[OldIndexEntry],
    gaps: &RemovedEvents,
    saved: &[u64],
) -> HashSet<u64> {
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

/// Version that no file of a chunk has: higher than all existing versions, if there is such a
/// number.
fn unused_version(versions: &[u64], scavenged: Option<ScavengedFile>) -> u64 {
    let named = scavenged.map_or(0, |scavenged| scavenged.version);
    let newest = versions.iter().copied().max().unwrap_or(0).max(named);
    let is_free = |version: &u64| !versions.contains(version) && *version != named;
    newest.checked_add(1).or_else(|| (1..).find(is_free)).unwrap_or(1)
}

/// Loads the index's entries for the events of damaged chunks.
fn load_known_events(
    index: Option<&OldIndexEvents>,
    survey: &LogSurvey,
) -> Result<OldIndexEntries> {
    let damaged = survey.chunks.iter().filter(|found| found.damage.is_some());
    let ranges: Vec<(u64, u64)> =
        damaged.map(|f| (f.entry.start, f.entry.start + f.entry.capacity)).collect();
    match index.filter(|_| !ranges.is_empty()) {
        Some(index) => index.events(&ranges),
        None => Ok(OldIndexEntries::default()),
    }
}

fn salvage_appended(
    bytes: &[u8],
    found: &FoundChunk,
    known: Option<IndexedRange<'_>>,
    options: RepairOptions,
) -> SalvageResult {
    let entry = found.entry;
    let ended = entry.ended.filter(|ended| ended.last_event > 0);
    let readable_end = entry.capacity.min(bytes.len() as u64);
    let end = match ended {
        _ if found.is_end_known && entry.ended != Some(ChunkEnd::EMPTY) => {
            entry.ended.map(|ended| ended.end)
        }
        // It was torn, and what follows shows that there was more.
        Some(_) => Some(readable_end),
        // It is missing, or nothing is left of it.
        None if bytes.iter().all(|byte| *byte == 0) => Some(entry.capacity),
        None => None,
    };
    let events = known.iter().flat_map(|known| known.events);
    let mut proven: Vec<u64> = events.map(|event| event.position - entry.start).collect();
    // The index may know more events than exist.
    let known_end = proven.last().map_or(0, |last| last + FRAME_HEADER_BYTES as u64);
    let end = end.map(|end| end.min(entry.capacity).max(known_end));
    if end.is_none() && proven.is_empty() && is_unused(entry.id, bytes) {
        return SalvageResult::default();
    }
    proven.extend(ended.map(|ended| ended.last_event));
    let source = ChunkBytes { id: entry.id, start: entry.start, bytes, end, indexed: known };
    let saved = source.salvage_appended(&proven, options.accept_unproven);
    if end.is_some() || !saved.offsets.is_empty() || !saved.lost.is_empty() {
        return saved;
    }
    // No end is recorded, and the file is another chunk's or completely damaged: its whole capacity
    // is lost.
    let end = Some(entry.capacity);
    ChunkBytes { end, ..source }.salvage_appended(&proven, options.accept_unproven)
}

fn salvage_scavenged(
    env: &Env,
    path: &Path,
    bytes: &[u8],
    (found, scavenged): (&FoundChunk, ScavengedFile),
    known: Option<IndexedRange<'_>>,
) -> (SalvageResult, RemovedEvents) {
    let entry = found.entry;
    let (id, start) = (entry.id, entry.start);
    let range = (start, start + entry.capacity);
    let file = env.files.open(path, Access::Read);
    let points: Option<PositionMap> = file.as_ref().ok().and_then(|file| {
        scavenged_chunk::read_position_map(&**file, id, scavenged.version, range).ok()
    });
    let gaps = points.as_ref().and_then(|points| {
        scavenged_chunk::read_removed_events(&**file.as_ref().ok()?, id, points, range).ok()
    });
    let source = ChunkBytes { indexed: known, ..ChunkBytes::new(id, start, bytes) };
    let last =
        (scavenged.last_event > 0 && found.is_end_known).then_some(start + scavenged.last_event);
    let mut saved = source.salvage_scavenged(range.1, points.as_ref(), last);
    if scavenged.last_event == 0 && found.is_end_known {
        // It held nothing but the record of scavenged events.
        saved.lost.clear();
    }
    (saved, gaps.unwrap_or_default())
}

impl ChunkRebuild {
    /// Builds the bytes of the new file, and its manifest entry.
    pub fn build_file(&self, env: &Env, streams: &[String]) -> Result<(Vec<u8>, ScavengedFile)> {
        let bytes = read_file(env, &self.path)?;
        let source = ChunkBytes::new(self.id, self.start, &bytes);
        let mut packer =
            ScavengedChunkWriter::new(self.id, self.start, self.version, self.version - 1);
        let mut missing = MissingEvents {
            rebuild: self,
            streams,
            events: self.missing.iter().peekable(),
            runs: self.removed.runs.iter().peekable(),
        };
        let mut created = self.created_min;
        for offset in &self.offsets {
            let Some(frame) = source.frame(*offset) else {
                let reason = "the event here could be read when the repair began";
                return Err(umbel::Error::corruption(&self.path, *offset, reason).into());
            };
            created = frame.meta.created;
            missing.remove_before(&mut packer, frame.meta.position, created);
            packer.keep_event(&frame, frame.is_stub);
        }
        missing.remove_before(&mut packer, u64::MAX, created);
        Ok(packer.finish())
    }

    /// Path of the new file in the store's directory.
    pub fn target(&self, folder: &Path) -> PathBuf {
        chunk_version_path(folder, self.id, self.version)
    }
}

/// Missing events between the salvaged ones.
struct MissingEvents<'a> {
    rebuild: &'a ChunkRebuild,
    streams: &'a [String],
    events: std::iter::Peekable<std::slice::Iter<'a, OldIndexEntry>>,
    runs: std::iter::Peekable<std::slice::Iter<'a, scavenged_chunk::RemovedRun>>,
}

impl MissingEvents<'_> {
    /// Records the missing events before a position. The last event of a stream leaves a stub with
    /// its revision, so that the revision is not assigned again. The stub gets the time of the next
    /// event.
    fn remove_before(&mut self, packer: &mut ScavengedChunkWriter, position: u64, created: u64) {
        loop {
            let event = self.events.peek().map_or(u64::MAX, |event| event.position);
            let run = self.runs.peek().map_or(u64::MAX, |run| run.position);
            if event.min(run) >= position {
                return;
            }
            if run <= event {
                if let Some(run) = self.runs.next() {
                    packer.copy_removed_run(&self.rebuild.removed, run);
                }
                continue;
            }
            let Some(event) = self.events.next() else { return };
            let stream = self.streams.get(event.stream).map_or("", String::as_str);
            let kind = event.kind.as_deref().unwrap_or(UNKNOWN_TYPE);
            let frame = lost_event_stub(self.rebuild.id, stream, kind, event, created);
            match event.is_last {
                true => packer.keep_event(&frame, true),
                false => packer.remove_event(&frame),
            }
        }
    }
}

/// Creates the stub of a lost event.
fn lost_event_stub<'a>(
    chunk: u64,
    stream: &'a str,
    kind: &'a str,
    event: &OldIndexEntry,
    created: u64,
) -> Frame<'a> {
    let (position, revision) = (event.position, event.revision);
    let place = FrameLocation { chunk, offset: 0 };
    let stamp =
        FrameMeta { location: place, position, back: 0, revision, created, ends_append: true };
    let (id, data): (EventId, &[u8]) = (EventId([0; 16]), &[]);
    let event = NewEvent { id, kind, is_json: false, data, metadata: data };
    Frame { meta: stamp, stream, event, bytes: FRAME_HEADER_BYTES, is_stub: true }
}
