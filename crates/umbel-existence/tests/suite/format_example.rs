//! The code writes the worked example of `docs/formats/existence.md`.

use umbel_existence::{ExistenceOptions, ExistenceSize};
use umbel_sim::Sim;

use super::fixture::{machine, open, small};
use umbel_testing::existence_script::FOLDER;
use umbel_testing::existence_script::memory_hash_source::{Keys, settle};

const PAGE: &str = include_str!("../../../../docs/formats/existence.md");

/// Bytes of an example: after an offset in hexadecimal and two spaces, up to two spaces.
fn example(name: &str) -> Vec<(usize, u8)> {
    let begin = format!("```example {name}\n");
    let (_, rest) = PAGE.split_once(&begin).expect("the page has the example");
    let (block, _) = rest.split_once("```").expect("the example ends");
    let mut bytes = Vec::new();
    for line in block.lines().filter(|line| !line.trim_start().starts_with("--")) {
        let (offset, rest) = line.split_once("  ").expect("two spaces after the offset");
        let offset = usize::from_str_radix(offset, 16).expect("an offset");
        let digits = rest.split("  ").next().unwrap_or_default().split(' ');
        let digits = digits.map(|digits| u8::from_str_radix(digits, 16).expect("two digits"));
        bytes.extend(digits.enumerate().map(|(index, byte)| (offset + index, byte)));
    }
    bytes
}

/// One key in the filter, another in the journal.
fn written() -> Sim {
    let sim = machine();
    let options = ExistenceOptions { size: ExistenceSize::Fixed { bytes: 4096 }, ..small() };
    let filter = open(&sim, options).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    filter.insert(0x0123_4567_89ab_cdef);
    filter.checkpoint(7).unwrap();
    filter.insert(0xfedc_ba98_7654_3210);
    filter.flush(9).unwrap();
    sim
}

fn rows(bytes: &[u8]) -> String {
    let row = |(at, eight): (usize, &[u8])| {
        let digits: Vec<String> = eight.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:04x}  {}\n", at * 8, digits.join(" "))
    };
    bytes.chunks(8).enumerate().map(row).collect()
}

#[test]
fn the_page_shows_the_bytes() {
    let sim = written();
    for (example_name, name, is_whole) in [
        ("checkpoint", "CHECKPOINT", true),
        ("journal", "000003.journal", true),
        ("filter", "000004.filter", false),
    ] {
        let bytes = sim.read(format!("{FOLDER}/{name}"));
        let shown = example(example_name);
        let same = shown.iter().all(|(at, byte)| bytes.get(*at) == Some(byte));
        assert!(same && !shown.is_empty(), "{name} should be\n{}", rows(&bytes));
        assert!(!is_whole || shown.len() == bytes.len(), "{name} should be\n{}", rows(&bytes));
    }
}
