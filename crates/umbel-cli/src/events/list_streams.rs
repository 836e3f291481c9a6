//! `umbel streams`: lists streams with their readable revisions, or categories or types with their
//! numbers of events.

use std::path::Path;

use serde_json::json;
use umbel_events::{Store, StreamState, ViewKind};

use crate::errors::CommandResult;
use crate::events::event_args::StreamsArgs;
use crate::events::open_event_store;
use crate::global_options::StoreLimits;
use crate::io::output::Output;

/// Number of names that are fetched at a time.
const PAGE_NAMES: usize = 1000;

/// Lists streams.
pub fn run(
    directory: Option<&Path>,
    args: &StreamsArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    let store = open_event_store::open_read_only(directory, limits)?;
    let mut output = Output::new();
    match args.categories || args.types {
        true => list_views(&store, args, json, &mut output)?,
        false => list_streams(&store, args, json, &mut output)?,
    }
    output.flush()?;
    Ok(store.close()?)
}

fn list_views(
    store: &Store,
    args: &StreamsArgs,
    json: bool,
    output: &mut Output,
) -> CommandResult<()> {
    let (kind, key) = match args.categories {
        true => (ViewKind::Category, "category"),
        false => (ViewKind::Type, "type"),
    };
    let mut after: Option<String> = None;
    loop {
        let page = store.views(kind, &args.prefix, after.as_deref(), PAGE_NAMES)?;
        for (name, events) in &page {
            match json {
                true => output.json(&json!({key: name, "events": events}))?,
                false => {
                    let name = crate::text::escaping::escaped(name.as_bytes());
                    output.line(&format!("{name}\t{events}"))?;
                }
            }
        }
        match page.into_iter().last() {
            Some((name, _)) => after = Some(name),
            None => return Ok(()),
        }
    }
}

fn list_streams(
    store: &Store,
    args: &StreamsArgs,
    json: bool,
    output: &mut Output,
) -> CommandResult<()> {
    let mut after: Option<String> = None;
    loop {
        let page = store.streams(&args.prefix, after.as_deref(), PAGE_NAMES)?;
        for (name, state) in &page {
            let is_system = name.starts_with('$');
            if is_system && !args.system && !args.prefix.starts_with('$') {
                continue;
            }
            match json {
                true => output.json(&to_json(name, *state))?,
                false => output.line(&to_text(name, *state))?,
            }
        }
        match page.into_iter().last() {
            Some((name, _)) => after = Some(name),
            None => return Ok(()),
        }
    }
}

fn to_json(name: &str, state: StreamState) -> serde_json::Value {
    match state {
        StreamState::Live { first, last } => {
            json!({"stream": name, "state": "live", "first": first, "last": last})
        }
        StreamState::Deleted { last } => {
            json!({"stream": name, "state": "deleted", "last": last})
        }
        StreamState::Tombstoned => json!({"stream": name, "state": "tombstoned"}),
        StreamState::Missing => json!({"stream": name, "state": "missing"}),
    }
}

fn to_text(name: &str, state: StreamState) -> String {
    let name = crate::text::escaping::escaped(name.as_bytes());
    match state {
        StreamState::Live { first, last } if first > last => format!("{name}\tempty"),
        StreamState::Live { first, last } => format!("{name}\t{first} to {last}"),
        StreamState::Deleted { .. } => format!("{name}\tdeleted"),
        StreamState::Tombstoned => format!("{name}\ttombstoned"),
        StreamState::Missing => format!("{name}\tmissing"),
    }
}
