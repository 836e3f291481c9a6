//! [`LogContents`]: what the manifest of a backup states about an event log.
//!
//! FORMAT: `docs/formats/object-backup.md`.

use std::path::Path;

use umbel_backup::{BackupKind, Manifest, ManifestContents, Piece, SourceFile};
use umbel_base::{Decoder, varint};
use umbel_env::ObjectName;

use crate::event_log::chunk_manifest::{ChunkEntry, ChunkManifest};
use crate::object_backup::piece_names::piece_name;

/// A manifest of the backup of an event store.
pub type ObjectManifest = Manifest<LogContents>;

/// A chunk in a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackedChunk {
    /// Entry of the chunk, whose end is the end of the copy.
    pub entry: ChunkEntry,
    /// The pieces of the chunk's file, from its beginning to its end.
    pub pieces: Vec<Piece>,
}

impl BackedChunk {
    /// File of the chunk.
    pub fn file(&self) -> SourceFile {
        chunk_file(&self.entry)
    }

    /// Length of the file.
    pub fn file_bytes(&self) -> u64 {
        entry_bytes(&self.entry)
    }
}

/// File of a chunk.
pub fn chunk_file(entry: &ChunkEntry) -> SourceFile {
    let version = entry.scavenged.map_or(0, |scavenged| scavenged.version);
    SourceFile { id: entry.id, version }
}

/// Length of the file of a chunk that has ended; 0 if it has not.
pub fn entry_bytes(entry: &ChunkEntry) -> u64 {
    let ended = entry.ended.map_or(0, |ended| ended.file_bytes());
    entry.scavenged.map_or(ended, |scavenged| scavenged.file_bytes)
}

/// All that a backup has after one manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupState {
    /// The store's chunk manifest without its chunks.
    pub head: ChunkManifest,
    /// The chunks, by position.
    pub chunks: Vec<BackedChunk>,
    /// Position of the last event; 0 without events.
    pub through: u64,
    /// Time of the last event that the backup has read, in units of 100 ns since 1970.
    pub through_created: u64,
}

impl BackupState {
    /// Returns the chunk with this id.
    pub fn chunk(&self, id: u64) -> Option<&BackedChunk> {
        let index = self.chunks.binary_search_by_key(&id, |chunk| chunk.entry.id).ok()?;
        self.chunks.get(index)
    }

    /// Adds a chunk, or replaces the one with its id.
    pub fn set_chunk(&mut self, chunk: BackedChunk) {
        match self.chunks.binary_search_by_key(&chunk.entry.id, |chunk| chunk.entry.id) {
            Ok(index) => self.chunks[index] = chunk,
            Err(index) => self.chunks.insert(index, chunk),
        }
    }

    /// Pieces of all chunks, with their files.
    pub fn pieces(&self) -> impl Iterator<Item = (SourceFile, &Piece)> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.pieces.iter().map(move |piece| (chunk.file(), piece)))
    }

    /// Whether the pieces of each chunk are its file, and the last chunk has the last event.
    fn is_sound(&self) -> bool {
        let is_whole = |chunk: &BackedChunk| {
            let end =
                chunk.pieces.iter().try_fold(0, |at, piece| (piece.from == at).then_some(piece.to));
            chunk.entry.ended.is_some() && end == Some(chunk.file_bytes()) && end > Some(0)
        };
        let last = self
            .chunks
            .last()
            .and_then(|chunk| Some(chunk.entry.start + chunk.entry.ended?.last_event));
        self.chunks.iter().all(is_whole) && last.unwrap_or(0) == self.through
    }
}

/// A chunk that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkChange {
    /// Present entry of the chunk.
    pub entry: ChunkEntry,
    /// Number of pieces that stay; the others are replaced by `added`.
    pub kept: u64,
    /// The pieces after those that stay.
    pub added: Vec<Piece>,
}

/// Statement of a manifest about an event log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogContents {
    /// Position of the last event; 0 without events.
    pub through: u64,
    /// Time of the last event that the backup has read, in units of 100 ns since 1970.
    pub through_created: u64,
    /// Whether the manifest states everything, instead of the changes since the one before.
    pub is_full: bool,
    /// The store's chunk manifest without its chunks.
    pub head: ChunkManifest,
    /// All chunks, or those that changed.
    pub changes: Vec<ChunkChange>,
}

impl ManifestContents for LogContents {
    const KIND: BackupKind = BackupKind::Events;
    type State = BackupState;

    fn is_full(&self) -> bool {
        self.is_full
    }

    fn through(&self) -> u64 {
        self.through
    }

