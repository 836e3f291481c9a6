//! `umbel get`: prints the value of one key to standard output.

use serde_json::{Map, Value, json};

use crate::command_line::GetArgs;
use crate::errors::{CommandError, CommandResult};
use crate::io::output::Output;
use crate::open_kv_store::{StoreLocation, existing_keyspace};
use crate::text::escaping::{self, ByteFormat};

/// Prints the value, or returns [`CommandError::NoSuchKey`].
pub fn run(store: &StoreLocation, args: &GetArgs, json: bool) -> CommandResult<()> {
    let key = escaping::parse_argument("key", &args.key, args.hex)?;
    let db = store.open_read_only()?;
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
    Err(CommandError::NoSuchKey(format!(
        "there is no key `{}` in keyspace `{}`",
        if args.hex { escaping::hex(&key) } else { escaping::escaped(&key) },
        args.keyspace.keyspace
    )))
}

/// Writes the value: unchanged to a pipe, and with escaped control characters to a terminal.
fn write_text(output: &mut Output, value: &[u8], args: &GetArgs) -> CommandResult<()> {
    let style = ByteFormat::from_flags(args.hex, args.raw || !output.is_terminal());
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
    escaping::json_field(&mut object, "key", key, hex);
    if let Some(value) = value {
        escaping::json_field(&mut object, "value", value, hex);
    }
    Value::Object(object)
}
