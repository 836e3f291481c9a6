//! A journal: hashes inserted since a filter was written, appended flush by flush.
//! `docs/formats/existence.md` describes the bytes.
//!
//! INVARIANT:
//! 1. A record's checksum is bound to the previous record. So an old record after a gap never
//!    counts once other records were written into the gap.
//! 2. A file whose sync failed is not written again.

use std::sync::Arc;

use umbel_base::checksum::{checksum, checksum_parts};
use umbel_base::{Decoder, Result};
use umbel_env::File;

use crate::log_coverage::Coverage;
use crate::persistence::directory::READ_AHEAD_BYTES;

/// FORMAT: the first eight bytes of a journal.
const MAGIC: [u8; 8] = *b"UmbelExJ";
/// FORMAT: the version that this build writes, and the only one that it reads.
const VERSION: u32 = 1;
/// FORMAT: magic, version `u32`, zero `u32`, id, key `u64` each, 24 zeros, checksum `u64`.
const HEADER_BYTES: usize = 64;
/// FORMAT: checksum `u64`, kind `u32`, count `u32`, covered `u64`; then `count` numbers `u64`.
const RECORD_BYTES: usize = 24;
/// FORMAT: a record of hashes.
const HASHES: u32 = 1;
/// FORMAT: a record with id and key of the next journal.
const CONTINUATION: u32 = 2;
/// FORMAT: records as [`HASHES`] and [`CONTINUATION`], with the history of the coverage before the
/// other numbers.
const HASHES_OF_HISTORY: u32 = 3;
const CONTINUATION_OF_HISTORY: u32 = 4;
/// Most hashes of one record. A flush of more hashes writes several records and syncs once.
const RECORD_HASHES_MAX: usize = 1 << 16;
/// Bytes of a journal that are read at a time: the longest record.
const WINDOW_BYTES: usize = RECORD_BYTES + 8 * (1 + RECORD_HASHES_MAX);

/// Whether bytes begin with the magic of a journal.
pub(crate) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// A journal to which flushes append.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Arc<dyn File>,
    pub(crate) id: u64,
    pub(crate) key: u64,
    /// Offset after the last record.
    end: u64,
    /// Checksum of the last record, or of the header of an empty journal.
    chain: u64,
    /// Whether a sync failed.
    is_broken: bool,
}

/// Content of a journal besides hashes.
#[derive(Debug)]
pub(crate) struct JournalReplay {
    /// Coverage of the user's log in the last record.
    pub(crate) covered: Coverage,
    /// Id and key of the next journal.
    pub(crate) next: Option<(u64, u64)>,
    /// The journal, which can be appended to after its last valid record.
    pub(crate) journal: Journal,
    /// Whether the first invalid record is damaged: a crash cannot have torn it. Damage of the last
    /// record looks like a torn one.
    pub(crate) is_damaged: bool,
}

/// Fields at the begin of a record.
#[derive(Debug, Clone, Copy)]
struct RecordHead {
    sum: u64,
    kind: u32,
    count: u32,
    covered: u64,
}

impl RecordHead {
    /// Reads the fields; `None` if the file ends before them.
    fn read(window: &mut JournalWindow<'_>, offset: u64) -> Result<Option<RecordHead>> {
        let Some(head) = window.get(offset, RECORD_BYTES)? else { return Ok(None) };
        let mut decoder = Decoder::new(head);
        let fields = (decoder.u64(), decoder.u32(), decoder.u32(), decoder.u64());
        let (Some(sum), Some(kind), Some(count), Some(covered)) = fields else { return Ok(None) };
        Ok(Some(RecordHead { sum, kind, count, covered }))
    }

    /// Length of the record.
    fn bytes(self) -> u64 {
        RECORD_BYTES as u64 + 8 * u64::from(self.count)
    }
}

