//! A second implementation of the format, written from `docs/formats/log.md` alone. This model is
//! slow and simple, and shares only the checksum function with the crate. Tests forge logs with the
//! model, and compare its results with those of the crate's reader.

use umbel_base::checksum::checksum;
use umbel_log::{ExpectedEnd, Seal};

use super::memory_disk::{Entry, LOG_ID};

pub const HEADER: usize = 64;
pub const DATA: u8 = 1;
pub const END: u8 = 2;

/// End of a log according to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Fine { end: u64, sealed: bool, torn: bool },
    Corruption,
    Newer,
}

/// Returns a file header with these fields.
pub fn header(version: u32, kind: u8, log_id: u64) -> Vec<u8> {
    let mut bytes = b"UmbelLog".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend([kind, 0, 0, 0]);
    bytes.extend(log_id.to_le_bytes());
    bytes.extend([0; 32]);
    let sum = checksum(log_id, 0, &bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// Returns the bytes of a record at `offset`.
pub fn record(
    log_id: u64,
    offset: u64,
    sequence: u64,
    mark: u32,
    kind: u8,
    payload: &[u8],
) -> Vec<u8> {
    let mut rest = (payload.len() as u32).to_le_bytes().to_vec();
    rest.extend((log_id as u32).to_le_bytes());
    rest.extend(sequence.to_le_bytes());
    rest.extend(mark.to_le_bytes());
    rest.extend([kind, 0, 0, 0]);
    rest.extend(payload);
    while !rest.len().is_multiple_of(8) {
        rest.push(0);
    }
    let mut bytes = checksum(log_id, offset, &rest).to_le_bytes().to_vec();
    bytes.extend(rest);
    bytes
}

/// A log that grows by appended records.
#[derive(Debug, Clone)]
pub struct Forge {
    pub bytes: Vec<u8>,
    pub log_id: u64,
    records: u64,
    running: u64,
}

impl Forge {
    pub fn new(log_id: u64) -> Forge {
        let bytes = header(1, 1, log_id);
        let running = number(&bytes, 56, 8);
        Forge { bytes, log_id, records: 0, running }
    }

    pub fn add(&mut self, sequence: u64, durable: u64, payload: &[u8]) {
        self.put(sequence, durable, DATA, payload);
    }

    pub fn put(&mut self, sequence: u64, durable: u64, kind: u8, payload: &[u8]) {
        let offset = self.bytes.len() as u64;
        let mark = (durable / 8) as u32;
        let record = record(self.log_id, offset, sequence, mark, kind, payload);
        self.records += 1;
        self.running = checksum(self.running, offset, &record[..8]);
        self.bytes.extend(record);
    }

    pub fn seal(&mut self, sequence: u64, durable: u64) -> Seal {
        let mut payload = self.records.to_le_bytes().to_vec();
        payload.extend(self.running.to_le_bytes());
        let sum = self.running;
        self.put(sequence, durable, END, &payload);
        Seal { len: self.bytes.len() as u64, checksum: sum }
    }
}

/// A record that the model found.
struct Seen {
    end: usize,
    sum: u64,
    sequence: u64,
    durable: usize,
    kind: u8,
    payload: Vec<u8>,
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// The record at `offset`, if its checksum and its fixed fields are right.
fn seen(bytes: &[u8], offset: usize) -> Option<Seen> {
    if bytes.len() < offset + 32 {
        return None;
    }
    let head = &bytes[offset..];
    let len = number(head, 8, 4) as usize;
    let end = offset + (32 + len).div_ceil(8) * 8;
    let fixed = number(head, 12, 4) == LOG_ID & 0xffff_ffff
        && (head[28] == DATA || head[28] == END)
        && head[29..32] == [0; 3];
    if end > bytes.len() || !fixed {
        return None;
    }
    let sum = number(head, 0, 8);
    (checksum(LOG_ID, offset as u64, &bytes[offset + 8..end]) == sum).then(|| Seen {
        end,
        sum,
        sequence: number(head, 16, 8),
        durable: number(head, 24, 4) as usize * 8,
        kind: head[28],
        payload: head[32..32 + len].to_vec(),
    })
}

/// Whether a valid record with at least this durable mark is at or after `start`.
fn later(bytes: &[u8], start: usize, durable_min: usize) -> bool {
    (start..bytes.len()).step_by(8).any(|offset| {
        seen(bytes, offset).is_some_and(|it| it.durable >= durable_min && it.durable <= offset)
    })
}

/// Reads a whole log in the simplest way.
pub fn read(bytes: &[u8], expectation: ExpectedEnd) -> (Vec<Entry>, Verdict) {
    let mut records = Vec::new();
    let sealed = match expectation {
        ExpectedEnd::Open => None,
        ExpectedEnd::Sealed(sealed) => Some(sealed),
        ExpectedEnd::Prefix(_) => panic!("the model reads whole logs"),
    };
    let bytes = match sealed {
        Some(sealed) if (bytes.len() as u64) < sealed.len => return (records, Verdict::Corruption),
        Some(sealed) => &bytes[..sealed.len as usize],
        None => bytes,
    };
    let gap = |offset: usize| {
        if sealed.is_some() || later(bytes, offset, offset + 1) {
            return Verdict::Corruption;
        }
        let torn = offset == 0 || bytes[offset..].iter().any(|&byte| byte != 0);
        Verdict::Fine { end: offset as u64, sealed: false, torn }
    };
    if bytes.len() < HEADER
        || bytes[..8] != *b"UmbelLog"
        || checksum(number(bytes, 16, 8), 0, &bytes[..56]) != number(bytes, 56, 8)
    {
        return (records, gap(0));
    }
    match number(bytes, 8, 4) {
        0 => return (records, Verdict::Corruption),
        1 => {}
        _ => return (records, Verdict::Newer),
    }
    if bytes[..64] != header(1, 1, LOG_ID) {
        return (records, Verdict::Corruption);
    }
    let (mut offset, mut sequence, mut running) = (HEADER, 0, number(bytes, 56, 8));
    loop {
        let Some(it) = seen(bytes, offset) else { return (records, gap(offset)) };
        if it.sequence < sequence || it.durable > offset {
            return (records, Verdict::Corruption);
        }
        if it.kind == END {
            let stated = it.payload.len() == 16
                && number(&it.payload, 0, 8) == records.len() as u64
                && number(&it.payload, 8, 8) == running;
            let here = Seal { len: it.end as u64, checksum: running };
            if !stated || sealed.is_some_and(|sealed| sealed != here) || later(bytes, it.end, 0) {
                return (records, Verdict::Corruption);
            }
            let torn = bytes[it.end..].iter().any(|&byte| byte != 0);
            return (records, Verdict::Fine { end: here.len, sealed: true, torn });
        }
        running = checksum(running, offset as u64, &it.sum.to_le_bytes());
        (offset, sequence) = (it.end, it.sequence);
        records.push((it.sequence, it.payload));
    }
}
