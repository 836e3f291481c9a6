//! The flags that say which of all events pass, for a store and for a server.

use std::sync::Arc;

use umbel_events::{EventFilter, Result};
use umbel_proto::reading::{prefixes, regex};
use umbel_proto::streams::read_req::Filter;

use super::args::FilterArgs;

impl FilterArgs {
    /// The filter for a store; an error where an expression is broken.
    pub fn of_store(&self) -> Result<Option<Arc<EventFilter>>> {
        let filter = match self {
            FilterArgs { stream_regex: Some(expression), .. } => {
                EventFilter::stream_regex(expression)
            }
            FilterArgs { type_regex: Some(expression), .. } => EventFilter::type_regex(expression),
            FilterArgs { stream_prefix, .. } if !stream_prefix.is_empty() => {
                EventFilter::stream_prefixes(stream_prefix)
            }
            FilterArgs { type_prefix, .. } if !type_prefix.is_empty() => {
                EventFilter::type_prefixes(type_prefix)
            }
            _ => return Ok(None),
        };
        filter.map(Some)
    }

    /// The filter as a server is told of it.
    pub fn of_server(&self) -> Option<Filter> {
        match self {
            FilterArgs { stream_regex: Some(expression), .. } => {
                Some(Filter::StreamIdentifier(regex(expression)))
            }
            FilterArgs { type_regex: Some(expression), .. } => {
                Some(Filter::EventType(regex(expression)))
            }
            FilterArgs { stream_prefix, .. } if !stream_prefix.is_empty() => {
                Some(Filter::StreamIdentifier(prefixes(stream_prefix)))
            }
            FilterArgs { type_prefix, .. } if !type_prefix.is_empty() => {
                Some(Filter::EventType(prefixes(type_prefix)))
            }
            _ => None,
        }
    }
}
