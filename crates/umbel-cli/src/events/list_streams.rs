//! `umbel streams`: lists streams with their readable revisions, or categories or types with their
//! numbers of events, of a store or of a running server.

use std::path::Path;

use serde_json::json;
use umbel_events::{StreamState, ViewKind};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::server_names::ServerNames;
use crate::events::event_args::StreamsArgs;
use crate::events::name_source::NameSource;
use crate::events::open_event_store;
use crate::global_options::StoreLimits;
use crate::io::output::Output;

/// Lists streams.
pub fn run(
    directory: Option<&Path>,
    args: &StreamsArgs,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    if let Some(connect) = &args.connect {
        let address = ConnectionString::parse("--connect", connect)?;
        return list(&ServerNames::open(address)?, args, json);
    }
    let store = open_event_store::open_read_only(directory, limits)?;
    list(&store, args, json)?;
    Ok(store.close()?)
}

/// Prints the names. An error follows the names that came before it.
fn list(source: &impl NameSource, args: &StreamsArgs, json: bool) -> CommandResult<()> {
    let mut output = Output::new();
    let listed = match args.categories || args.types {
        true => list_views(source, args, json, &mut output),
        false => for_each_stream(source, args, |name, state| match json {
            true => output.json(&to_json(name, state)),
            false => output.line(&to_text(name, state)),
        }),
    };
    output.flush()?;
    listed
}

fn list_views(
    source: &impl NameSource,
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
        let page = source.views(kind, &args.prefix, after.as_deref())?;
        for (name, events) in &page.names {
            match json {
                true => output.json(&json!({key: name, "events": events}))?,
                false => {
                    let name = crate::text::escaping::escaped(name.as_bytes());
                    output.line(&format!("{name}\t{events}"))?;
                }
            }
        }
        after = page.after;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Calls `show` with each listed stream.
fn for_each_stream(
    source: &impl NameSource,
    args: &StreamsArgs,
    mut show: impl FnMut(&str, StreamState) -> CommandResult<()>,
) -> CommandResult<()> {
    let shows_system = args.system || args.prefix.starts_with('$');
    let mut after: Option<String> = None;
    loop {
        let page = source.streams(&args.prefix, after.as_deref(), shows_system)?;
        for (name, state) in &page.names {
            if shows_system || !name.starts_with('$') {
                show(name, *state)?;
            }
        }
        if page.is_cut {
            return Err(CommandError::usage(
                "further streams are not listed, because the user may not read the next ones: \
                 list by a longer --prefix, or as a user in $ops or $admins",
            ));
        }
        after = page.after;
        if after.is_none() {
            return Ok(());
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::events::name_source::NamePage;

    /// Names of streams, and the requests for pages of two names.
    struct TestNames {
        names: Vec<&'static str>,
        requests: RefCell<Vec<Option<String>>>,
    }

    impl NameSource for TestNames {
        fn streams(
            &self,
            _prefix: &str,
            after: Option<&str>,
            has_system: bool,
        ) -> CommandResult<NamePage<StreamState>> {
            self.requests.borrow_mut().push(after.map(str::to_string));
            let rest = self.names.iter().filter(|name| after.is_none_or(|after| **name > after));
            let rest: Vec<_> = rest.map(|name| (name.to_string(), StreamState::Missing)).collect();
            let is_last = rest.len() < 2;
            let names: Vec<_> = rest.into_iter().take(2).collect();
            let last = names.last().filter(|_| !is_last);
            let after = last.map(|(name, _): &(String, _)| name.clone());
            let is_cut = names.iter().any(|(name, _)| name == "hidden");
            let page = NamePage { names, after, is_cut };
            Ok(if has_system { page } else { page.skip_system_streams() })
        }

        fn views(&self, _: ViewKind, _: &str, _: Option<&str>) -> CommandResult<NamePage<u64>> {
            Ok(NamePage::of(Vec::new()))
        }
    }

    fn arguments(system: bool) -> StreamsArgs {
        let (prefix, connect) = (String::new(), None);
        StreamsArgs { prefix, system, categories: false, types: false, connect }
    }

    /// The names that are printed.
    fn listed(source: &TestNames, args: &StreamsArgs) -> CommandResult<Vec<String>> {
        let mut names = Vec::new();
        let shown = for_each_stream(source, args, |name, _| {
            names.push(name.to_string());
            Ok(())
        });
        shown.map(|()| names)
    }

    /// A store has as many system streams as streams with metadata.
    #[test]
    fn hidden_system_streams_are_skipped_at_once() {
        let names =
            vec!["#a", "$$a", "$$b", "$$c", "$$d", "$\u{10ffff}x", "$\u{10ffff}y", "a", "b"];
        let source = TestNames { names: names.clone(), requests: RefCell::default() };
        assert_eq!(listed(&source, &arguments(false)).unwrap(), ["#a", "a", "b"]);
        let text = |name: &str| Some(name.to_string());
        let after = [None, text("$\u{10ffff}"), text("$\u{10ffff}y"), text("b")];
        assert_eq!(source.requests.take(), after);
        assert_eq!(listed(&source, &arguments(true)).unwrap(), names);
        assert_eq!(source.requests.take().len(), 5);
    }

    #[test]
    fn list_that_ends_early_is_an_error() {
        let names = vec!["a", "b", "c", "hidden", "z"];
        let source = TestNames { names, requests: RefCell::default() };
        let failure = listed(&source, &arguments(false)).unwrap_err();
        assert!(failure.exit_code() == 2 && failure.to_string().contains("--prefix"), "{failure}");
        assert_eq!(source.requests.take().len(), 2);
    }
}
