//! Compares the bytes of a small table with `docs/formats/table.md`.
//!
//! The reader in this test follows the format page and uses no code of the crate. Its output is the
//! page's worked example. `UMBEL_REGENERATE=1 cargo test -p umbel-table` rewrites the example, as
//! long as the format is experimental.

use std::fmt::Write;
use std::path::PathBuf;

use umbel_base::RangeTombstone;
use umbel_base::checksum::checksum;
use umbel_table::Compression;

use crate::fixture::{Model, TABLE_ID, options};

/// Key, sequence number, kind and value, as they are on disk.
type Entry = (Vec<u8>, u64, u64, Vec<u8>);

/// Reads the bytes of a file and writes a line for every field.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    lines: String,
}

impl Reader<'_> {
    fn note(&mut self, len: usize, meaning: &str) -> Vec<u8> {
        let taken = self.bytes[self.at..self.at + len].to_vec();
        for (index, row) in taken.chunks(16).enumerate() {
            let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            let meaning = if index == 0 { meaning } else { "" };
            let line = format!("{:04x}  {:<47}  {meaning}", self.at + 16 * index, hex.join(" "));
            writeln!(self.lines, "{}", line.trim_end()).unwrap();
        }
        self.at += len;
        taken
    }

    fn fixed(&mut self, len: usize, name: &str) -> u64 {
        let mut number = [0; 8];
        number[..len].copy_from_slice(&self.bytes[self.at..self.at + len]);
        let number = u64::from_le_bytes(number);
        let shown = if name.contains("checksum") { String::new() } else { format!(" {number}") };
        self.note(len, &format!("{name}{shown}"));
        number
    }

    fn peek_varint(&self) -> (u64, usize) {
        let tail = &self.bytes[self.at..];
        let len = tail.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let value =
            tail[..len].iter().rev().fold(0, |value, byte| value << 7 | u64::from(byte & 0x7f));
        (value, len)
    }

    fn varint(&mut self, name: &str) -> u64 {
        let (value, len) = self.peek_varint();
        self.note(len, &format!("{name} {value}"));
        value
    }

    fn text(&mut self, len: u64, name: &str) -> Vec<u8> {
        if len == 0 {
            return Vec::new();
        }
        let text =
            String::from_utf8_lossy(&self.bytes[self.at..self.at + len as usize]).into_owned();
        self.note(len as usize, &format!("{name} \"{text}\""))
    }

    fn heading(&mut self, text: &str) {
        writeln!(self.lines, "      -- {text}").unwrap();
    }

    /// The trailer of a block that started at `start`.
    fn trailer(&mut self, start: usize, kind: u8) -> u64 {
        let len = self.at - start;
        assert_eq!(self.bytes[self.at], kind << 4);
        self.note(1, &format!("tag: kind {kind}, not compressed"));
        assert_eq!(self.fixed(4, "payload length"), len as u64);
        let sum = checksum(TABLE_ID, start as u64, &self.bytes[start..self.at]);
        assert_eq!(self.fixed(8, "checksum"), sum);
        sum
    }

    fn data_block(&mut self, payload_len: u64) -> (Vec<Entry>, u64) {
        let start = self.at;
        let mut entries = Vec::new();
        while self.at < start + payload_len as usize {
            let count = self.fixed(1, "entries in the group");
            let prefix_len = self.varint("prefix length");
            let prefix = self.text(prefix_len, "prefix");
            for _ in 0..count {
                let suffix_len = self.varint("suffix length");
                let value_len = self.varint("value length");
                let (trailer, len) = self.peek_varint();
                let (sequence, kind) = (trailer >> 4, trailer & 15);
                let name = ["delete", "put"][kind as usize];
                self.note(
                    len,
                    &format!("trailer {trailer}: sequence {sequence}, kind {kind} {name}"),
                );
                let suffix = self.text(suffix_len, "suffix");
                let value = self.text(value_len, "value");
                entries.push(([prefix.as_slice(), &suffix].concat(), sequence, kind, value));
            }
        }
        (entries, self.trailer(start, 1))
    }
}

/// Reads offset, length and checksum of each region from the footer, without writing lines.
fn regions(bytes: &[u8]) -> Vec<[u64; 3]> {
    let footer = bytes.len() - 192;
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    (0..5).map(|region| [0, 8, 16].map(|field| number(footer + 48 + 24 * region + field))).collect()
}

fn read(bytes: &[u8], model: &Model) -> String {
    let mut reader = Reader { bytes, at: 0, lines: String::new() };
    let regions = regions(bytes);
    reader.heading("header");
    reader.text(8, "magic");
    reader.fixed(4, "format version");
    reader.fixed(4, "zero");
    assert_eq!(reader.fixed(8, "file id"), TABLE_ID);
    assert_eq!(reader.fixed(8, "checksum"), checksum(TABLE_ID, 0, &bytes[..24]));
    let mut entries = Vec::new();
    let mut chain = 0u64;
    let lengths = lengths_in_index(bytes, &regions);
    for (number, len) in lengths.iter().enumerate() {
        let start = reader.at;
        reader.heading(&format!("data block {number}"));
        let (read, sum) = reader.data_block(*len);
        let joined = [chain.to_le_bytes(), sum.to_le_bytes()].concat();
        chain = checksum(chain, start as u64, &joined);
        entries.extend(read);
    }
    assert_eq!(reader.at as u64, regions[0][0] + regions[0][1]);
    assert_eq!(chain, regions[0][2], "the checksum over all data blocks");
    let expected: Vec<_> = model.list();
    assert_eq!(entries.len(), expected.len());
    for (read, (key, (sequence, kind, value))) in entries.iter().zip(expected) {
        assert_eq!(*read, (key, sequence, kind as u64, value));
    }
    read_parts(&mut reader, &regions, lengths.len());
    read_footer(&mut reader);
    reader.lines
}

