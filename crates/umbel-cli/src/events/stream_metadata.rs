//! `umbel metadata`: prints the metadata of a stream, or changes single keys of it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::{RawValue, to_raw_value};
use tokio::runtime::Runtime;
use tonic::Status;
use umbel::Durability;
use umbel_env::{Entropy, Env};
use umbel_events::{
    Direction, EventId, ExpectedVersion, NewEvent, RecordedEvent, Revision, Store, metadata_stream,
};
use umbel_proto::read_options::{at_most, backwards, of_stream};
use umbel_proto::streams::read_req::RevisionOption;
use umbel_proto::streams::read_resp::Content;

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection, status_error};
use crate::events::client::shell_command::{store_command, umbel_command};
use crate::events::client::stream_writes::{self, AppendFailure};
use crate::events::event_args::MetadataArgs;
use crate::events::open_event_store;
use crate::events::tombstoned_stream::{is_stream_deleted, metadata_error};
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
    let is_change = change.is_some();
    if let Some(connect) = &args.connect {
        let address = ConnectionString::parse("--connect", connect)?;
        let runtime = grpc_connection::runtime()?;
        let connection = runtime.block_on(Connection::open(&address))?;
        let entropy = Env::system().entropy;
        let server = MetadataServer { runtime, connection, address, entropy };
        return print(&show_or_change(&server, change, &args.stream)?, is_change);
    }
    let store = match change {
        Some(_) => open_event_store::open(directory, limits, Durability::Synced)?,
        None => open_event_store::open_read_only(directory, limits)?,
    };
    let shown = show_or_change(&store, change, &args.stream);
    let closed = store.close();
    let shown = shown?;
    closed?;
    print(&shown, is_change)
}

/// Makes the change, if any. Returns the resulting metadata.
fn show_or_change(
    source: &impl MetadataSource,
    change: Option<MetadataChange>,
    stream: &str,
) -> CommandResult<MetadataKeys> {
    match change {
        Some(change) => change.apply(source, stream),
        None => keys(source, stream),
    }
}

fn print(shown: &MetadataKeys, is_change: bool) -> CommandResult<()> {
    let mut output = match is_change {
        true => Output::new().after("the metadata was changed"),
        false => Output::new(),
    };
    output.line(&text(shown))?;
    output.flush()
}

/// The newest metadata of a stream.
struct StoredMetadata {
    revision: u64,
    data: Vec<u8>,
}

/// A store, or a server, with the metadata of streams.
trait MetadataSource {
    /// Returns the newest metadata of a stream.
    fn newest(&self, stream: &str) -> CommandResult<Option<StoredMetadata>>;

    /// Appends metadata of a stream. Returns `false` if the stream of the metadata does not have
    /// the expected version.
    fn append(&self, stream: &str, expected: ExpectedVersion, data: &[u8]) -> CommandResult<bool>;

    /// Returns an `umbel` command that works on this store or server.
    fn command(&self, words: &[&str]) -> String;
}

impl MetadataSource for Store {
    fn newest(&self, stream: &str) -> CommandResult<Option<StoredMetadata>> {
        let name = metadata_stream(stream);
        let newest = match self.read(&name, Revision::END, Direction::Backwards).next() {
            Some(Err(umbel_events::Error::StreamDeleted { .. })) => {
                return Err(metadata_error(stream, &self.command(&["streams"])));
            }
            newest => newest.transpose()?,
        };
        let stored = |RecordedEvent { revision, data, .. }| StoredMetadata { revision, data };
        Ok(newest.map(stored))
    }

