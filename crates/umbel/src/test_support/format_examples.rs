//! Test helper: the bytes of the worked examples in `docs/formats/`.
//!
//! An example is a fenced block marked `example` with a name. A line of the block has an offset in
//! hexadecimal, two spaces, the bytes, two spaces, and a description. A line that starts with
//! spaces and `--` is a title.

use std::fmt::Write;
use std::path::Path;

fn example(page: &str, name: &str) -> Vec<(usize, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats");
    let text = std::fs::read_to_string(folder.join(page)).expect("the page can be read");
    let fence = format!("```example {name}\n");
    let (_, after) = text.split_once(&fence).expect("the page has the example");
    let (block, _) = after.split_once("```").expect("the example ends");
    let lines = block.lines().filter(|line| !line.trim_start().starts_with("--"));
    let line = |line: &str| {
        let (offset, rest) = line.split_once("  ").expect("two spaces after the offset");
        let bytes = rest.split("  ").next().unwrap_or_default();
        let byte = |digits| u8::from_str_radix(digits, 16).expect("two hexadecimal digits");
        let offset = usize::from_str_radix(offset, 16).expect("a hexadecimal offset");
        (offset, bytes.split(' ').map(byte).collect())
    };
    lines.map(line).collect()
}

/// Panics with `bytes` if the example `name` on `page` differs from `bytes`.
pub fn assert_shows(page: &str, name: &str, bytes: &[u8]) {
    let mut shown = Vec::new();
    for (offset, line) in example(page, name) {
        assert_eq!(offset, shown.len(), "{page}: the offset of a line of '{name}'");
        shown.extend(line);
    }
    let mut hexadecimal = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let space = if at % 16 == 15 { "\n" } else { " " };
        write!(hexadecimal, "{byte:02x}{space}").expect("a string takes all");
    }
    assert_eq!(shown, bytes, "{page}: '{name}' should be\n{hexadecimal}");
}
