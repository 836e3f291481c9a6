//! A journal: hashes inserted since a filter was written, appended flush by flush.
//! `docs/formats/existence.md` is the page for the bytes.
//!
//! INVARIANT:
//! 1. A record's checksum is bound to the record before it. So a record that an earlier life of the
//!    journal left behind a gap never counts once something else was written into the gap.
//! 2. A file whose sync failed is not written again.

use std::sync::Arc;

use umbel_base::checksum::{checksum, checksum_parts};
use umbel_base::{Decoder, Result};
use umbel_env::File;

/// FORMAT: the first eight bytes of a journal.
const MAGIC: [u8; 8] = *b"UmbelExJ";
/// FORMAT: the version this build writes, and the only one it reads.
const VERSION: u32 = 1;
/// FORMAT: magic, version `u32`, zero `u32`, id, key `u64` each, 24 zeros, checksum `u64`.
const HEADER_BYTES: usize = 64;
/// FORMAT: checksum `u64`, kind `u32`, count `u32`, covered `u64`; then `count` numbers `u64`.
const RECORD_BYTES: usize = 24;
/// FORMAT: a record of hashes.
const HASHES: u32 = 1;
/// FORMAT: a record with id and key of the journal that goes on from here.
const CONTINUED: u32 = 2;
/// Most hashes of one record; more make several, which are synced together.
const RECORD_HASHES_MAX: usize = 1 << 16;

/// Whether bytes are the beginning of a journal.
pub(crate) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// A journal to append to.
#[derive(Debug)]
pub(crate) struct Journal {
    file: Arc<dyn File>,
    pub(crate) id: u64,
    pub(crate) key: u64,
    /// Behind the last record.
    end: u64,
    /// The checksum of the last record, of the header where there is none.
    chain: u64,
    /// Whether a sync failed.
    is_broken: bool,
}

/// What a journal holds.
#[derive(Debug)]
pub(crate) struct Replay {
    pub(crate) hashes: Vec<u64>,
    /// The last record's position.
    pub(crate) covered: u64,
    /// Id and key of the journal that goes on.
    pub(crate) next: Option<(u64, u64)>,
    /// The journal, to be gone on with behind its last sound record.
    pub(crate) journal: Journal,
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

/// The checksum in a header.
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

    /// How long it is.
    pub(crate) fn bytes(&self) -> u64 {
        self.end
    }

    /// Whether it may be written.
    pub(crate) fn is_sound(&self) -> bool {
        !self.is_broken
    }

    /// Appends hashes and makes them durable, with the position up to which they and all before
    /// them cover the user's log; `before` is that of what stands there already.
    ///
    /// After an error nothing was appended. If a write failed, the same and more may be appended
    /// later; if the sync failed, nothing ever.
    pub(crate) fn append(&mut self, hashes: &[u64], before: u64, covered: u64) -> Result<u64> {
        let mut records = Records::new(self);
        let mut rest = hashes;
        while rest.len() > RECORD_HASHES_MAX {
            let (some, others) = rest.split_at(RECORD_HASHES_MAX);
            // Only the last record may promise the position: the others may survive without it.
            records.push(HASHES, before, some);
            rest = others;
        }
        records.push(HASHES, covered, rest);
        let (bytes, chain) = records.finish();
        self.write(&bytes, chain)
    }

    /// Appends that another journal goes on from here, and makes that durable. Errors are as those
    /// of [`Journal::append`].
    pub(crate) fn continue_in(&mut self, next: &Journal, covered: u64) -> Result<u64> {
        let mut records = Records::new(self);
        records.push(CONTINUED, covered, &[next.id, next.key]);
        let (bytes, chain) = records.finish();
        self.write(&bytes, chain)
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

    /// Reads a journal up to its first gap. `None` where it is not the one with this id and key.
    ///
    /// # Errors
    /// What the file says where it cannot be read.
    pub(crate) fn read(file: Arc<dyn File>, id: u64, key: u64) -> Result<Option<Replay>> {
        let len = usize::try_from(file.len()?).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        let right = header(id, key);
        if !bytes.starts_with(&right) {
            return Ok(None);
        }
        let (end, chain) = (HEADER_BYTES as u64, header_sum(&right));
        let journal = Journal { file, id, key, end, chain, is_broken: false };
        let mut replay = Replay { hashes: Vec::new(), covered: 0, next: None, journal };
        while replay.next.is_none() && replay.take(&bytes).is_some() {}
        Ok(Some(replay))
    }
}

impl Replay {
    /// Takes one record. `None` where there is none that is sound.
    fn take(&mut self, bytes: &[u8]) -> Option<()> {
        let journal = &self.journal;
        let rest = bytes.get(usize::try_from(journal.end).ok()?..)?;
        let mut decoder = Decoder::new(rest);
        let sum = decoder.u64()?;
        let (kind, count, covered) = (decoder.u32()?, decoder.u32()?, decoder.u64()?);
        let numbers = decoder.take(usize::try_from(count).ok()?.checked_mul(8)?)?;
        let record = rest.get(8..decoder.position())?;
        if record_sum(journal.key, journal.end, journal.chain, record) != sum {
            return None;
        }
        let (numbers, _) = numbers.as_chunks::<8>();
        let mut numbers = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes));
        match (kind, count) {
            (HASHES, _) => self.hashes.extend(numbers),
            (CONTINUED, 2) => self.next = Some((numbers.next()?, numbers.next()?)),
            _ => return None,
        }
        self.covered = self.covered.max(covered);
        self.journal.end += decoder.position() as u64;
        self.journal.chain = sum;
        Some(())
    }
}