    fn encode(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.through);
        varint::put_u64(out, self.through_created);
        out.push(u8::from(self.is_full));
        let chunks = self.changes.iter().map(|change| change.entry).collect();
        let table = ChunkManifest { chunks, ..self.head.clone() };
        varint::put_bytes(out, &table.encode());
        for change in &self.changes {
            varint::put_u64(out, change.kept);
            varint::put_u64(out, change.added.len() as u64);
            change.added.iter().for_each(|piece| piece.encode(out));
        }
    }

    fn decode(decoder: &mut Decoder<'_>) -> Option<LogContents> {
        let (through, through_created) = (decoder.varint()?, decoder.varint()?);
        let is_full = decoder.u8().filter(|kind| *kind < 2)? == 1;
        let table = ChunkManifest::decode(decoder.bytes()?, Path::new("CHUNKS")).ok()?;
        let mut changes = Vec::new();
        for entry in &table.chunks {
            let kept = decoder.varint().filter(|kept| !is_full || *kept == 0)?;
            let count = decoder.varint_usize()?;
            let pieces = (0..count).map(|_| Piece::decode(decoder));
            let added = pieces.collect::<Option<Vec<_>>>()?;
            changes.push(ChunkChange { entry: *entry, kept, added });
        }
        let head = ChunkManifest { chunks: Vec::new(), ..table };
        Some(LogContents { through, through_created, is_full, head, changes })
    }

    fn apply(&self, state: Option<BackupState>) -> Option<BackupState> {
        let chunks = match (self.is_full, state) {
            (true, _) => Vec::new(),
            (false, Some(state)) => state.chunks,
            (false, None) => return None,
        };
        let mut state = BackupState {
            head: self.head.clone(),
            chunks,
            through: self.through,
            through_created: self.through_created,
        };
        for change in &self.changes {
            let kept = usize::try_from(change.kept).ok()?;
            let old = state.chunk(change.entry.id);
            let mut pieces = match (kept, old) {
                (0, _) => Vec::new(),
                (_, Some(old)) => old.pieces.get(..kept)?.to_vec(),
                (_, None) => return None,
            };
            pieces.extend_from_slice(&change.added);
            state.set_chunk(BackedChunk { entry: change.entry, pieces });
        }
        state.is_sound().then_some(state)
    }

    fn between(before: Option<&BackupState>, state: &BackupState) -> LogContents {
        LogContents {
            through: state.through,
            through_created: state.through_created,
            is_full: before.is_none(),
            head: state.head.clone(),
            changes: match before {
                Some(before) => changes_between(before, state),
                None => all_chunks(state),
            },
        }
    }

    fn is_same(before: &BackupState, state: &BackupState) -> bool {
        before.chunks == state.chunks
    }

    fn pieces(state: &BackupState) -> Vec<(SourceFile, Piece)> {
        state.pieces().map(|(file, piece)| (file, *piece)).collect()
    }

    fn added(&self) -> Vec<(SourceFile, Piece)> {
        let added = |change: &ChunkChange| {
            let file = chunk_file(&change.entry);
            change.added.iter().map(move |piece| (file, *piece)).collect::<Vec<_>>()
        };
        self.changes.iter().flat_map(added).collect()
    }

    fn dropped(&self, before: &BackupState, state: &BackupState) -> Vec<(SourceFile, Piece)> {
        let mut dropped = Vec::new();
        for change in &self.changes {
            let now = state.chunk(change.entry.id).map_or(&[][..], |now| &now.pieces);
            let Some(old) = before.chunk(change.entry.id) else { continue };
            let gone = old.pieces.iter().filter(|piece| !now.contains(piece));
            dropped.extend(gone.map(|piece| (old.file(), *piece)));
        }
        dropped
    }

    fn name(file: SourceFile, piece: &Piece) -> ObjectName {
        piece_name(file, piece)
    }
}

/// Returns the changes from one state to another one, which has all its chunks.
pub fn changes_between(old: &BackupState, new: &BackupState) -> Vec<ChunkChange> {
    let mut changes = Vec::new();
    for chunk in &new.chunks {
        let before = old.chunk(chunk.entry.id);
        if before == Some(chunk) {
            continue;
        }
        let before = before.filter(|before| before.file() == chunk.file());
        let before = before.map_or(&[][..], |before| &before.pieces);
        let kept = before.iter().zip(&chunk.pieces).take_while(|(a, b)| a == b).count();
        let added = chunk.pieces[kept..].to_vec();
        changes.push(ChunkChange { entry: chunk.entry, kept: kept as u64, added });
    }
    changes
}

/// Returns all chunks of a state, for a full manifest.
pub fn all_chunks(state: &BackupState) -> Vec<ChunkChange> {
    let change = |chunk: &BackedChunk| ChunkChange {
        entry: chunk.entry,
        kept: 0,
        added: chunk.pieces.clone(),
    };
    state.chunks.iter().map(change).collect()
}

/// Decodes the contents of a manifest, and encodes them again. For fuzzing only.
pub fn fuzz(body: &[u8]) {
    let mut decoder = Decoder::new(body);
    if let Some(contents) = LogContents::decode(&mut decoder) {
        let mut again = Vec::new();
        contents.encode(&mut again);
        let _ = contents.apply(None);
        let decoded = LogContents::decode(&mut Decoder::new(&again));
        assert_eq!(decoded, Some(contents), "encoding and decoding again returns the same");
    }
    let _ = ObjectManifest::decode(body, 1);
}

