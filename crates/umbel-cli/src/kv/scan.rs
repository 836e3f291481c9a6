//! `umbel scan`: prints keys and values in order.

use std::ops::Bound;

use serde_json::{Map, Value};

use crate::command_line::ScanArgs;
use crate::errors::{CommandError, CommandResult};
use crate::io::output::Output;
use crate::open_kv_store::{StoreLocation, existing_keyspace};
use crate::text::escaping::{self, ByteFormat};

type ScanBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Prints every entry within the bounds.
pub fn run(store: &StoreLocation, args: &ScanArgs, json: bool) -> CommandResult<()> {
    let Some(bounds) = bounds(args)? else { return Ok(()) };
    let db = store.open_read_only()?;
    let keyspace = existing_keyspace(&db, &args.keyspace.keyspace)?;
    let mut output = Output::new();
    let mut cursor = keyspace.cursor(bounds)?;
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut line = Vec::new();
    if left > 0 {
        if args.reverse { cursor.seek_to_last()? } else { cursor.seek_to_first()? }
    }
    while left > 0 && cursor.valid() {
        left -= 1;
        let value = (!args.keys_only).then(|| cursor.value()).transpose()?;
        if json {
            output.json(&to_json(cursor.key(), value, args.hex))?;
        } else {
            line.clear();
            write_line(cursor.key(), value, ByteFormat::from_flags(args.hex, args.raw), &mut line);
            output.bytes(&line)?;
        }
        if args.reverse { cursor.prev()? } else { cursor.next()? }
    }
    output.flush()
}

fn write_line(key: &[u8], value: Option<&[u8]>, style: ByteFormat, line: &mut Vec<u8>) {
    style.write(key, line);
    if let Some(value) = value {
        line.push(b'\t');
        style.write(value, line);
    }
    line.push(b'\n');
}

fn to_json(key: &[u8], value: Option<&[u8]>, hex: bool) -> Value {
    let mut object = Map::new();
    escaping::json_field(&mut object, "key", key, hex);
    if let Some(value) = value {
        escaping::json_field(&mut object, "value", value, hex);
    }
    Value::Object(object)
}

/// Intersection of --prefix, --from and --to; `None` if the intersection is empty.
fn bounds(args: &ScanArgs) -> CommandResult<Option<ScanBounds>> {
    let read = |name: &str, text: &Option<std::ffi::OsString>| match text {
        Some(text) => escaping::parse_argument(name, text, args.hex).map(Some),
        None => Ok(None),
    };
    let prefix = read("prefix", &args.prefix)?;
    let from = read("from", &args.from)?;
    let to = read("to", &args.to)?;
    if let (Some(from), Some(to)) = (&from, &to)
        && from > to
    {
        return Err(CommandError::usage(format!(
            "--from `{}` is greater than --to `{}`, which selects no key; exchange them",
            escaping::escaped(from),
            escaping::escaped(to)
        )));
    }
    let start = from.into_iter().chain(prefix.clone()).max();
    let end = to.into_iter().chain(prefix.as_deref().and_then(prefix_successor)).min();
    if let (Some(start), Some(end)) = (&start, &end)
        && start >= end
    {
        return Ok(None);
    }
    let start = start.map_or(Bound::Unbounded, Bound::Included);
    let end = end.map_or(Bound::Unbounded, Bound::Excluded);
    Ok(Some((start, end)))
}

/// Returns the lowest key above every key with this prefix; `None` if no such key exists.
fn prefix_successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_first_key_without_prefix() {
        assert_eq!(prefix_successor(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_successor(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_successor(b"\xff"), None);
        assert_eq!(prefix_successor(b""), None);
    }

    #[test]
    fn scan_line_is_key_tab_value() {
        let mut line = Vec::new();
        write_line(b"a\tb", Some(b"1"), ByteFormat::Escaped, &mut line);
        write_line(b"c", None, ByteFormat::Hex, &mut line);
        assert_eq!(line, b"a\\tb\t1\n63\n");
    }
}
