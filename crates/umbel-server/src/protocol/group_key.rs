//! [`GroupKey`]: identifies a consumer group.

use tonic::Status;
use umbel_events::Source;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;

/// Stream name that stands for all events.
pub const ALL_SOURCE: &str = "$all";

/// Identity of a consumer group: its source (a stream or all events) and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// The stream; `None` for all events.
    pub stream: Option<String>,
    /// The group's name.
    pub group: String,
}

impl GroupKey {
    /// Name of the stream, or [`ALL_SOURCE`].
    pub fn source(&self) -> &str {
        self.stream.as_deref().unwrap_or(ALL_SOURCE)
    }

    /// Name of the stream with the group's checkpoints.
    pub fn checkpoint_stream(&self) -> String {
        format!("$persistentsubscription-{}::{}-checkpoint", self.source(), self.group)
    }

    /// Name of the stream with the group's parked events.
    pub fn parked_stream(&self) -> String {
        format!("$persistentsubscription-{}::{}-parked", self.source(), self.group)
    }

    /// Whether another group would keep its state in the same streams, which is possible because
    /// names may contain `::`.
    pub fn shares_streams_with(&self, other: &GroupKey) -> bool {
        self.checkpoint_stream() == other.checkpoint_stream()
    }

    /// Fails if the names of the group's own streams would be invalid.
    pub fn check_names(&self) -> Result<(), Status> {
        let over = self.checkpoint_stream().len().saturating_sub(STREAM_NAME_BYTES_MAX);
        if over == 0 {
            return Ok(());
        }
        let bytes = self.source().len() + self.group.len();
        Err(Status::invalid_argument(format!(
            "the names of stream and group have {bytes} bytes together; the limit is {}, because \
             the streams with the group's state contain both",
            bytes - over
        )))
    }

    /// Source of the group's events, before a filter.
    pub fn event_source(&self) -> Source {
        self.stream.as_deref().map_or(Source::All, Source::named)
    }

    /// Whether the group reads a view.
    pub fn is_of_view(&self) -> bool {
        matches!(self.event_source(), Source::View(_))
    }
}