    fn append(&self, stream: &str, expected: ExpectedVersion, data: &[u8]) -> CommandResult<bool> {
        let event = NewEvent::json(self.new_id()?, METADATA_TYPE, data);
        match Store::append(self, &metadata_stream(stream), expected, &[event]) {
            Ok(_) => Ok(true),
            Err(umbel_events::Error::WrongExpectedVersion { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn command(&self, words: &[&str]) -> String {
        store_command(words, self.path())
    }
}

/// A running server.
struct MetadataServer {
    runtime: Runtime,
    connection: Connection,
    address: ConnectionString,
    entropy: Arc<dyn Entropy>,
}

impl MetadataSource for MetadataServer {
    fn newest(&self, stream: &str) -> CommandResult<Option<StoredMetadata>> {
        let name = metadata_stream(stream);
        let options = at_most(1, backwards(of_stream(&name, RevisionOption::End(()))));
        self.runtime.block_on(async {
            let failure = |status: Status| match is_stream_deleted(&status) {
                true => metadata_error(stream, &self.command(&["streams"])),
                false => status_error(&status),
            };
            let answers = self.connection.read_or_status(options).await?;
            let mut answers = answers.map_err(failure)?;
            loop {
                let answer = answers.message().await.map_err(failure)?;
                let Some(answer) = answer else { return Ok(None) };
                let Some(Content::Event(read)) = answer.content else { continue };
                let Some(event) = read.event else { continue };
                let (revision, data) = (event.stream_revision, event.data.into());
                return Ok(Some(StoredMetadata { revision, data }));
            }
        })
    }

    fn append(&self, stream: &str, expected: ExpectedVersion, data: &[u8]) -> CommandResult<bool> {
        let mut random = [0; 16];
        self.entropy.fill(&mut random)?;
        let event = NewEvent::json(EventId::from_random(random), METADATA_TYPE, data);
        let name = metadata_stream(stream);
        let append = stream_writes::append(&self.connection, &name, expected, &event);
        match self.runtime.block_on(append) {
            Ok(_) => Ok(true),
            Err(AppendFailure::Conflict(_)) => Ok(false),
            Err(AppendFailure::Refused(reason)) => Err(CommandError::usage(reason)),
            Err(AppendFailure::Failed(failure)) => Err(failure),
        }
    }

    fn command(&self, words: &[&str]) -> String {
        umbel_command(words, &self.address)
    }
}

fn text(keys: &MetadataKeys) -> String {
    // Strings and checked JSON can always be written.
    serde_json::to_string(keys).unwrap_or_default()
}

/// Returns the newest metadata of a stream.
fn keys(source: &impl MetadataSource, stream: &str) -> CommandResult<MetadataKeys> {
    parse_keys(source, stream, source.newest(stream)?.as_ref())
}

fn parse_keys(
    source: &impl MetadataSource,
    stream: &str,
    newest: Option<&StoredMetadata>,
) -> CommandResult<MetadataKeys> {
    let Some(event) = newest else { return Ok(MetadataKeys::new()) };
    serde_json::from_slice(&event.data).map_err(|_| {
        let metadata = metadata_stream(stream);
        CommandError::usage(format!(
            "the metadata of stream '{}' is not a JSON object and cannot be changed; append a new \
             one with `{}`",
            stream.escape_debug(),
            source.command(&["append", "--stream", &metadata, "--type", METADATA_TYPE])
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
    fn apply(self, source: &impl MetadataSource, stream: &str) -> CommandResult<MetadataKeys> {
        let newest = source.newest(stream).map_err(|failure| match failure {
            // A change of a tombstoned stream is refused, where a read finds nothing.
            CommandError::NoSuchKey(text) => CommandError::Usage(text),
            failure => failure,
        })?;
        let mut changed = parse_keys(source, stream, newest.as_ref())?;
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
        match source.append(stream, expected, &data)? {
            // The store adds `$tb` where the change ends the deletion of the stream.
            true => keys(source, stream),
            false => Err(CommandError::usage(format!(
                "another client changed the metadata of stream '{}' at the same time; this command \
                 changed nothing; check the metadata and try again",
                stream.escape_debug()
            ))),
        }
    }
}

/// Returns the metadata key for a name that may be the key or its flag.
fn key_of(name: &str) -> String {
    let flags = [MAX_COUNT, MAX_AGE, TRUNCATE_BEFORE];
    let flag = flags.iter().find(|(flag, _)| flag.trim_start_matches('-') == name);
    flag.map_or(name, |(_, key)| key).to_string()
}
