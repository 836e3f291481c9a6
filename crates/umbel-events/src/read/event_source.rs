//! [`Source`]: which events are read or watched. [`SourceReader`]: reads any source.

use std::sync::Arc;

use crate::event_filter::EventFilter;
use crate::read::all_reader::AllReader;
use crate::read::filtered_reader::{FilteredItem, FilteredReader};
use crate::read::stream_reader::{StreamItem, StreamReader};
use crate::read::view_reader::ViewReader;
use crate::shared_store_state::StoreInner;
use crate::types::error::Result;
use crate::types::event::{Direction, Position, Revision};
use crate::types::stream_state::StreamState;
use crate::types::view_kind::is_view;

/// Events that a reader reads, a subscription delivers, or a watch waits for.
#[derive(Debug, Clone)]
pub enum Source {
    /// Events of a stream, by revision. The stream may be created later. A stream's metadata is in
    /// a separate stream.
    Stream(Arc<str>),
    /// Links of a view such as `$ce-cart`, by their numbers in the view. Scavenged events have no
    /// link.
    View(Arc<str>),
    /// All events of the store, by position.
    All,
    /// All events of the store that pass a filter, by position.
    Filtered(Arc<EventFilter>),
}

impl Source {
    /// Returns the view if `name` is the name of a view, otherwise the stream with this name.
    pub fn named(name: impl Into<Arc<str>>) -> Source {
        let name = name.into();
        if is_view(&name) { Source::View(name) } else { Source::Stream(name) }
    }

    /// Returns the source of all events, or of the events that pass the filter if one is given.
    pub fn all(filter: Option<Arc<EventFilter>>) -> Source {
        filter.map_or(Source::All, Source::Filtered)
    }

    /// Name of the stream or view.
    pub fn name(&self) -> Option<&Arc<str>> {
        match self {
            Source::Stream(name) | Source::View(name) => Some(name),
            Source::All | Source::Filtered(_) => None,
        }
    }

    /// Whether the source has the events of all streams, by position.
    pub fn is_by_position(&self) -> bool {
        matches!(self, Source::All | Source::Filtered(_))
    }

    /// Hash of the stream whose appends wake a waiter; `None` if every append wakes the waiter. An
    /// append does not look up which views it belongs to in order to wake their waiters.
    pub(crate) fn watched_stream(&self, shared: &StoreInner) -> Option<u64> {
        match self {
            Source::Stream(name) => Some(shared.existence.hash(name)),
            Source::View(_) | Source::All | Source::Filtered(_) => None,
        }
    }
}

/// The events of a source, in order. Returned by [`Store::read_source`](crate::Store::read_source).
#[derive(Debug)]
pub enum SourceReader {
    /// Reader of a stream.
    Stream(Box<StreamReader>),
    /// Reader of a view.
    View(Box<ViewReader>),
    /// Reader of all events.
    All(Box<AllReader>),
    /// Reader of the events that pass a filter.
    Filtered(Box<FilteredReader>),
}

impl SourceReader {
    pub(crate) fn open(
        shared: &Arc<StoreInner>,
        source: &Source,
        from: u64,
        direction: Direction,
        through: Position,
    ) -> SourceReader {
        match source {
            Source::Stream(name) => {
                let reader = StreamReader::new(shared, name, Revision(from), direction);
                SourceReader::Stream(Box::new(reader))
            }
            Source::View(view) => {
                let reader = ViewReader::new(shared, view, Revision(from), direction, through);
                SourceReader::View(Box::new(reader))
            }
            Source::All => {
                SourceReader::All(Box::new(AllReader::new(shared, Position(from), direction)))
            }
            Source::Filtered(filter) => {
                let (from, filter) = (Position(from), Arc::clone(filter));
                SourceReader::Filtered(Box::new(FilteredReader::new(
                    shared, from, direction, filter,
                )))
            }
        }
    }

    /// Returns the next event, or the next link if the source is a view. Skips at most
    /// `examined_max` events that were scavenged or do not pass the filter.
    ///
    /// # Errors
    /// Errors of reads. `StreamDeleted` if the stream was tombstoned, `RegexTooExpensive` if a
    /// filter takes too long.
    pub fn next_within(&mut self, examined_max: usize) -> Result<StreamItem> {
        match self {
            SourceReader::Stream(reader) => reader.next_within(examined_max),
            SourceReader::View(reader) => reader.next_link(examined_max),
            SourceReader::All(reader) => reader.next_within(examined_max),
            SourceReader::Filtered(reader) => Ok(match reader.next_within(examined_max)? {
                FilteredItem::Event(event) => StreamItem::Event(event),
                FilteredItem::Examined(_) => StreamItem::Skipped,
                FilteredItem::End(_) => StreamItem::End,
            }),
        }
    }

    /// Number of events that were examined so far, whether or not they were returned.
    pub fn examined(&self) -> u64 {
        match self {
            SourceReader::Stream(reader) => reader.examined(),
            SourceReader::View(reader) => reader.examined(),
            SourceReader::All(reader) => reader.examined(),
            SourceReader::Filtered(reader) => reader.examined(),
        }
    }

    /// Whether the next event may need a search instead of a read of the next entry.
    pub fn may_search(&self) -> bool {
        match self {
            SourceReader::Stream(reader) => reader.may_search(),
            SourceReader::View(_) | SourceReader::All(_) | SourceReader::Filtered(_) => true,
        }
    }

    /// State of a stream when the read began; `None` for other sources, or if the lookup failed.
    pub fn stream_state(&self) -> Option<StreamState> {
        match self {
            SourceReader::Stream(reader) => reader.state(),
            SourceReader::View(_) | SourceReader::All(_) | SourceReader::Filtered(_) => None,
        }
    }
}
