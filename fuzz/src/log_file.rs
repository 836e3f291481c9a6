//! Log files from mutated records, with right checksums.
//!
//! FORMAT: `docs/formats/log.md`. This code follows that page and does not use
//! `umbel_log::LogWriter`, which cannot write wrong marks, kinds and lengths.

use umbel_base::checksum::checksum;
use umbel_log::{HEADER_BYTES, LogKind, RECORD_ALIGN, RECORD_HEADER_BYTES};

use crate::structured_input::Parts;

/// Bytes of the file's header that its checksum covers.
const HEADER_COVERED: usize = HEADER_BYTES as usize - 8;
/// Number of records after which an input is cut off.
const RECORDS_MAX: usize = 64;

/// Durable mark in an input that means the record's own offset.
pub const MARK_HERE: u64 = 0xffff;

/// Returns the file header of a log.
pub fn header(kind: LogKind, log_id: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES as usize];
    bytes[..8].copy_from_slice(b"UmbelLog");
    bytes[8] = 1;
    bytes[12] = kind as u8;
    bytes[16..24].copy_from_slice(&log_id.to_le_bytes());
    let sum = checksum(log_id, 0, &bytes[..HEADER_COVERED]);
    bytes[HEADER_COVERED..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Appends a record with a right checksum.
pub fn push_record(file: &mut Vec<u8>, log_id: u64, record: &Record<'_>) {
    let offset = file.len();
    file.resize(offset + RECORD_HEADER_BYTES, 0);
    file.extend_from_slice(record.payload);
    file.resize(file.len().next_multiple_of(RECORD_ALIGN as usize), 0);
    let bytes = &mut file[offset..];
    bytes[8..12].copy_from_slice(&(record.payload.len() as u32).to_le_bytes());
    bytes[12..16].copy_from_slice(&(log_id as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&record.sequence.to_le_bytes());
    bytes[24..28].copy_from_slice(&record.durable_eighths.to_le_bytes());
    bytes[28] = record.kind;
    let sum = checksum(log_id, offset as u64, &bytes[8..]);
    bytes[..8].copy_from_slice(&sum.to_le_bytes());
}

/// Fields of a record.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// 1 for data, 2 for the end.
    pub kind: u8,
    /// Sequence number of the record.
    pub sequence: u64,
    /// Durable mark of the record, divided by 8.
    pub durable_eighths: u32,
    /// Payload of the record.
    pub payload: &'a [u8],
}

/// Returns a log file of the records that an input describes. Each record has one byte of kind and
/// flags, one of sequence step, two of durable mark, the payload. Flag 0x80 damages the record.
/// With flag 0x40 eight bytes of sequence number replace the step. The mark [`MARK_HERE`] says that
/// all bytes before the record were durable.
pub fn assemble(kind: LogKind, log_id: u64, mut parts: Parts<'_>) -> Vec<u8> {
    let mut file = header(kind, log_id);
    let mut sequence = 1;
    for _ in 0..RECORDS_MAX {
        if parts.is_empty() {
            break;
        }
        let flags = parts.number::<1>() as u8;
        sequence = match flags & 0x40 {
            0 => u64::saturating_add(sequence, parts.number::<1>()),
            _ => parts.number::<8>(),
        };
        let durable_eighths = match parts.number::<2>() {
            MARK_HERE => (file.len() / RECORD_ALIGN as usize) as u32,
            mark => mark as u32,
        };
        let kind = flags & 0x0f;
        let record = Record { kind, sequence, durable_eighths, payload: parts.part() };
        push_record(&mut file, log_id, &record);
        if flags & 0x80 != 0
            && let Some(last) = file.last_mut()
        {
            *last ^= 1;
        }
    }
    file
}
