//! `umbel metadata`: prints the metadata of a stream, or changes single keys of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use umbel::Durability;
use umbel_events::{
    Direction, ExpectedVersion, NewEvent, RecordedEvent, Revision, Store, metadata_stream,
};

use crate::errors::{CommandError, CommandResult};
use crate::events::event_args::MetadataArgs;
use crate::events::open_event_store;
use crate::global_options::StoreLimits;
use crate::io::output::Output;

/// The type of events with metadata.
const METADATA_TYPE: &str = "$metadata";
/// A flag for a retention rule, and the metadata key that the flag sets.
const MAX_COUNT: (&str, &str) = ("--max-count", "$maxCount");
const MAX_AGE: (&str, &str) = ("--max-age", "$maxAge");
const TRUNCATE_BEFORE: (&str, &str) = ("--truncate-before", "$tb");

/// Metadata whose values are kept as they were written.
type MetadataKeys = BTreeMap<String, Box<RawValue>>;

/// Pairs of a JSON object in their written order and form; a key may occur twice.
struct MetadataPairs(Vec<(String, Box<RawValue>)>);

impl MetadataPairs {
    fn current_keys(self) -> CommandResult<MetadataKeys> {
        let mut keys = MetadataKeys::new();
        for (key, value) in self.0 {
            if keys.contains_key(&key) {
                let key = key.escape_debug();
                return Err(CommandError::usage(format!(
                    "--set has the key {key} twice; keep one"
                )));
            }
            keys.insert(key, value);
        }
        Ok(keys)
    }
}

impl<'de> Deserialize<'de> for MetadataPairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MetadataPairs, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = MetadataPairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<MetadataPairs, A::Error> {
                let mut all = Vec::new();
                while let Some(pair) = pairs.next_entry()? {
                    all.push(pair);
                }
                Ok(MetadataPairs(all))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

/// Change of metadata.
#[derive(Debug)]
struct MetadataChange {
    set: MetadataKeys,
    clear: Vec<String>,
}

/// Shows or changes the metadata of a stream.
pub fn run(
    directory: Option<&Path>,
    args: &MetadataArgs,
    limits: StoreLimits,
) -> CommandResult<()> {
    if args.stream.starts_with("$$") {
        return Err(CommandError::usage(format!(
            "the stream '{}' holds the metadata of another stream; name that stream",
            args.stream.escape_debug()
        )));
    }
    let change = MetadataChange::read(args)?;
    let store = match change {
        Some(_) => open_event_store::open(directory, limits, Durability::Synced)?,
        None => open_event_store::open_read_only(directory, limits)?,
    };
    let shown = match change {
        Some(change) => change.apply(&store, &args.stream),
        None => {
            let newest = newest_metadata(&store, &args.stream);
            newest.and_then(|newest| keys(&args.stream, newest.as_ref()))
        }
    };
    let closed = store.close();
    let shown = shown?;
    closed?;
    let mut output = Output::new();
    output.line(&text(&shown))?;
    output.flush()
}

fn text(keys: &MetadataKeys) -> String {
    // Strings and checked JSON can always be written.
    serde_json::to_string(keys).unwrap_or_default()
}

/// Returns the newest event of the metadata stream.
fn newest_metadata(store: &Store, stream: &str) -> CommandResult<Option<RecordedEvent>> {
    let name = metadata_stream(stream);
    Ok(store.read(&name, Revision::END, Direction::Backwards).next().transpose()?)
}

fn keys(stream: &str, newest: Option<&RecordedEvent>) -> CommandResult<MetadataKeys> {
    let Some(event) = newest else { return Ok(MetadataKeys::new()) };
    serde_json::from_slice(&event.data).map_err(|_| {
        CommandError::usage(format!(
            "the metadata of stream '{0}' is not a JSON object and cannot be changed; append a new \
             one with `umbel append --stream '$${0}' --type '{METADATA_TYPE}'`",
            stream.escape_debug()
        ))
    })
}

impl MetadataChange {
    /// Returns the change that the flags describe, if any.
    fn read(args: &MetadataArgs) -> CommandResult<Option<MetadataChange>> {
        let mut set: MetadataKeys = match &args.set {
            Some(text) => serde_json::from_str::<MetadataPairs>(text)
                .map_err(|error| {
                    CommandError::usage(format!(
                        "--set is not a JSON object ({error}); write one such as \
                         {{\"$maxCount\":10}}"
                    ))
                })?
                .current_keys()?,
            None => MetadataKeys::new(),
        };
        for ((flag, key), number) in [
            (MAX_COUNT, args.max_count),
            (MAX_AGE, args.max_age),
            (TRUNCATE_BEFORE, args.truncate_before),
        ] {
            let Some(number) = number else { continue };
            let value = to_raw_value(&number)
                .map_err(|error| CommandError::usage(format!("{flag}: {error}")))?;
            if set.insert(key.to_string(), value).is_some() {
                return Err(CommandError::usage(format!(
                    "{flag} and --set both set {key}; keep one of them"
                )));
            }
        }
        let clear: Vec<String> = args.clear.iter().map(|key| key_of(key)).collect();
        if let Some(both) = clear.iter().find(|key| set.contains_key(*key)) {
            return Err(CommandError::usage(format!(
                "{both} is both set and cleared; keep one of them"
            )));
        }
        let is_change = args.set.is_some() || !set.is_empty() || !clear.is_empty();
        Ok(is_change.then_some(MetadataChange { set, clear }))
    }

    /// Changes the metadata and returns the result; an error if another client changes the metadata
    /// at the same time.
    fn apply(self, store: &Store, stream: &str) -> CommandResult<MetadataKeys> {
        let newest = newest_metadata(store, stream)?;
        let mut changed = keys(stream, newest.as_ref())?;
        self.clear.iter().for_each(|key| {
            changed.remove(key);
        });
        changed.extend(self.set);
        let data = text(&changed).into_bytes();
        if newest.as_ref().is_some_and(|newest| newest.data == data) {
            return Ok(changed);
        }
        let expected = match &newest {
            Some(newest) => ExpectedVersion::Exact(newest.revision),
            None => ExpectedVersion::NoStream,
        };
        let event = NewEvent::json(store.new_id()?, METADATA_TYPE, &data);
        match store.append(&metadata_stream(stream), expected, &[event]) {
            // The store adds `$tb` where the change ends the deletion of the stream.
            Ok(_) => keys(stream, newest_metadata(store, stream)?.as_ref()),
            Err(umbel_events::Error::WrongExpectedVersion { .. }) => {
                Err(CommandError::usage(format!(
                    "another client changed the metadata of stream '{}' at the same time; this \
                     command changed nothing; check the metadata and try again",
                    stream.escape_debug()
                )))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the metadata key for a name that may be the key or its flag.
fn key_of(name: &str) -> String {
    let flags = [MAX_COUNT, MAX_AGE, TRUNCATE_BEFORE];
    let flag = flags.iter().find(|(flag, _)| flag.trim_start_matches('-') == name);
    flag.map_or(name, |(_, key)| key).to_string()
}
