//! [`RestoreCut`]: the end of a restore before the end of the backup, and the cut of a chunk there.

use std::path::Path;

use umbel_env::{Access, Env, File};
use umbel_log::{ExpectedEnd, LogKind, LogReader};

use crate::event_log::chunk_manifest::{ChunkEnd, ChunkEntry, ScavengedFile};
use crate::event_log::clock_epochs::ClockEpochs;
use crate::event_log::event_format::{FrameLocation, FrameMeta, Frames, RECORD_GAP_BYTES};
use crate::event_log::scavenged_chunk::{self, ScavengedChunkWriter};
use crate::limits::FILE_BYTES_MAX;
use crate::types::error::Result;

/// The last event that a restore keeps.
#[derive(Debug, Clone)]
pub enum RestoreCut {
    /// Every event.
    End,
    /// The events up to this position.
    Position(u64),
    /// The events whose ordered time is at most this one, in units of 100 ns since 1970, by these
    /// clock epochs.
    Time(u64, ClockEpochs),
}

impl RestoreCut {
    /// Whether an event is kept. If it is not, no later event is.
    pub fn keeps(&self, position: u64, created: u64) -> bool {
        match self {
            RestoreCut::End => true,
            RestoreCut::Position(last) => position <= *last,
            RestoreCut::Time(last, epochs) => epochs.ordered_time(position, created) <= *last,
        }
    }

    /// Whether no event of a chunk from this position on is kept, as far as the position shows.
    pub fn is_before(&self, start: u64) -> bool {
        matches!(self, RestoreCut::Position(last) if *last < start)
    }

    fn keeps_frame(&self, meta: &FrameMeta) -> bool {
        self.keeps(meta.position, meta.created)
    }

    /// Cuts the file of a chunk at `path` after its last kept event. Returns the entry of the cut
    /// chunk, which is the given one if every event is kept; `None` if no event is kept. An append
    /// is kept as a whole or not at all.
    ///
    /// The caller syncs the directory.
    pub fn cut_chunk(
        &self,
        env: &Env,
        path: &Path,
        entry: &ChunkEntry,
    ) -> Result<Option<ChunkEntry>> {
        match &entry.scavenged {
            Some(scavenged) => self.cut_scavenged(env, path, entry, scavenged),
            None => self.cut_records(env, path, entry),
        }
    }

    fn cut_records(
        &self,
        env: &Env,
        path: &Path,
        entry: &ChunkEntry,
    ) -> Result<Option<ChunkEntry>> {
        let kind = LogKind::Events;
        let mut reader = LogReader::open(env, path, kind, entry.id, ExpectedEnd::Open)?;
        let mut kept: Option<ChunkEnd> = None;
        let mut is_cut = false;
        while let Some(record) = reader.next()? {
            let from = record.offset + RECORD_GAP_BYTES;
            let place = FrameLocation { chunk: entry.id, offset: from };
            let mut last = None;
            for frame in Frames::new(record.payload, place) {
                last = Some(frame.map_err(|offset| damaged(path, offset))?.meta);
            }
            match last.filter(|last| self.keeps_frame(last)) {
                Some(last) => {
                    let end = from + record.payload.len() as u64;
                    let last_event = last.location.offset;
                    kept = Some(ChunkEnd { end, last_event, seal: None });
                }
                None => {
                    is_cut = true;
                    break;
                }
            }
        }
        drop(reader);
        let Some(kept) = kept else { return Ok(None) };
        if !is_cut {
            return Ok(Some(*entry));
        }
        let file = env.files.open(path, Access::ReadWrite)?;
        file.set_len(kept.end)?;
        file.sync()?;
        Ok(Some(ChunkEntry { ended: Some(kept), ..*entry }))
    }

    fn cut_scavenged(
        &self,
        env: &Env,
        path: &Path,
        entry: &ChunkEntry,
        scavenged: &ScavengedFile,
    ) -> Result<Option<ChunkEntry>> {
        let file = env.files.open(path, Access::Read)?;
        let (bytes, is_cut) = self.rewrite(&*file, entry, scavenged)?;
        drop(file);
        let Some((bytes, rewritten)) = bytes else { return Ok(None) };
        if !is_cut {
            return Ok(Some(*entry));
        }
        let changed = ChunkEntry {
            ended: entry.ended.map(|ended| ChunkEnd {
                // Positions of removed events after the cut are not used again.
                last_event: rewritten.last_event,
                seal: None,
                ..ended
            }),
            scavenged: Some(rewritten),
            ..*entry
        };
        // The file of this version, if it exists, is of an interrupted restore.
        let target = path.with_file_name(file_name(&changed));
        if env.files.exists(&target)? {
            env.files.remove_file(&target)?;
        }
        let file = env.files.create(&target)?;
        file.write_all_at(&bytes, 0)?;
        file.sync()?;
        env.files.remove_file(path)?;
        Ok(Some(changed))
    }

    /// Returns the file of the next version of a scavenged chunk without the events after the cut,
    /// `None` if no event is kept; and whether an event is cut off.
    #[expect(clippy::type_complexity, reason = "the two values have no meaning together")]
    fn rewrite(
        &self,
        file: &dyn File,
        entry: &ChunkEntry,
        scavenged: &ScavengedFile,
    ) -> Result<(Option<(Vec<u8>, ScavengedFile)>, bool)> {
        let range = (entry.start, entry.start + entry.capacity);
        let version = scavenged.version;
        let map = scavenged_chunk::read_position_map(file, entry.id, version, range)?;
        let removed = scavenged_chunk::read_removed_events(file, entry.id, &map, range)?;
        let mut bytes = vec![0; map.frames_end.min(FILE_BYTES_MAX) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let mut writer = ScavengedChunkWriter::new(entry.id, entry.start, version + 1, version);
        let mut runs = removed.runs.iter().peekable();
        let (mut kept, mut is_cut) = (0, false);
        for frame in scavenged_chunk::frames(&bytes, entry.id) {
            let frame = frame.map_err(|offset| damaged(file.path(), offset))?;
            if !self.keeps_frame(&frame.meta) {
                is_cut = true;
                break;
            }
            while let Some(run) = runs.next_if(|run| run.position < frame.meta.position) {
                writer.copy_removed_run(&removed, run);
            }
            writer.keep_event(&frame, frame.is_stub);
            kept += 1;
        }
        // Events that were removed after the last kept one are not events of the restored store.
        // Without a cut, nothing is rewritten.
        Ok(((kept > 0).then(|| writer.finish()), is_cut))
    }
}

fn damaged(path: &Path, offset: u64) -> umbel::Error {
    umbel::Error::corruption(path, offset, "an event is damaged")
}

/// Name of the file of a chunk.
fn file_name(entry: &ChunkEntry) -> String {
    crate::backup::backup_manifest::file_name(entry)
}
