//! `umbel get`: one value on standard output.

use serde_json::{Map, Value, json};

use crate::args::GetArgs;
use crate::errors::{Failure, Outcome};
use crate::output::Output;
use crate::store::{Store, existing_keyspace};
use crate::text::{self, Style};

/// Writes the value, or fails with [`Failure::NoSuchKey`].
pub fn run(store: &Store, args: &GetArgs, json: bool) -> Outcome<()> {
    let key = text::argument("key", &args.key, args.hex)?;
    let db = store.open_to_read()?;
    let keyspace = existing_keyspace(&db, &args.keyspace.keyspace)?;
    let value = keyspace.get(&key)?;
    let mut output = Output::new();
    if json {
        output.json(&to_json(&key, value.as_deref(), args.hex))?;
    } else if let Some(value) = &value {
        write_text(&mut output, value, args)?;
    }
    output.flush()?;
    if value.is_some() {
        return Ok(());
    }
    Err(Failure::NoSuchKey(format!(
        "there is no key `{}` in keyspace `{}`",
        if args.hex { text::hex(&key) } else { text::escaped(&key) },
        args.keyspace.keyspace
    )))
}

/// A pipe gets the value's very bytes; a terminal gets nothing that could steer it.
fn write_text(output: &mut Output, value: &[u8], args: &GetArgs) -> Outcome<()> {
    let style = Style::of(args.hex, args.raw || !output.is_terminal());
    let mut line = Vec::with_capacity(value.len() + 1);
    style.write(value, &mut line);
    if !args.raw {
        line.push(b'\n');
    }
    output.bytes(&line)
}

fn to_json(key: &[u8], value: Option<&[u8]>, hex: bool) -> Value {
    let mut object = Map::new();
    object.insert("found".to_string(), json!(value.is_some()));
    text::json_field(&mut object, "key", key, hex);
    if let Some(value) = value {
        text::json_field(&mut object, "value", value, hex);
    }
    Value::Object(object)
}
