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
    /// Events of a stream, by revision. It may be created later. Its metadata is a stream of its
    /// own.
    Stream(Arc<str>),
    /// Links of a view such as `$ce-cart`, by their numbers in it. Events that were scavenged
    /// before have none.
    View(Arc<str>),
    /// All events of the store, by position.
    All,
    /// All events of the store that pass a filter, by position.
    Filtered(Arc<EventFilter>),
}

impl Source {
    /// Returns the view with this name, if it names one, else the stream.
    pub fn named(name: impl Into<Arc<str>>) -> Source {
        let name = name.into();
        if is_view(&name) { Source::View(name) } else { Source::Stream(name) }
    }

    /// Returns all events, or those that pass the filter.
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

    /// Whether its events are those of all streams, by position.
    pub fn is_by_position(&self) -> bool {
        matches!(self, Source::All | Source::Filtered(_))
    }

    /// Hash of the stream whose appends wake a waiter; `None` if every append does. An append does
    /// not look up its views for waiters.
    pub(crate) fn watched_stream(&self, shared: &StoreInner) -> Option<u64> {
        match self {
            Source::Stream(name) => Some(shared.existence.hash(name)),
            Source::View(_) | Source::All | Source::Filtered(_) => None,
        }
    }
}

/// The events of a source, in order. Made by [`Store::read_source`](crate::Store::read_source).
#[derive(Debug)]
pub enum SourceReader {
    /// Of a stream.
    Stream(Box<StreamReader>),
    /// Of a view.
    View(Box<ViewReader>),
    /// Of all events.
    All(Box<AllReader>),
    /// Of events that pass a filter.
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

    /// Returns the next event; of a view its link. Skips at most `examined_max` events of a stream
    /// that have expired, or events that do not pass the filter.
    ///
    /// # Errors
    /// Errors of reads. `StreamDeleted` if the stream was tombstoned, `RegexTooExpensive` if a
    /// filter takes too long.
    pub fn next_within(&mut self, examined_max: usize) -> Result<StreamItem> {
        let event = match self {
            SourceReader::Stream(reader) => return reader.next_within(examined_max),
            SourceReader::Filtered(reader) => {
                return Ok(match reader.next_within(examined_max)? {
                    FilteredItem::Event(event) => StreamItem::Event(event),
                    FilteredItem::Examined(_) => StreamItem::Skipped,
                    FilteredItem::End(_) => StreamItem::End,
                });
            }
            SourceReader::View(reader) => reader.next().transpose()?.map(|event| event.link),
            SourceReader::All(reader) => reader.next().transpose()?,
        };
        Ok(event.map_or(StreamItem::End, StreamItem::Event))
    }

    /// State of a stream when the read began; `None` for other sources, or if the lookup failed.
    pub fn stream_state(&self) -> Option<StreamState> {
        match self {
            SourceReader::Stream(reader) => reader.state(),
            SourceReader::View(_) | SourceReader::All(_) | SourceReader::Filtered(_) => None,
        }
    }
}