#[cfg(test)]
mod tests {
    use umbel_base::checksum::checksum;
    use umbel_log::Seal;

    use super::*;
    use crate::event_log::chunk_manifest::ChunkEnd;

    fn state() -> BackupState {
        let mut table = ChunkManifest::new([9; 16], [8; 16]);
        table.add(4 << 20, 31);
        table.add(4 << 20, 32);
        let seal = Some(Seal { len: 5048, checksum: 77 });
        table.chunks[0].ended = Some(ChunkEnd { end: 5000, last_event: 4800, seal });
        table.chunks[1].ended = Some(ChunkEnd { end: 640, last_event: 96, seal: None });
        let piece = |uid: u8, from: u64, to: u64| Piece {
            uid: [uid; 16],
            is_whole: uid == 1,
            from,
            to,
            digest: 5,
        };
        let pieces = [vec![piece(1, 0, 5048)], vec![piece(2, 0, 320), piece(3, 320, 640)]];
        let chunks = table.chunks.iter().zip(pieces);
        let chunks = chunks.map(|(entry, pieces)| BackedChunk { entry: *entry, pieces }).collect();
        table.chunks.clear();
        BackupState { head: table, chunks, through: (4 << 20) + 96, through_created: 123 }
    }

    fn manifest(is_full: bool, state: &BackupState, changes: Vec<ChunkChange>) -> ObjectManifest {
        ObjectManifest {
            number: 6,
            uid: [1; 16],
            previous: [2; 16],
            backup: [3; 16],
            writer: [4; 16],
            wall_micros: 1_000_000,
            store_micros: 0,
            contents: LogContents {
                through: state.through,
                through_created: state.through_created,
                is_full,
                head: state.head.clone(),
                changes,
            },
        }
    }

    /// A state with one more tail, and with the last chunk only.
    fn longer(state: &BackupState) -> BackupState {
        let mut next = state.clone();
        let last = &mut next.chunks[1];
        last.entry.ended = Some(ChunkEnd { end: 900, last_event: 700, seal: None });
        last.pieces.push(Piece { from: 640, to: 900, uid: [9; 16], ..last.pieces[1] });
        next.through = (4 << 20) + 700;
        next
    }

    #[test]
    fn manifest_round_trips_and_changed_bytes_are_rejected() {
        let state = state();
        let manifest = manifest(true, &state, all_chunks(&state));
        let bytes = manifest.encode();
        assert_eq!(ObjectManifest::decode(&bytes, 6).expect("just written"), manifest);
        assert!(ObjectManifest::decode(&bytes, 7).is_err(), "under another number");
        assert_eq!(manifest.contents.apply(None), Some(state));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(ObjectManifest::decode(&changed, 6).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(ObjectManifest::decode(&bytes[..len], 6).is_err(), "{len} bytes");
        }
        let mut newer = bytes[..bytes.len() - 8].to_vec();
        newer[8] = 2;
        let sum = checksum(6, 0, &newer);
        newer.extend_from_slice(&sum.to_le_bytes());
        let message = ObjectManifest::decode(&newer, 6).expect_err("a newer format");
        assert!(message.contains("newer Umbel"), "{message}");
    }

    #[test]
    fn changes_lead_to_the_next_state() {
        let old = state();
        let new = longer(&old);
        let changes = changes_between(&old, &new);
        assert_eq!(changes.len(), 1, "the first chunk is as it was");
        assert_eq!((changes[0].kept, changes[0].added.len()), (2, 1));
        let manifest = manifest(false, &new, changes);
        let decoded = ObjectManifest::decode(&manifest.encode(), 6).expect("just written");
        assert_eq!(decoded.contents.apply(Some(old)), Some(new));
        assert_eq!(decoded.contents.apply(None), None, "changes need a state");
    }

    #[test]
    fn contradictions_have_no_state() {
        let state = state();
        let full = |change: fn(&mut LogContents)| {
            let mut manifest = manifest(true, &state, all_chunks(&state));
            change(&mut manifest.contents);
            manifest.contents.apply(None)
        };
        assert!(full(|_| {}).is_some());
        type Change = fn(&mut LogContents);
        let contradictions: [(&str, Change); 6] = [
            ("a gap", |manifest| manifest.changes[1].added[1].from = 328),
            ("an overlap", |manifest| manifest.changes[1].added[1].from = 312),
            ("too short", |manifest| manifest.changes[1].added[1].to = 632),
            ("no piece", |manifest| manifest.changes[0].added.clear()),
            ("a chunk that has not ended", |manifest| manifest.changes[1].entry.ended = None),
            ("another last event", |manifest| manifest.through += 8),
        ];
        for (what, change) in contradictions {
            assert_eq!(full(change), None, "{what}");
        }
        let new = longer(&state);
        let mut changes = changes_between(&state, &new);
        changes[0].kept = 3;
        assert_eq!(
            manifest(false, &new, changes).contents.apply(Some(state)),
            None,
            "kept too many"
        );
    }
}
