//! `umbel streams`: the names of streams and what can be read of each, or categories and types with
//! the number of their events.

use std::path::Path;

use serde_json::json;
use umbel_events::{Store, StreamState, ViewKind};

use super::args::StreamsArgs;
use super::store;
use crate::errors::Outcome;
use crate::limits::Limits;
use crate::output::Output;

/// How many names are fetched at a time.
const PAGE: usize = 1000;

/// Lists streams.
pub fn run(folder: Option<&Path>, args: &StreamsArgs, json: bool, limits: Limits) -> Outcome<()> {
    let store = store::open_to_look(folder, limits)?;
    let mut output = Output::new();
    match args.categories || args.types {
        true => list_views(&store, args, json, &mut output)?,
        false => list_streams(&store, args, json, &mut output)?,
    }
    output.flush()?;
    Ok(store.close()?)
}

fn list_views(store: &Store, args: &StreamsArgs, json: bool, output: &mut Output) -> Outcome<()> {
    let (kind, key) = match args.categories {
        true => (ViewKind::Category, "category"),
        false => (ViewKind::Type, "type"),
    };
    let mut after: Option<String> = None;
    loop {
        let page = store.views(kind, &args.prefix, after.as_deref(), PAGE)?;
        for (name, events) in &page {
            match json {
                true => output.json(&json!({key: name, "events": events}))?,
                false => {
                    let name = crate::text::escaped(name.as_bytes());
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

fn list_streams(store: &Store, args: &StreamsArgs, json: bool, output: &mut Output) -> Outcome<()> {
    let mut after: Option<String> = None;
    loop {
        let page = store.streams(&args.prefix, after.as_deref(), PAGE)?;
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
    let name = crate::text::escaped(name.as_bytes());
    match state {
        StreamState::Live { first, last } if first > last => format!("{name}\tempty"),
        StreamState::Live { first, last } => format!("{name}\t{first} to {last}"),
        StreamState::Deleted { .. } => format!("{name}\tdeleted"),
        StreamState::Tombstoned => format!("{name}\ttombstoned"),
        StreamState::Missing => format!("{name}\tmissing"),
    }
}
