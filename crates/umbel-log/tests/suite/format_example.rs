//! Tests that the writer writes the worked example of `docs/formats/log.md`.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use umbel_log::{LogKind, LogOptions, LogWriter};

use super::memory_disk::{Disk, PATH};

const PAGE: &str = include_str!("../../../../docs/formats/log.md");

/// Formats bytes like `xxd`: offset, groups of two bytes, text.
fn dump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, bytes) in bytes.chunks(16).enumerate() {
        write!(text, "{:08x}:", line * 16).expect("a string takes everything");
        for pair in bytes.chunks(2) {
            text.push(' ');
            for byte in pair {
                write!(text, "{byte:02x}").expect("a string takes everything");
            }
        }
        let printable = |&byte: &u8| if (32..127).contains(&byte) { char::from(byte) } else { '.' };
        text.push_str("  ");
        text.extend(bytes.iter().map(printable));
        text.push('\n');
    }
    text
}

#[test]
fn the_page_shows_the_bytes() {
    let disk = Arc::new(Disk::new(false));
    let options = LogOptions { kind: LogKind::WriteAhead, log_id: 7, salt: 0, segment_bytes: 0 };
    let mut writer = LogWriter::create(&disk.env(), Path::new(PATH), options).unwrap();
    let appended = writer.append(1, &[b"hello"]).unwrap();
    writer.set_durable(appended.end);
    writer.append(3, &[b"eight", b" by"]).unwrap();
    let sealed = writer.seal().unwrap();
    let wanted = dump(&disk.bytes());
    let found = PAGE.split("```text example\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(found, Some(wanted.as_str()), "the page's example is not what is written");
    let stated = format!("len {}, checksum `0x{:016x}`", sealed.len, sealed.checksum);
    assert!(PAGE.contains(&stated), "the page does not state: {stated}");
}
