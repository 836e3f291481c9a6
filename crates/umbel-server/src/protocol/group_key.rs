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

    /// Every group that would keep its state in the same streams, including this one. There are
    /// several because names may contain `::`.
    pub fn keys_with_same_streams(&self) -> impl Iterator<Item = GroupKey> {
        let joined = format!("{}::{}", self.source(), self.group);
        let ends: Vec<usize> =
            (0..joined.len()).filter(|at| joined.as_bytes()[*at..].starts_with(b"::")).collect();
        ends.into_iter().map(move |end| {
            let stream = Some(joined[..end].to_string()).filter(|name| name != ALL_SOURCE);
            GroupKey { stream, group: joined[end + 2..].to_string() }
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_the_same_streams_are_found() {
        let key = |stream: &str, group: &str| {
            let stream = Some(stream.to_string()).filter(|name| name != ALL_SOURCE);
            GroupKey { stream, group: group.to_string() }
        };
        for (stream, group, wanted) in [
            ("cart", "g", vec![key("cart", "g")]),
            ("a::b", "c", vec![key("a", "b::c"), key("a::b", "c")]),
            ("$all", "b::c", vec![key("$all", "b::c"), key("$all::b", "c")]),
            ("a", ":b", vec![key("a", ":b"), key("a:", "b")]),
            ("ü::", "ü", vec![key("ü", "::ü"), key("ü:", ":ü"), key("ü::", "ü")]),
        ] {
            let own = key(stream, group);
            let found: Vec<GroupKey> = own.keys_with_same_streams().collect();
            assert_eq!(found, wanted, "{stream} {group}");
            let streams = found.iter().map(GroupKey::checkpoint_stream);
            assert!(streams.into_iter().all(|stream| stream == own.checkpoint_stream()));
        }
    }
}