fn lengths_in_index(bytes: &[u8], regions: &[[u64; 3]]) -> Vec<u64> {
    let at = regions[1][0] as usize;
    let mut reader = Reader { bytes, at, lines: String::new() };
    let mut lengths = Vec::new();
    let prefix = reader.varint("");
    reader.text(prefix, "");
    // Index of one part: the top after it gives its length.
    let top = u32::from_le_bytes(bytes[bytes.len() - 148..][..4].try_into().unwrap());
    while (reader.at as u64) < regions[1][0] + regions[1][1] - u64::from(top) - 13 {
        let suffix = reader.varint("");
        reader.text(suffix, "");
        reader.varint("");
        lengths.push(reader.varint(""));
    }
    lengths
}

fn read_parts(reader: &mut Reader<'_>, regions: &[[u64; 3]], blocks: usize) {
    reader.heading("index part 0");
    let start = reader.at;
    let len = reader.varint("prefix length");
    reader.text(len, "prefix");
    for block in 0..blocks {
        let len = reader.varint(&format!("block {block}: suffix length"));
        reader.text(len, "suffix");
        reader.varint("separator sequence");
        reader.varint("payload length");
    }
    let (part_len, sum) = (reader.at + 13 - start, reader.trailer(start, 6));
    reader.heading("index top");
    let start = reader.at;
    let len = reader.varint("part 0: last separator's length");
    reader.text(len, "last separator");
    reader.varint("its sequence");
    assert_eq!(reader.varint("bytes of data blocks"), regions[0][1]);
    assert_eq!(reader.varint("bytes of the part"), part_len as u64);
    assert_eq!(reader.fixed(8, "checksum of the part"), sum);
    assert_eq!(reader.trailer(start, 2), regions[1][2]);
    reader.heading("filter block");
    let start = reader.at;
    reader.note(regions[2][1] as usize - 13, "see filter.md");
    assert_eq!(reader.trailer(start, 3), regions[2][2]);
    reader.heading("range tombstone block");
    let start = reader.at;
    for _ in 0..reader.varint("tombstones") {
        let len = reader.varint("start length");
        reader.text(len, "start");
        let len = reader.varint("end length");
        reader.text(len, "end");
        reader.varint("sequence");
    }
    assert_eq!(reader.trailer(start, 4), regions[3][2]);
    reader.heading("properties block");
    let start = reader.at;
    for _ in 0..reader.varint("properties") {
        let len = reader.varint("name length");
        reader.text(len, "name");
        let len = reader.varint("value length");
        reader.note(len as usize, "value");
    }
    assert_eq!(reader.trailer(start, 5), regions[4][2]);
}

fn read_footer(reader: &mut Reader<'_>) {
    reader.heading("footer");
    let start = reader.at;
    for name in ["file id", "file length", "entries"] {
        reader.fixed(8, name);
    }
    for name in ["data blocks", "longest payload", "feature bits"] {
        reader.fixed(4, name);
    }
    reader.fixed(1, "hash kind");
    reader.fixed(1, "comparator");
    reader.fixed(2, "zero");
    reader.fixed(4, "seed id");
    reader.fixed(4, "bytes of the index's top");
    for region in ["data", "index", "filter", "tombstones", "properties"] {
        reader.fixed(8, &format!("{region}: offset"));
        reader.fixed(8, "length");
        reader.fixed(8, "checksum");
    }
    reader.fixed(4, "footer length");
    reader.fixed(4, "format version");
    let sum = checksum(TABLE_ID, start as u64, &reader.bytes[start..reader.at]);
    assert_eq!(reader.fixed(8, "checksum"), sum);
    reader.text(8, "magic");
    assert_eq!(reader.at, reader.bytes.len(), "every byte has a meaning");
}

fn example() -> Model {
    let mut model = Model::default();
    model.put(b"apple", 3, b"red");
    model.put(b"apple", 1, b"green");
    model.put(b"apricot", 2, b"orange");
    model.delete(b"banana", 6);
    model.put(b"cherry", 300, b"dark red");
    model.tombstones = vec![RangeTombstone { start: b"d".into(), end: b"f".into(), sequence: 5 }];
    model
}

#[test]
fn the_page_shows_the_bytes() {
    let model = example();
    let (file, _) = model.build(options(64, Compression::None));
    let shown = read(&file.bytes(), &model);
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/table.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once("```example\n").expect("the page has an example");
    let (example, after) = rest.split_once("```").expect("the example ends");
    if std::env::var_os("UMBEL_REGENERATE").is_some() {
        std::fs::write(&page, format!("{before}```example\n{shown}```{after}")).unwrap();
        return;
    }
    assert!(example == shown, "the format changed; the example would now be:\n{shown}");
}
