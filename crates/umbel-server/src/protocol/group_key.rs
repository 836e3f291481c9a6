//! [`GroupKey`]: which group of consumers.

use tonic::Status;
use umbel_events::is_view;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;

/// How all events are called where a stream's name is told.
pub const ALL: &str = "$all";

/// Which group: of a stream, or of all events, and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// The stream; `None` for all events.
    pub stream: Option<String>,
    /// The group's name.
    pub group: String,
}

impl GroupKey {
    /// The stream's name, or what stands for it.
    pub fn source(&self) -> &str {
        self.stream.as_deref().unwrap_or(ALL)
    }

    /// The stream that keeps how far the group is.
    pub fn checkpoint_stream(&self) -> String {
        format!("$persistentsubscription-{}::{}-checkpoint", self.source(), self.group)
    }

    /// The stream that keeps what is parked.
    pub fn parked_stream(&self) -> String {
        format!("$persistentsubscription-{}::{}-parked", self.source(), self.group)
    }

    /// Whether another group's state would be in the same streams: names may have `::` in them.
    pub fn keeps_as(&self, other: &GroupKey) -> bool {
        self.checkpoint_stream() == other.checkpoint_stream()
    }

    /// An error where the streams that keep its state could have no names.
    pub fn check_names(&self) -> Result<(), Status> {
        let over = self.checkpoint_stream().len().saturating_sub(STREAM_NAME_BYTES_MAX);
        if over == 0 {
            return Ok(());
        }
        let bytes = self.source().len() + self.group.len();
        Err(Status::invalid_argument(format!(
            "the names of the stream and of the group have {bytes} bytes together; at most {} are \
             taken, because the group's state is in streams that are named after both",
            bytes - over
        )))
    }

    /// Whether the group is of a view.
    pub fn is_of_view(&self) -> bool {
        self.stream.as_deref().is_some_and(is_view)
    }
}