fn header(id: u64, key: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&id.to_le_bytes());
    bytes[24..32].copy_from_slice(&key.to_le_bytes());
    let sum = checksum(key, 0, &bytes[..HEADER_BYTES - 8]);
    bytes[HEADER_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Returns the checksum in a header.
fn header_sum(header: &[u8; HEADER_BYTES]) -> u64 {
    let (words, _) = header.as_chunks::<8>();
    words.last().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn record_sum(key: u64, offset: u64, chain: u64, record: &[u8]) -> u64 {
    checksum_parts(key, offset, &[&chain.to_le_bytes(), record])
}

impl Journal {
    /// Begins a journal in an empty file, and makes the file durable, but not its name.
    pub(crate) fn begin(file: Arc<dyn File>, id: u64, key: u64) -> Result<Journal> {
        let header = header(id, key);
        file.write_all_at(&header, 0)?;
        file.sync()?;
        let (end, chain) = (HEADER_BYTES as u64, header_sum(&header));
        Ok(Journal { file, id, key, end, chain, is_broken: false })
    }

    /// Length of the journal in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.end
    }

    /// Whether the journal may be written: no sync of it has failed.
    pub(crate) fn is_sound(&self) -> bool {
        !self.is_broken
    }

    /// Appends hashes and makes them durable, with the position up to which all hashes so far cover
    /// the user's log. `before` is the coverage before this call.
    ///
    /// After an error no hash counts as appended. After a failed write the caller may append the
    /// same hashes again; after a failed sync the journal refuses all later hashes.
    pub(crate) fn append(
        &mut self,
        hashes: &[u64],
        before: Coverage,
        covered: Coverage,
    ) -> Result<u64> {
        let mut records = RecordBuffer::new(self);
        let mut rest = hashes;
        while rest.len() > RECORD_HASHES_MAX {
            let (some, others) = rest.split_at(RECORD_HASHES_MAX);
            // Only the last record may promise the position: the others may survive without it.
            records.push((HASHES, HASHES_OF_HISTORY), before, some);
            rest = others;
        }
        records.push((HASHES, HASHES_OF_HISTORY), covered, rest);
        let (bytes, chain) = records.finish();
        self.write(&bytes, chain)
    }

    /// Appends id and key of the next journal, and makes them durable. Errors are those of
    /// [`Journal::append`].
    pub(crate) fn continue_in(&mut self, next: &Journal, covered: Coverage) -> Result<u64> {
        let mut records = RecordBuffer::new(self);
        let kinds = (CONTINUATION, CONTINUATION_OF_HISTORY);
        records.push(kinds, covered, &[next.id, next.key]);
        let (bytes, chain) = records.finish();
        self.write(&bytes, chain)
    }

    /// Whether the invalid record after the last valid one was durable: a valid record follows it,
    /// which a later flush wrote.
    fn has_synced_gap(&self, window: &mut JournalWindow<'_>) -> Result<bool> {
        let Some(gap) = RecordHead::read(window, self.end)? else { return Ok(false) };
        // One flush writes several records only if all before the last one are full. A crash can
        // tear a full one and leave those after it.
        if gap.count as usize >= RECORD_HASHES_MAX {
            return Ok(false);
        }
        let Some(record) = window.get(self.end, gap.bytes() as usize)? else { return Ok(false) };
        // Either the checksum is damaged, or the bytes that it covers.
        let chains = [gap.sum, record_sum(self.key, self.end, self.chain, &record[8..])];
        let offset = self.end + gap.bytes();
        let Some(next) = RecordHead::read(window, offset)? else { return Ok(false) };
        let Ok(len) = usize::try_from(next.bytes()) else { return Ok(false) };
        let Some(record) = window.get(offset, len)? else { return Ok(false) };
        let sum = |chain: u64| record_sum(self.key, offset, chain, &record[8..]);
        Ok(chains.into_iter().any(|chain| sum(chain) == next.sum))
    }

    fn write(&mut self, bytes: &[u8], chain: u64) -> Result<u64> {
        self.file.write_all_at(bytes, self.end)?;
        if let Err(error) = self.file.sync() {
            self.is_broken = true;
            return Err(error);
        }
        self.end += bytes.len() as u64;
        self.chain = chain;
        Ok(bytes.len() as u64)
    }

    /// Reads a journal up to its first gap, and passes its hashes on in order. Returns `None` if
    /// the journal has another id or key.
    ///
    /// # Errors
    /// The file's error if it cannot be read; some hashes may have been passed on before.
    pub(crate) fn read(
        file: Arc<dyn File>,
        id: u64,
        key: u64,
        hashes: &mut dyn FnMut(&[[u8; 8]]),
    ) -> Result<Option<JournalReplay>> {
        let mut window = JournalWindow::new(&*file)?;
        let right = header(id, key);
        if window.get(0, HEADER_BYTES)? != Some(&right[..]) {
            return Ok(None);
        }
        let (end, chain) = (HEADER_BYTES as u64, header_sum(&right));
        let journal = Journal { file: Arc::clone(&file), id, key, end, chain, is_broken: false };
        let covered = Coverage::default();
        let mut replay = JournalReplay { covered, next: None, journal, is_damaged: false };
        while replay.next.is_none() && replay.take(&mut window, hashes)?.is_some() {}
        replay.is_damaged = replay.next.is_none() && replay.journal.has_synced_gap(&mut window)?;
        Ok(Some(replay))
    }
}

fn number(bytes: &[u8; 8]) -> u64 {
    u64::from_le_bytes(*bytes)
}

impl JournalReplay {
    /// Reads the next record. Returns `None` if no valid record follows.
    fn take(
        &mut self,
        window: &mut JournalWindow<'_>,
        hashes: &mut dyn FnMut(&[[u8; 8]]),
    ) -> Result<Option<()>> {
        let journal = &self.journal;
        let Some(head) = RecordHead::read(window, journal.end)? else { return Ok(None) };
        let RecordHead { sum, kind, covered, .. } = head;
        let bytes = head.bytes();
        let Ok(len) = usize::try_from(bytes) else { return Ok(None) };
        let Some(record) = window.get(journal.end, len)? else { return Ok(None) };
        if record_sum(journal.key, journal.end, journal.chain, &record[8..]) != sum {
            return Ok(None);
        }
        let (numbers, _) = record[RECORD_BYTES..].as_chunks::<8>();
        let (kind, history, numbers) = match (kind, numbers) {
            (HASHES | CONTINUATION, _) => (kind, 0, numbers),
            (HASHES_OF_HISTORY, [history, rest @ ..]) => (HASHES, number(history), rest),
            (CONTINUATION_OF_HISTORY, [history, rest @ ..]) => {
                (CONTINUATION, number(history), rest)
            }
            _ => return Ok(None),
        };
        match (kind, numbers) {
            (HASHES, _) => hashes(numbers),
            (CONTINUATION, [id, key]) => self.next = Some((number(id), number(key))),
            _ => return Ok(None),
        }
        self.covered = self.covered.intersect(Coverage { position: covered, history });
        self.journal.end += bytes;
        self.journal.chain = sum;
        Ok(Some(()))
    }
}

/// A part of a journal in memory that fits into the processor's cache.
struct JournalWindow<'a> {
    file: &'a dyn File,
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl JournalWindow<'_> {
    fn new(file: &dyn File) -> Result<JournalWindow<'_>> {
        Ok(JournalWindow { file, len: file.len()?, start: 0, bytes: Vec::new() })
    }

    /// Returns bytes of the file, or `None` if the file ends before them.
    fn get(&mut self, offset: u64, count: usize) -> Result<Option<&[u8]>> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        if left < count {
            return Ok(None);
        }
        let at = |start: u64| usize::try_from(offset.checked_sub(start)?).ok();
        let is_there =
            |at: &usize| at.checked_add(count).is_some_and(|end| end <= self.bytes.len());
        let at = match at(self.start).filter(is_there) {
            Some(at) => at,
            None => {
                self.bytes.resize(left.min(count.max(WINDOW_BYTES)), 0);
                let read = self.file.read_at(&mut self.bytes, offset)?;
                let ahead = offset + READ_AHEAD_BYTES;
                self.file.read_ahead(ahead..ahead + WINDOW_BYTES as u64);
                self.bytes.truncate(read);
                self.start = offset;
                0
            }
        };
        Ok(self.bytes.get(at..at + count))
    }
}

