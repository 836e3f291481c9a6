//! [`ServerNames`]: names of streams, categories and types of a running server.

use std::cell::RefCell;

use hyper::Method;
use serde_json::Value;
use tokio::runtime::Runtime;
use umbel_events::{StreamState, ViewKind};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::{ConnectionString, percent_encode};
use crate::events::client::grpc_connection::{self, Connection};
use crate::events::client::server_work::{protocol_error, request};
use crate::events::name_source::{NamePage, NameSource, PAGE_NAMES};

/// Names of a running server, read over the data of its console.
#[derive(Debug)]
pub struct ServerNames {
    address: ConnectionString,
    runtime: Runtime,
    connection: RefCell<Connection>,
}

impl ServerNames {
    /// Connects to a server.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn open(address: ConnectionString) -> CommandResult<ServerNames> {
        let runtime = grpc_connection::runtime()?;
        let connection = RefCell::new(runtime.block_on(Connection::open(&address))?);
        Ok(ServerNames { address, runtime, connection })
    }

    fn page(&self, list: &str, prefix: &str, after: Option<&str>) -> CommandResult<Value> {
        let prefix = percent_encode(prefix);
        let mut path = format!("/console/api/{list}&count={PAGE_NAMES}&prefix={prefix}");
        if let Some(after) = after {
            path.push_str(&format!("&after={}", percent_encode(after)));
        }
        let get = || self.runtime.block_on(request(&self.connection.borrow(), Method::GET, &path));
        match get() {
            // The connection can have ended since the page before, for example by a restart.
            Err(CommandError::System(_)) if after.is_some() => {
                let again = self.runtime.block_on(Connection::open(&self.address))?;
                self.connection.replace(again);
                get()
            }
            answer => answer,
        }
    }
}

impl NameSource for ServerNames {
    fn streams(
        &self,
        prefix: &str,
        after: Option<&str>,
        has_system: bool,
    ) -> CommandResult<NamePage<StreamState>> {
        let system = if has_system { "yes" } else { "no" };
        let page = self.page(&format!("streams?system={system}"), prefix, after)?;
        let names = names(&page["streams"], stream_state).ok_or_else(protocol_error)?;
        let is_last = page["isWhole"].as_bool().ok_or_else(protocol_error)?;
        let examined = page["lastExamined"].as_str().map(str::to_string);
        // The server does not name a stream that the user may not read.
        let is_cut = !is_last && examined.is_none();
        let next = examined.filter(|_| !is_last);
        Ok(NamePage { names, after: growing(next, after)?, is_cut })
    }

    fn views(
        &self,
        kind: ViewKind,
        prefix: &str,
        after: Option<&str>,
    ) -> CommandResult<NamePage<u64>> {
        let kind = if kind == ViewKind::Category { "category" } else { "type" };
        let page = self.page(&format!("views?kind={kind}"), prefix, after)?;
        let events = |view: &Value| number(&view["events"]);
        let names = names(&page["views"], events).ok_or_else(protocol_error)?;
        let is_last = page["isWhole"].as_bool().ok_or_else(protocol_error)?;
        let last = names.last().filter(|_| !is_last);
        let next = last.map(|(name, _)| name.clone());
        Ok(NamePage { names, after: growing(next, after)?, is_cut: false })
    }
}

/// The name at which the next page begins. It follows the one before, so that the list ends.
fn growing(next: Option<String>, before: Option<&str>) -> CommandResult<Option<String>> {
    match next.as_deref() <= before && next.is_some() {
        true => Err(protocol_error()),
        false => Ok(next),
    }
}

/// The names of a list and their values; `None` if an entry is not as expected.
fn names<T>(list: &Value, value: impl Fn(&Value) -> Option<T>) -> Option<Vec<(String, T)>> {
    let entry = |entry: &Value| Some((entry["name"].as_str()?.to_string(), value(entry)?));
    list.as_array()?.iter().map(entry).collect()
}

/// A number, which is text because JavaScript rounds large ones.
fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}

fn stream_state(stream: &Value) -> Option<StreamState> {
    let (first, last) = (number(&stream["first"]), number(&stream["last"]));
    Some(match stream["state"].as_str()? {
        "live" => StreamState::Live { first: first?, last: last? },
        "deleted" => StreamState::Deleted { last: last? },
        "tombstoned" => StreamState::Tombstoned,
        "missing" => StreamState::Missing,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_that_repeats_a_page_is_noticed() {
        let next = |next: &str, before| growing(Some(next.to_string()), before);
        assert_eq!(next("b", Some("a")).unwrap().as_deref(), Some("b"));
        assert_eq!(next("a", None).unwrap().as_deref(), Some("a"));
        assert_eq!(growing(None, Some("a")).unwrap(), None);
        for repeated in ["a", "A"] {
            assert!(next(repeated, Some("a")).is_err(), "{repeated}");
        }
    }

    #[test]
    fn unexpected_entries_of_a_list_are_noticed() {
        let last = "9007199254740993";
        let live = json!({ "name": "a", "state": "live", "first": "3", "last": last });
        let listed = names(&json!([live]), stream_state).unwrap();
        let wanted = StreamState::Live { first: 3, last: 9_007_199_254_740_993 };
        assert_eq!(listed, [("a".to_string(), wanted)]);
        for wrong in [
            json!({ "name": "a", "state": "live", "last": "7" }),
            json!({ "name": "a", "state": "live", "first": 0, "last": 7 }),
            json!({ "name": "a", "state": "asleep" }),
            json!({ "state": "tombstoned" }),
            json!("a"),
        ] {
            assert_eq!(names(&json!([live, wrong]), stream_state), None, "{wrong}");
        }
        assert_eq!(names(&json!({}), stream_state), None);
    }
}
