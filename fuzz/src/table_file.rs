//! Table files from mutated parts, with right checksums, and the parts of a good table.
//!
//! FORMAT: `docs/formats/table.md`. Written from that page, not with `umbel_table::TableBuilder`,
//! which could not be made to contradict itself.

use std::ops::Range;

use umbel_base::checksum::checksum;

use crate::parts::{Parts, put_part};

/// Bytes of the file's header.
const HEADER_BYTES: usize = 32;
/// Bytes behind each payload: a tag, a length, a checksum.
const TRAILER_BYTES: usize = 13;
/// Bytes of the footer.
const FOOTER_BYTES: usize = 192;
/// Where the footer's five regions stand in it.
const REGIONS_AT: usize = 48;
/// The id every assembled table has.
pub const FILE_ID: u64 = 7;

/// The kinds of blocks in the order of their regions.
const KINDS: [u8; 5] = [1, 2, 3, 4, 5];

/// A table put together from an input: the numbers of the footer, one byte of compression per kind
/// of block, the four single parts, then data blocks until the input ends.
pub fn assemble(mut parts: Parts<'_>) -> Vec<u8> {
    let entries = parts.number::<4>();
    let blocks = parts.number::<2>() as u32;
    let payload_bytes_max = parts.number::<4>() as u32;
    let features = parts.number::<1>() as u32;
    let hash = parts.number::<2>();
    let compression: [u8; 5] = std::array::from_fn(|_| parts.number::<1>() as u8 & 15);
    let singles: [&[u8]; 4] = std::array::from_fn(|_| parts.part());
    let mut file = header();
    let mut regions = [(0u64, 0u64, 0u64); 5];
    let (start, mut chain) = (file.len() as u64, 0);
    while !parts.is_empty() {
        let offset = file.len() as u64;
        let sum = push_block(&mut file, parts.part(), KINDS[0] << 4 | compression[0]);
        chain = chain_checksum(chain, offset, sum);
    }
    regions[0] = (start, file.len() as u64 - start, chain);
    for (which, payload) in singles.into_iter().enumerate() {
        let offset = file.len() as u64;
        // A table may lack a filter and range tombstones, but no index and no properties.
        let optional = which == 1 || which == 2;
        let sum = if payload.is_empty() && optional {
            0
        } else {
            push_block(&mut file, payload, KINDS[which + 1] << 4 | compression[which + 1])
        };
        regions[which + 1] = (offset, file.len() as u64 - offset, sum);
    }
    let file_bytes = (file.len() + FOOTER_BYTES) as u64;
    let mut footer = Vec::with_capacity(FOOTER_BYTES);
    for number in [FILE_ID, file_bytes, entries] {
        footer.extend_from_slice(&number.to_le_bytes());
    }
    for number in [blocks, payload_bytes_max, features] {
        footer.extend_from_slice(&number.to_le_bytes());
    }
    footer.extend_from_slice(&[hash as u8, 0, 0, 0]);
    footer.extend_from_slice(&((hash >> 8) as u32).to_le_bytes());
    push_footer(&mut file, footer, &regions);
    file
}

fn push_footer(file: &mut Vec<u8>, mut footer: Vec<u8>, regions: &[(u64, u64, u64); 5]) {
    footer.extend_from_slice(&[0; 4]);
    for (offset, len, sum) in regions {
        for number in [offset, len, sum] {
            footer.extend_from_slice(&number.to_le_bytes());
        }
    }
    footer.extend_from_slice(&(FOOTER_BYTES as u32).to_le_bytes());
    footer.extend_from_slice(&1u32.to_le_bytes());
    let sum = checksum(FILE_ID, file.len() as u64, &footer);
    footer.extend_from_slice(&sum.to_le_bytes());
    footer.extend_from_slice(b"UMBELTBL");
    file.extend_from_slice(&footer);
}

/// The input from which [`assemble`] makes this table again. `None` where the bytes are no table.
pub fn disassemble(table: &[u8]) -> Option<Vec<u8>> {
    let footer = table.get(table.len().checked_sub(FOOTER_BYTES)?..)?;
    let number = |at: usize, width: usize| number_at(footer, at, width);
    let region = |which: usize| {
        let at = REGIONS_AT + 24 * which;
        let start = number(at, 8) as usize;
        start..start + number(at + 8, 8) as usize
    };
    let mut input = Vec::new();
    input.extend_from_slice(&(number(16, 8) as u32).to_le_bytes());
    input.extend_from_slice(&(number(24, 4) as u16).to_le_bytes());
    input.extend_from_slice(&(number(28, 4) as u32).to_le_bytes());
    input.push(number(32, 4) as u8);
    input.extend_from_slice(&[footer[36], footer[40]]);
    for which in 0..5 {
        let region = region(which);
        let tag = if region.is_empty() { 0 } else { *table.get(region.end - TRAILER_BYTES)? };
        input.push(tag & 15);
    }
    for which in 1..5 {
        let region = region(which);
        let end = region.end.saturating_sub(TRAILER_BYTES).max(region.start);
        put_part(&mut input, table.get(region.start..end)?);
    }
    for payload in data_payloads(table, region(0))? {
        put_part(&mut input, payload);
    }
    Some(input)
}

/// The payloads of the data blocks, found from the last one backwards by their trailers.
fn data_payloads(table: &[u8], region: Range<usize>) -> Option<Vec<&[u8]>> {
    let mut payloads = Vec::new();
    let mut end = region.end;
    while end > region.start {
        let trailer = end.checked_sub(TRAILER_BYTES)?;
        let start = trailer.checked_sub(number_at(table, trailer + 1, 4) as usize)?;
        payloads.push(table.get(start..trailer)?);
        end = start;
    }
    payloads.reverse();
    (end == region.start).then_some(payloads)
}

fn number_at(bytes: &[u8], at: usize, width: usize) -> u64 {
    let mut number = [0; 8];
    number[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(number)
}

fn header() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..8].copy_from_slice(b"UMBELTBL");
    bytes[8] = 1;
    bytes[16..24].copy_from_slice(&FILE_ID.to_le_bytes());
    let sum = checksum(FILE_ID, 0, &bytes[..24]);
    bytes[24..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn push_block(file: &mut Vec<u8>, payload: &[u8], tag: u8) -> u64 {
    let offset = file.len();
    file.extend_from_slice(payload);
    file.push(tag);
    file.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let sum = checksum(FILE_ID, offset as u64, &file[offset..]);
    file.extend_from_slice(&sum.to_le_bytes());
    sum
}

fn chain_checksum(chain: u64, offset: u64, block: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&chain.to_le_bytes());
    bytes[8..].copy_from_slice(&block.to_le_bytes());
    checksum(chain, offset, &bytes)
}