/// Records that are written by one call.
struct RecordBuffer {
    key: u64,
    start: u64,
    chain: u64,
    bytes: Vec<u8>,
}

impl RecordBuffer {
    fn new(journal: &Journal) -> RecordBuffer {
        let (key, start, chain) = (journal.key, journal.end, journal.chain);
        RecordBuffer { key, start, chain, bytes: Vec::new() }
    }

    /// Adds a record of the first of `kinds`, or of the second if the history is known.
    fn push(&mut self, kinds: (u32, u32), covered: Coverage, numbers: &[u64]) {
        let Coverage { position, history } = covered;
        let kind = if history == 0 { kinds.0 } else { kinds.1 };
        let history = (history != 0).then_some(history);
        let count = numbers.len() + usize::from(history.is_some());
        let at = self.bytes.len();
        self.bytes.reserve(RECORD_BYTES + 8 * count);
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        self.bytes.extend_from_slice(&(count as u32).to_le_bytes());
        self.bytes.extend_from_slice(&position.to_le_bytes());
        let numbers = history.iter().chain(numbers);
        numbers.for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
        let offset = self.start + at as u64;
        self.chain = record_sum(self.key, offset, self.chain, &self.bytes[at + 8..]);
        self.bytes[at..at + 8].copy_from_slice(&self.chain.to_le_bytes());
    }

