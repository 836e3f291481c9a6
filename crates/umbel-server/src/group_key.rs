//! [`GroupKey`]: which group of consumers.

use umbel_events::is_view;

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

    /// Whether the group is of a view.
    pub fn is_of_view(&self) -> bool {
        self.stream.as_deref().is_some_and(is_view)
    }
}