/// Records to be written together.
struct Records {
    key: u64,
    start: u64,
    chain: u64,
    bytes: Vec<u8>,
}

impl Records {
    fn new(journal: &Journal) -> Records {
        let (key, start, chain) = (journal.key, journal.end, journal.chain);
        Records { key, start, chain, bytes: Vec::new() }
    }

    fn push(&mut self, kind: u32, covered: u64, numbers: &[u64]) {
        let at = self.bytes.len();
        self.bytes.reserve(RECORD_BYTES + 8 * numbers.len());
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        self.bytes.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&covered.to_le_bytes());
        numbers.iter().for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
        let offset = self.start + at as u64;
        self.chain = record_sum(self.key, offset, self.chain, &self.bytes[at + 8..]);
        self.bytes[at..at + 8].copy_from_slice(&self.chain.to_le_bytes());
    }

    /// The bytes, and the last record's checksum.
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

    fn read(sim: &Sim) -> Option<Replay> {
        let file = sim.env().files.open(Path::new(PATH), Access::ReadWrite).unwrap();
        Journal::read(file, 5, 77).unwrap()
    }

    /// Three flushes of ten hashes each, to the positions 100, 200 and 300.
    fn written() -> Sim {
        let sim = Sim::new(1);
        let file = sim.env().files.create(Path::new(PATH)).unwrap();
        let mut journal = Journal::begin(file, 5, 77).unwrap();
        for flush in 1..=3u64 {
            let hashes: Vec<u64> = (0..10).map(|number| flush * 1000 + number).collect();
            journal.append(&hashes, (flush - 1) * 100, flush * 100).unwrap();
        }
        sim
    }

    #[test]
    fn every_flipped_bit_ends_the_journal_before_its_record() {
        let sim = written();
        let bytes = sim.read(PATH);
        let whole = read(&sim).unwrap();
        assert_eq!((whole.hashes.len(), whole.covered, whole.next), (30, 300, None));
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

    /// What an earlier life left behind a gap does not count once the gap was written over.
    #[test]
    fn a_record_behind_a_gap_never_comes_back() {
        let sim = written();
        sim.flip(PATH, (HEADER_BYTES + RECORD_BYTES + 80 + 50) as u64, 1);
        let mut replay = read(&sim).unwrap();
        assert_eq!((replay.hashes.len(), replay.covered), (10, 100));
        // As long as the damaged one: the third record stands right behind it again.
        replay.journal.append(&[7; 10], 100, 150).unwrap();
        let again = read(&sim).unwrap();
        assert_eq!((again.hashes.len(), again.covered), (20, 150));
    }

    #[test]
    fn a_long_flush_promises_its_position_last() {
        let sim = Sim::new(1);
        let file = sim.env().files.create(Path::new(PATH)).unwrap();
        let mut journal = Journal::begin(file, 5, 77).unwrap();
        let hashes: Vec<u64> = (0..RECORD_HASHES_MAX as u64 * 2 + 5).collect();
        let written = journal.append(&hashes, 3, 9).unwrap();
        assert_eq!(written, 3 * RECORD_BYTES as u64 + 8 * hashes.len() as u64);
        let replay = read(&sim).unwrap();
        assert_eq!((&replay.hashes, replay.covered), (&hashes, 9));
        sim.truncate(PATH, HEADER_BYTES as u64 + written - 1);
        assert_eq!(read(&sim).unwrap().covered, 3);
    }

    #[test]
    fn what_goes_on_elsewhere_ends_here() {
        let sim = written();
        let mut replay = read(&sim).unwrap();
        let other = sim.env().files.create(Path::new("/000006.journal")).unwrap();
        let next = Journal::begin(other, 6, 78).unwrap();
        replay.journal.continue_in(&next, 300).unwrap();
        assert_eq!(read(&sim).unwrap().next, Some((6, 78)));
    }
}