    /// Returns the bytes of all records, and the last record's checksum.
    fn finish(self) -> (Vec<u8>, u64) {
        (self.bytes, self.chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use umbel_env::Access;
    use umbel_sim::Sim;

    const PATH: &str = "/000005.journal";

    /// Source of its bytes.
    struct ReadJournal {
        hashes: Vec<u64>,
        covered: u64,
        next: Option<(u64, u64)>,
        journal: Journal,
        is_damaged: bool,
    }

    fn read(sim: &Sim) -> Option<ReadJournal> {
        let file = sim.env().files.open(Path::new(PATH), Access::ReadWrite).unwrap();
        let mut hashes = Vec::new();
        let mut take =
            |some: &[[u8; 8]]| hashes.extend(some.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        let replay = Journal::read(file, 5, 77, &mut take).unwrap();
        let JournalReplay { covered, next, journal, is_damaged } = replay?;
        Some(ReadJournal { hashes, covered: covered.position, next, journal, is_damaged })
    }

    /// Three flushes of ten hashes each, to the positions 100, 200 and 300.
    fn written() -> Sim {
        let sim = Sim::new(1);
        let file = sim.env().files.create(Path::new(PATH)).unwrap();
        let mut journal = Journal::begin(file, 5, 77).unwrap();
        for flush in 1..=3u64 {
            let hashes: Vec<u64> = (0..10).map(|number| flush * 1000 + number).collect();
            journal.append(&hashes, ((flush - 1) * 100).into(), (flush * 100).into()).unwrap();
        }
        sim
    }

    #[test]
    fn every_flipped_bit_ends_the_journal_before_its_record() {
        let sim = written();
        let bytes = sim.read(PATH);
        let journal = read(&sim).unwrap();
        assert_eq!((journal.hashes.len(), journal.covered, journal.next), (30, 300, None));
        let record = RECORD_BYTES + 80;
        assert_eq!(bytes.len(), HEADER_BYTES + 3 * record);
        for bit in 0..bytes.len() * 8 {
            let damaged = sim.clone_disk();
            damaged.flip(PATH, bit as u64 / 8, 1 << (bit % 8));
            let sound = (bit / 8).checked_sub(HEADER_BYTES).map(|at| at / record);
            let found = read(&damaged);
            assert_eq!(found.as_ref().map(|replay| replay.hashes.len() / 10), sound, "bit {bit}");
            let covered = sound.map(|sound| sound as u64 * 100);
            assert_eq!(found.map(|replay| replay.covered), covered);
        }
        for len in 0..bytes.len() as u64 {
            let cut = sim.clone_disk();
            cut.truncate(PATH, len);
            let sound = len.checked_sub(HEADER_BYTES as u64).map(|at| at / record as u64 * 100);
            assert_eq!(read(&cut).map(|replay| replay.covered), sound, "{len} bytes");
        }
    }

    /// Story: damage of a journal counted as a record that a crash had torn, and was not reported.
    #[test]
    fn damage_before_a_durable_record_is_not_a_torn_record() {
        let sim = written();
        assert!(!read(&sim).unwrap().is_damaged);
        let record = RECORD_BYTES + 80;
        for at in 0..3 * record {
            let damaged = sim.clone_disk();
            damaged.flip(PATH, (HEADER_BYTES + at) as u64, 1);
            // A damaged count hides where the next record begins.
            let is_count = (12..16).contains(&(at % record));
            let is_known = at < 2 * record && !is_count;
            assert_eq!(read(&damaged).unwrap().is_damaged, is_known, "byte {at}");
        }
        for len in HEADER_BYTES..HEADER_BYTES + 3 * record {
            let torn = sim.clone_disk();
            torn.truncate(PATH, len as u64);
            assert!(!read(&torn).unwrap().is_damaged, "{len} bytes");
        }
    }

    /// A crash can lose a part of a long flush and keep a later one.
    #[test]
    fn torn_record_of_a_long_flush_is_not_damage() {
        let sim = Sim::new(1);
        let file = sim.env().files.create(Path::new(PATH)).unwrap();
        let mut journal = Journal::begin(file, 5, 77).unwrap();
        let hashes: Vec<u64> = (0..RECORD_HASHES_MAX as u64 + 5).collect();
        journal.append(&hashes, 3.into(), 9.into()).unwrap();
        sim.zero_sector(PATH, 4096);
        let replay = read(&sim).unwrap();
        assert_eq!((replay.hashes.len(), replay.is_damaged), (0, false));
    }

    /// Records of an earlier process after a gap do not count once the gap was overwritten.
    #[test]
    fn record_after_a_gap_is_not_replayed() {
        let sim = written();
        sim.flip(PATH, (HEADER_BYTES + RECORD_BYTES + 80 + 50) as u64, 1);
        let mut replay = read(&sim).unwrap();
        assert_eq!((replay.hashes.len(), replay.covered), (10, 100));
        // As long as the damaged one: the third record stands right after it again.
        replay.journal.append(&[7; 10], 100.into(), 150.into()).unwrap();
        let again = read(&sim).unwrap();
        assert_eq!((again.hashes.len(), again.covered), (20, 150));
    }

    #[test]
    fn long_flush_records_its_position_last() {
        let sim = Sim::new(1);
        let file = sim.env().files.create(Path::new(PATH)).unwrap();
        let mut journal = Journal::begin(file, 5, 77).unwrap();
        let hashes: Vec<u64> = (0..RECORD_HASHES_MAX as u64 * 2 + 5).collect();
        let written = journal.append(&hashes, 3.into(), 9.into()).unwrap();
        assert_eq!(written, 3 * RECORD_BYTES as u64 + 8 * hashes.len() as u64);
        let replay = read(&sim).unwrap();
        assert_eq!((&replay.hashes, replay.covered), (&hashes, 9));
        sim.truncate(PATH, HEADER_BYTES as u64 + written - 1);
        assert_eq!(read(&sim).unwrap().covered, 3);
    }

    #[test]
    fn journal_ends_where_another_continues() {
        let sim = written();
        let mut replay = read(&sim).unwrap();
        let other = sim.env().files.create(Path::new("/000006.journal")).unwrap();
        let next = Journal::begin(other, 6, 78).unwrap();
        replay.journal.continue_in(&next, 300.into()).unwrap();
        assert_eq!(read(&sim).unwrap().next, Some((6, 78)));
    }

    /// The history is in the record that needs it, and a known history is kept.
    #[test]
    fn record_names_the_history_of_its_position() {
        let sim = Sim::new(1);
        let file = sim.env().files.create(Path::new(PATH)).unwrap();
        let mut journal = Journal::begin(file, 5, 77).unwrap();
        let of = |position, history| Coverage { position, history };
        let covered = || {
            let file = sim.env().files.open(Path::new(PATH), Access::Read).unwrap();
            let mut count = 0;
            let replay = Journal::read(file, 5, 77, &mut |some| count += some.len()).unwrap();
            let replay = replay.unwrap();
            (count, replay.covered, replay.next)
        };
        journal.append(&[1, 2], of(0, 0), of(10, 0)).unwrap();
        assert_eq!(covered(), (2, of(10, 0), None));
        journal.append(&[3], of(10, 0), of(20, 7)).unwrap();
        assert_eq!(covered(), (3, of(20, 7), None));
        let hashes: Vec<u64> = (0..RECORD_HASHES_MAX as u64 + 1).collect();
        journal.append(&hashes, of(20, 7), of(30, 8)).unwrap();
        assert_eq!(covered(), (3 + hashes.len(), of(30, 8), None));
        let other = sim.env().files.create(Path::new("/000006.journal")).unwrap();
        let next = Journal::begin(other, 6, 78).unwrap();
        journal.continue_in(&next, of(30, 8)).unwrap();
        assert_eq!(covered(), (3 + hashes.len(), of(30, 8), Some((6, 78))));
    }
}
