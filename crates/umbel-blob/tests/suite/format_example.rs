//! Tests that the writer writes the worked example of `docs/formats/blob.md`.

use super::fixture::{machine, path, write};

const PAGE: &str = include_str!("../../../../docs/formats/blob.md");

/// Returns the bytes of the example. In each line they are between the first and the second pair of
/// spaces, after the offset.
fn example() -> Vec<u8> {
    let (_, rest) = PAGE.split_once("```example blob\n").expect("the page has the example");
    let (block, _) = rest.split_once("```").expect("the example ends");
    let mut bytes: Vec<u8> = Vec::new();
    for line in block.lines().filter(|line| !line.trim_start().starts_with("--")) {
        let (offset, rest) = line.split_once("  ").expect("two spaces after the offset");
        assert_eq!(usize::from_str_radix(offset, 16), Ok(bytes.len()), "the offset of {line}");
        let digits = rest.split("  ").next().unwrap_or_default().split(' ');
        bytes.extend(digits.map(|digits| u8::from_str_radix(digits, 16).expect("two digits")));
    }
    bytes
}

#[test]
fn the_page_shows_the_bytes() {
    let sim = machine();
    let pointer = write(&sim, 7, b"a long value, if only it were").unwrap();
    let written = sim.read(path(7));
    let shown = example();
    assert!(shown == written, "the example should be\n{written:02x?}");
    assert_eq!(pointer.checksum.to_le_bytes(), shown[56..64]);
}
