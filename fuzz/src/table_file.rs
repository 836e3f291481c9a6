//! Table files from mutated parts, with right checksums, and the parts of a valid table.
//!
//! FORMAT: `docs/formats/table.md`. This code follows that page and does not use
//! `umbel_table::TableBuilder`, which cannot write contradictory tables.

use std::ops::Range;

use umbel_base::checksum::checksum;

use crate::structured_input::{Parts, put_part};

/// Bytes of the file's header.
const HEADER_BYTES: usize = 32;
/// Bytes after each payload: a tag, a length, a checksum.
const TRAILER_BYTES: usize = 13;
/// Bytes of the footer.
const FOOTER_BYTES: usize = 192;
/// Offset of the footer's five regions.
const REGIONS_AT: usize = 48;
/// The id every assembled table has.
pub const FILE_ID: u64 = 7;

/// The kinds of blocks.
mod kind {
    pub const DATA: u8 = 1;
    pub const INDEX_TOP: u8 = 2;
    pub const FILTER: u8 = 3;
    pub const TOMBSTONES: u8 = 4;
    pub const PROPERTIES: u8 = 5;
    pub const INDEX_PART: u8 = 6;
    pub const SECOND_FILTER: u8 = 7;
}
/// The name of the property that has the plain filter's checksum in its last eight bytes.
const SECOND_FILTER: &[u8] = b"second_filter";

/// Parts of a table after its data blocks, from an input or a table.
#[derive(Default)]
struct Sections {
    index_parts: Vec<Vec<u8>>,
    index_top: Vec<u8>,
    filter: Vec<u8>,
    /// Second filter of the table; empty if the table has none.
    second_filter: Vec<u8>,
    tombstones: Vec<u8>,
    properties: Vec<u8>,
}

/// Returns the table that an input describes. The input has the numbers of the footer, two bytes of
/// compressions and the number of index parts. The parts after the data follow, then data blocks
/// until the input ends. Checksums inside parts are corrected.
pub fn assemble(mut parts: Parts<'_>) -> Vec<u8> {
    let entries = parts.number::<4>();
    let blocks = parts.number::<2>() as u32;
    let payload_bytes_max = parts.number::<4>() as u32;
    let features = parts.number::<1>() as u32;
    let hash = parts.number::<2>();
    let [data_packed, others_packed] = [0; 2].map(|_: u8| parts.number::<1>() as u8 & 15);
    let index_parts = parts.number::<1>();
    let mut sections = Sections {
        index_parts: (0..index_parts).map(|_| parts.part().to_vec()).collect(),
        ..Sections::default()
    };
    let Sections { index_top, filter, second_filter, tombstones, properties, .. } = &mut sections;
    for payload in [index_top, filter, second_filter, tombstones, properties] {
        *payload = parts.part().to_vec();
    }
    let mut file = header();
    let mut regions = [(0u64, 0u64, 0u64); 5];
    let (start, mut chain) = (file.len() as u64, 0);
    while !parts.is_empty() {
        let offset = file.len() as u64;
        let sum = push_block(&mut file, parts.part(), kind::DATA << 4 | data_packed);
        chain = chain_checksum(chain, offset, sum);
    }
    regions[0] = (start, file.len() as u64 - start, chain);
    let start = file.len();
    let push = |file: &mut Vec<u8>, payload: &[u8], kind: u8| {
        push_block(file, payload, kind << 4 | others_packed)
    };
    let sums: Vec<u64> =
        sections.index_parts.iter().map(|part| push(&mut file, part, kind::INDEX_PART)).collect();
    patch_top(&mut sections.index_top, &sums);
    let top_at = file.len();
    let sum = push(&mut file, &sections.index_top, kind::INDEX_TOP);
    let index_top_bytes = (file.len() - top_at) as u32;
    regions[1] = (start as u64, (file.len() - start) as u64, sum);
    let mut region = |file: &mut Vec<u8>, which: usize, payloads: &[(&[u8], u8)]| {
        let (start, mut sum, mut first) = (file.len(), 0, None);
        for (payload, kind) in payloads {
            sum = push(file, payload, *kind);
            first.get_or_insert(sum);
        }
        regions[which] = (start as u64, (file.len() - start) as u64, sum);
        first.unwrap_or(0)
    };
    // A table may lack filters and range tombstones, but no index and no properties.
    let mut filters: Vec<(&[u8], u8)> =
        vec![(&sections.filter, kind::FILTER), (&sections.second_filter, kind::SECOND_FILTER)];
    filters.retain(|(payload, _)| !payload.is_empty());
    let plain = region(&mut file, 2, &filters);
    let mut tombstones: Vec<(&[u8], u8)> = vec![(&sections.tombstones, kind::TOMBSTONES)];
    tombstones.retain(|(payload, _)| !payload.is_empty());
    region(&mut file, 3, &tombstones);
    patch_properties(&mut sections.properties, plain);
    region(&mut file, 4, &[(&sections.properties, kind::PROPERTIES)]);
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
    footer.extend_from_slice(&index_top_bytes.to_le_bytes());
    push_footer(&mut file, footer, &regions);
    file
}

