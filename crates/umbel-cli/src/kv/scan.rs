//! `umbel scan`: keys and values in order.

use std::ops::Bound;

use serde_json::{Map, Value};

use crate::args::ScanArgs;
use crate::errors::{Failure, Outcome};
use crate::output::Output;
use crate::store::{Store, existing_keyspace};
use crate::text::{self, Style};

type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Writes every entry within the bounds.
pub fn run(store: &Store, args: &ScanArgs, json: bool) -> Outcome<()> {
    let Some(bounds) = bounds(args)? else { return Ok(()) };
    let db = store.open_to_read()?;
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
            write_line(cursor.key(), value, Style::of(args.hex, args.raw), &mut line);
            output.bytes(&line)?;
        }
        if args.reverse { cursor.prev()? } else { cursor.next()? }
    }
    output.flush()
}

fn write_line(key: &[u8], value: Option<&[u8]>, style: Style, line: &mut Vec<u8>) {
    style.write(key, line);
    if let Some(value) = value {
        line.push(b'\t');
        style.write(value, line);
    }
    line.push(b'\n');
}

fn to_json(key: &[u8], value: Option<&[u8]>, hex: bool) -> Value {
    let mut object = Map::new();
    text::json_field(&mut object, "key", key, hex);
    if let Some(value) = value {
        text::json_field(&mut object, "value", value, hex);
    }
    Value::Object(object)
}

/// What --prefix, --from and --to leave together; `None` where that is nothing.
fn bounds(args: &ScanArgs) -> Outcome<Option<Bounds>> {
    let read = |name: &str, text: &Option<std::ffi::OsString>| match text {
        Some(text) => text::argument(name, text, args.hex).map(Some),
        None => Ok(None),
    };
    let prefix = read("prefix", &args.prefix)?;
    let from = read("from", &args.from)?;
    let to = read("to", &args.to)?;
    if let (Some(from), Some(to)) = (&from, &to)
        && from > to
    {
        return Err(Failure::usage(format!(
            "--from `{}` is greater than --to `{}`, so that no key can lie between; exchange them",
            text::escaped(from),
            text::escaped(to)
        )));
    }
    let start = from.into_iter().chain(prefix.clone()).max();
    let end = to.into_iter().chain(prefix.as_deref().and_then(behind_prefix)).min();
    if let (Some(start), Some(end)) = (&start, &end)
        && start >= end
    {
        return Ok(None);
    }
    let start = start.map_or(Bound::Unbounded, Bound::Included);
    let end = end.map_or(Bound::Unbounded, Bound::Excluded);
    Ok(Some((start, end)))
}

/// The least key greater than every key with this prefix; `None` where there is no such key.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_prefix_is_the_next_key_without_it() {
        assert_eq!(behind_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(behind_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(behind_prefix(b"\xff"), None);
        assert_eq!(behind_prefix(b""), None);
    }

    #[test]
    fn a_line_is_key_tab_value() {
        let mut line = Vec::new();
        write_line(b"a\tb", Some(b"1"), Style::Escaped, &mut line);
        write_line(b"c", None, Style::Hex, &mut line);
        assert_eq!(line, b"a\\tb\t1\n63\n");
    }
}
