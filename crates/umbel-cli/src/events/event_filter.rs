//! Converts the filter flags of `read --all` and `subscribe --all` to the filter of a store or of a
//! server.

use std::sync::Arc;

use umbel_events::{EventFilter, Result};
use umbel_proto::read_options::{prefixes, regex};
use umbel_proto::streams::read_req::Filter;

use crate::events::event_args::FilterArgs;

impl FilterArgs {
    /// Returns the filter for a store; an error if a regular expression is invalid.
    pub fn to_store_filter(&self) -> Result<Option<Arc<EventFilter>>> {
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

    /// Returns the filter in the form that is sent to a server.
    pub fn to_server_filter(&self) -> Option<Filter> {
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