/// Corrects the checksums of the index's parts in the top of the index, as far as the top can be
/// read.
fn patch_top(top: &mut [u8], sums: &[u64]) {
    let mut at = 0;
    for sum in sums {
        let Some((len, after)) = varint(top, at) else { return };
        let Some(mut end) = after.checked_add(len as usize) else { return };
        for _ in 0..3 {
            let Some((_, after)) = varint(top, end) else { return };
            end = after;
        }
        let Some(place) = end.checked_add(8).and_then(|after| top.get_mut(end..after)) else {
            return;
        };
        place.copy_from_slice(&sum.to_le_bytes());
        at = end + 8;
    }
}

/// Corrects the checksum of the plain filter in the properties of a table that has a second filter.
fn patch_properties(properties: &mut [u8], plain: u64) {
    let found = properties.windows(SECOND_FILTER.len()).position(|name| name == SECOND_FILTER);
    let Some(found) = found else { return };
    let Some((len, start)) = varint(properties, found + SECOND_FILTER.len()) else { return };
    let end = start.saturating_add(len as usize);
    if let Some(place) = end.checked_sub(8).and_then(|start| properties.get_mut(start..end)) {
        place.copy_from_slice(&plain.to_le_bytes());
    }
}

/// Returns the varint at the offset `at`, and the offset after it.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for (count, byte) in bytes.get(at..)?.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f).checked_shl(7 * count as u32).unwrap_or(0);
        if byte & 0x80 == 0 {
            return Some((number, at + count + 1));
        }
    }
    None
}

fn push_footer(file: &mut Vec<u8>, mut footer: Vec<u8>, regions: &[(u64, u64, u64); 5]) {
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

/// Returns the input from which [`assemble`] makes this table again; `None` if the bytes are no
/// table.
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
    let packed = |region: Range<usize>| match region.is_empty() {
        true => Some(0),
        false => table.get(region.end - TRAILER_BYTES).map(|tag| tag & 15),
    };
    input.extend_from_slice(&[packed(region(0))?, 0]);
    let index = payloads(table, region(1))?;
    let (top, index_parts) = index.split_last()?;
    input.push(u8::try_from(index_parts.len()).ok()?);
    let filters = payloads(table, region(2))?;
    let tombstones = payloads(table, region(3))?;
    let properties = payloads(table, region(4))?;
    let one = |list: &[&'_ [u8]], at: usize| list.get(at).map_or(Vec::new(), |part| part.to_vec());
    for part in index_parts {
        put_part(&mut input, part);
    }
    put_part(&mut input, top);
    for part in [one(&filters, 0), one(&filters, 1), one(&tombstones, 0), one(&properties, 0)] {
        put_part(&mut input, &part);
    }
    for payload in payloads(table, region(0))? {
        put_part(&mut input, payload);
    }
    Some(input)
}

/// Returns the payloads of the blocks of a region, which are found backwards from the last block by
/// their trailers.
fn payloads(table: &[u8], region: Range<usize>) -> Option<Vec<&[u8]>> {
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
