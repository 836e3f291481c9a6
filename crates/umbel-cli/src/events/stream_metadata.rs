//! `umbel metadata`: the metadata of a stream, shown or changed key by key.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use umbel::Durability;
use umbel_events::{
    Direction, Expected, NewEvent, RecordedEvent, Revision, Store, metadata_stream,
};

use super::args::MetadataArgs;
use super::store;
use crate::errors::{Failure, Outcome};
use crate::limits::Limits;
use crate::output::Output;

/// The type of events with metadata.
const TYPE: &str = "$metadata";
/// Flags with a key of their own.
const MAX_COUNT: (&str, &str) = ("--max-count", "$maxCount");
const MAX_AGE: (&str, &str) = ("--max-age", "$maxAge");
const TRUNCATE_BEFORE: (&str, &str) = ("--truncate-before", "$tb");

/// Metadata with its values as they are written.
type Keys = BTreeMap<String, Box<RawValue>>;

/// The pairs of a JSON object as they are written; a key may come twice.
struct Pairs(Vec<(String, Box<RawValue>)>);

impl Pairs {
    fn keys(self) -> Outcome<Keys> {
        let mut keys = Keys::new();
        for (key, value) in self.0 {
            if keys.contains_key(&key) {
                let key = key.escape_debug();
                return Err(Failure::usage(format!("--set says twice what {key} is to be")));
            }
            keys.insert(key, value);
        }
        Ok(keys)
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Pairs, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Pairs, A::Error> {
                let mut all = Vec::new();
                while let Some(pair) = pairs.next_entry()? {
                    all.push(pair);
                }
                Ok(Pairs(all))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// What is to be done to the metadata.
#[derive(Debug)]
struct Change {
    set: Keys,
    clear: Vec<String>,
}

/// Shows or changes the metadata of a stream.
pub fn run(folder: Option<&Path>, args: &MetadataArgs, limits: Limits) -> Outcome<()> {
    if args.stream.starts_with("$$") {
        return Err(Failure::usage(format!(
            "the stream '{}' holds the metadata of another, and has none; name the other",
            args.stream.escape_debug()
        )));
    }
    let change = Change::read(args)?;
    let store = match change {
        Some(_) => store::open(folder, limits, Durability::Synced)?,
        None => store::open_to_look(folder, limits)?,
    };
    let shown = match change {
        Some(change) => change.apply(&store, &args.stream),
        None => {
            let newest = newest(&store, &args.stream);
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

fn text(keys: &Keys) -> String {
    // Strings and checked JSON can always be written.
    serde_json::to_string(keys).unwrap_or_default()
}

/// The event that holds the metadata.
fn newest(store: &Store, stream: &str) -> Outcome<Option<RecordedEvent>> {
    let name = metadata_stream(stream);
    Ok(store.read(&name, Revision::END, Direction::Backwards).next().transpose()?)
}

fn keys(stream: &str, newest: Option<&RecordedEvent>) -> Outcome<Keys> {
    let Some(event) = newest else { return Ok(Keys::new()) };
    serde_json::from_slice(&event.data).map_err(|_| {
        Failure::usage(format!(
            "the metadata of stream '{0}' is no JSON object, so that nothing can be changed in it; \
             append a new one with `umbel append --stream '$${0}' --type '{TYPE}'`",
            stream.escape_debug()
        ))
    })
}

impl Change {
    /// What the flags say; `None` where nothing is to be changed.
    fn read(args: &MetadataArgs) -> Outcome<Option<Change>> {
        let mut set: Keys = match &args.set {
            Some(text) => serde_json::from_str::<Pairs>(text)
                .map_err(|error| {
                    Failure::usage(format!(
                        "--set is no JSON object ({error}); write one such as {{\"$maxCount\":10}}"
                    ))
                })?
                .keys()?,
            None => Keys::new(),
        };
        for ((flag, key), number) in [
            (MAX_COUNT, args.max_count),
            (MAX_AGE, args.max_age),
            (TRUNCATE_BEFORE, args.truncate_before),
        ] {
            let Some(number) = number else { continue };
            let value = to_raw_value(&number)
                .map_err(|error| Failure::usage(format!("{flag}: {error}")))?;
            if set.insert(key.to_string(), value).is_some() {
                return Err(Failure::usage(format!(
                    "{flag} and --set both say what {key} is to be; give one of them"
                )));
            }
        }
        let clear: Vec<String> = args.clear.iter().map(|key| key_of(key)).collect();
        if let Some(both) = clear.iter().find(|key| set.contains_key(*key)) {
            return Err(Failure::usage(format!(
                "{both} is to be set and cleared; give one of the two"
            )));
        }
        let is_change = args.set.is_some() || !set.is_empty() || !clear.is_empty();
        Ok(is_change.then_some(Change { set, clear }))
    }

    /// Changes what is there, if nobody else does so meanwhile, and returns what is there then.
    fn apply(self, store: &Store, stream: &str) -> Outcome<Keys> {
        let newest = newest(store, stream)?;
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
            Some(newest) => Expected::Exact(newest.revision),
            None => Expected::NoStream,
        };
        let event = NewEvent::json(store.new_id()?, TYPE, &data);
        match store.append(&metadata_stream(stream), expected, &[event]) {
            Ok(_) => Ok(changed),
            Err(umbel_events::Error::WrongExpected { .. }) => Err(Failure::usage(format!(
                "somebody else changed the metadata of stream '{}' at the same time; look at it \
                 and try again",
                stream.escape_debug()
            ))),
            Err(error) => Err(error.into()),
        }
    }
}

/// The key that is meant, which may be called as its flag is.
fn key_of(name: &str) -> String {
    let flags = [MAX_COUNT, MAX_AGE, TRUNCATE_BEFORE];
    let flag = flags.iter().find(|(flag, _)| flag.trim_start_matches('-') == name);
    flag.map_or(name, |(_, key)| key).to_string()
}
