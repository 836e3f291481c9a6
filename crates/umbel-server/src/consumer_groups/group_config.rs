//! [`GroupConfig`]: the settings of a consumer group, from requests and as stored.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tonic::Status;
use umbel_events::limits::FILTER_PREFIXES_MAX;
use umbel_events::{Error, EventFilter, read_json_keys};
use umbel_proto::persistent::{
    CheckpointAfter, CreateOptions, GroupFilter, GroupOrigin, GroupStart, MessageTimeout,
    NamedStrategy, Settings,
};
use umbel_proto::streams::read_req::{Expression, Filter, FilterOptions, RevisionOption, Window};

use crate::limits::{GROUP_EVENTS_MAX, GROUP_NAME_BYTES_MAX};
use crate::protocol::bounded_list::BoundedList;
use crate::protocol::filter_request::FilterRequest;
use crate::protocol::group_key::{ALL_SOURCE, GroupKey};
use crate::protocol::{grpc_status, proto_convert};

/// Units of 100 nanoseconds in a millisecond.
const TICKS: i64 = 10_000;

/// Rule that assigns events to consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// All events go to one consumer as long as it has capacity.
    DispatchToSingle,
    /// Events go to each consumer in turn.
    RoundRobin,
    /// Events of a stream go to the same consumer.
    Pinned,
    /// Events with the same correlation id go to the same consumer.
    PinnedByCorrelation,
}

/// Keys of a group's stored settings.
const STORED_KEYS: [&str; 17] = [
    "stream",
    "group",
    "resolveLinkTos",
    "extraStatistics",
    "startFrom",
    "after",
    "filter",
    "messageTimeout",
    "maxRetryCount",
    "checkPointAfter",
    "minCheckPointCount",
    "maxCheckPointCount",
    "maxSubscriberCount",
    "liveBufferSize",
    "readBatchSize",
    "historyBufferSize",
    "namedConsumerStrategy",
];

const STRATEGIES: [(Strategy, &str); 4] = [
    (Strategy::DispatchToSingle, "DispatchToSingle"),
    (Strategy::RoundRobin, "RoundRobin"),
    (Strategy::Pinned, "Pinned"),
    (Strategy::PinnedByCorrelation, "PinnedByCorrelation"),
];

/// Start of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    /// The first event.
    First,
    /// After the last event at the time when the group is created.
    Last,
    /// The event at this revision or position, or the next one.
    At(u64),
}

/// Settings of a consumer group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupConfig {
    /// Start of the group as requested.
    pub start_from: StartFrom,
    /// The event after which the group starts; `None` if it starts at the first event.
    pub start_after: Option<u64>,
    /// Filter of a group on all events.
    pub filter: Option<FilterOptions>,
    /// Rule that assigns events to consumers.
    pub strategy: Strategy,
    /// Time without an ack after which an event is sent again; `None` for never.
    pub message_timeout: Option<Duration>,
    /// Longest delay of a checkpoint.
    pub checkpoint_after: Duration,
    /// The other settings, as received.
    pub settings: Settings,
}

/// Checks the name of a group; an error if it is invalid.
pub fn group_name(name: String) -> Result<String, Status> {
    match name.len() {
        0 => Err(invalid("the request names no group")),
        1..=GROUP_NAME_BYTES_MAX => Ok(name),
        bytes => Err(Status::invalid_argument(format!(
            "the group's name has {bytes} bytes; the limit is {GROUP_NAME_BYTES_MAX} bytes"
        ))),
    }
}

impl GroupConfig {
    /// Parses a request; the error is the response to the client.
    pub fn from_request(options: Option<CreateOptions>) -> Result<(GroupKey, GroupConfig), Status> {
        let options = options.ok_or_else(|| invalid("the request has no options"))?;
        let settings = options.settings.ok_or_else(|| invalid("the request has no settings"))?;
        let group = group_name(options.group_name)?;
        let (stream, begin, filter) = match options.stream_option {
            Some(GroupOrigin::Stream(stream)) => {
                let begin = match stream.revision_option {
                    Some(RevisionOption::Revision(revision)) => StartFrom::At(revision),
                    Some(RevisionOption::End(())) => StartFrom::Last,
                    Some(RevisionOption::Start(())) | None => StartFrom::First,
                };
                (Some(proto_convert::stream_name(stream.stream_identifier)?), begin, None)
            }
            Some(GroupOrigin::All(all)) => {
                let begin = match all.all_option {
                    Some(GroupStart::Position(position)) => StartFrom::At(position.commit_position),
                    Some(GroupStart::End(())) => StartFrom::Last,
                    Some(GroupStart::Start(())) | None => StartFrom::First,
                };
                let filter = match all.filter_option {
                    Some(GroupFilter::Filter(filter_request)) => {
                        Some(group_filter(filter_request.filter))
                    }
                    Some(GroupFilter::NoFilter(())) | None => None,
                };
                (None, begin, filter)
            }
            // The form of older clients: the highest number means the end.
            None => {
                let name = proto_convert::stream_name(options.stream_identifier)?;
                let begin = match settings.revision {
                    u64::MAX => StartFrom::Last,
                    revision => StartFrom::At(revision),
                };
                (Some(name), begin, None)
            }
        };
        // The stream name that older clients send for a group on all events is ignored.
        let key = GroupKey { stream: stream.filter(|name| name != ALL_SOURCE), group };
        if let Some(name) = &key.stream {
            grpc_status::check_not_index(name)?;
        }
        if let Some(filter) = &filter {
            FilterRequest::from_options(filter.clone())?;
        }
        let config = GroupConfig::from_settings(&key, begin, filter, settings)?;
        Ok((key, config))
    }

    fn from_settings(
        key: &GroupKey,
        begin: StartFrom,
        filter: Option<FilterOptions>,
        settings: Settings,
    ) -> Result<GroupConfig, Status> {
        let failed = |reason: String| grpc_status::group_failed(key, &reason);
        let strategy = strategy(&settings, failed)?;
        let sizes = [
            ("live buffer size", settings.live_buffer_size, 0),
            ("read batch size", settings.read_batch_size, 1),
            ("history buffer size", settings.history_buffer_size, 1),
        ];
        for (what, size, least) in sizes {
            if !(least..=GROUP_EVENTS_MAX as i32).contains(&size) {
                return Err(failed(format!(
                    "The {what} is {size}; it must be {least} to {GROUP_EVENTS_MAX}."
                )));
            }
        }
        if settings.read_batch_size >= settings.history_buffer_size {
            return Err(failed("The history buffer must be larger than the read batch.".into()));
        }
        let counts = [
            ("maximum retry count", settings.max_retry_count),
            ("minimum checkpoint count", settings.min_checkpoint_count),
            ("maximum checkpoint count", settings.max_checkpoint_count),
            ("maximum subscriber count", settings.max_subscriber_count),
        ];
        if let Some((what, count)) = counts.iter().find(|(_, count)| *count < 0) {
            return Err(failed(format!("The {what} is {count}; it must not be negative.")));
        }
        let time = |what: &str, millis: i64| match u64::try_from(millis) {
            Ok(millis) => Ok(Duration::from_millis(millis)),
            Err(_) => Err(failed(format!("The {what} is {millis} ms; it must not be negative."))),
        };
        let timeout = match settings.message_timeout {
            Some(MessageTimeout::MessageTimeoutTicks(ticks)) => ticks / TICKS,
            Some(MessageTimeout::MessageTimeoutMs(millis)) => millis.into(),
            None => 0,
        };
        let timeout = time("message timeout", timeout)?;
        let after = match settings.checkpoint_after {
            Some(CheckpointAfter::CheckpointAfterTicks(ticks)) => ticks / TICKS,
            Some(CheckpointAfter::CheckpointAfterMs(millis)) => millis.into(),
            None => 0,
        };
        Ok(GroupConfig {
            start_from: begin,
            start_after: None,
            filter,
            strategy,
            message_timeout: Some(timeout).filter(|timeout| !timeout.is_zero()),
            checkpoint_after: time("checkpoint time", after)?,
            settings,
        })
    }

    /// The compiled filter of a new group. Compiling a regular expression takes time.
    pub fn compile(&self) -> Result<Option<Arc<EventFilter>>, Error> {
        self.filter_request()?.map(|request| request.compile()).transpose()
    }

    /// The compiled filter of a stored group, whose expression may have more parts than that of a
    /// new group.
    pub fn compile_stored(&self) -> Result<Option<Arc<EventFilter>>, Error> {
        self.filter_request()?.map(|request| request.compile_stored()).transpose()
    }

    fn filter_request(&self) -> Result<Option<FilterRequest>, Error> {
        let request = self.filter.clone().map(FilterRequest::from_options).transpose();
        request.map_err(|status| Error::Invalid(status.message().to_string()))
    }

    /// Name of the strategy.
    pub fn strategy_name(&self) -> &'static str {
        let named = STRATEGIES.iter().find(|(strategy, _)| *strategy == self.strategy);
        named.map_or("", |(_, name)| name)
    }

    /// The settings as stored in the configuration stream.
    pub fn to_json(&self, key: &GroupKey) -> Value {
        let settings = &self.settings;
        let begin = match self.start_from {
            StartFrom::First => json!(0),
            StartFrom::Last => json!(-1),
            StartFrom::At(number) => json!(number),
        };
        json!({
            "stream": key.source(),
            "group": key.group,
            "resolveLinkTos": settings.resolve_links,
            "extraStatistics": settings.extra_statistics,
            "startFrom": begin,
            "after": self.start_after,
            "filter": filter_json(self.filter.as_ref()),
            "messageTimeout": to_millis(self.message_timeout.unwrap_or_default()),
            "maxRetryCount": settings.max_retry_count,
            "checkPointAfter": to_millis(self.checkpoint_after),
            "minCheckPointCount": settings.min_checkpoint_count,
            "maxCheckPointCount": settings.max_checkpoint_count,
            "maxSubscriberCount": settings.max_subscriber_count,
            "liveBufferSize": settings.live_buffer_size,
            "readBatchSize": settings.read_batch_size,
            "historyBufferSize": settings.history_buffer_size,
            "namedConsumerStrategy": self.strategy_name(),
        })
    }

    /// Parses stored settings; `None` if they are invalid.
    pub fn parse(json: &str) -> Option<(GroupKey, GroupConfig)> {
        let values = read_json_keys(json.as_bytes(), STORED_KEYS).ok()?;
        let value = |key: &str| values[STORED_KEYS.iter().position(|known| *known == key)?];
        let text = |key: &str| serde_json::from_str::<String>(value(key)?).ok();
        let number = |key: &str| value(key)?.parse::<i32>().ok();
        let is_set = |key: &str| value(key)?.parse::<bool>().ok();
        let stream = Some(text("stream")?).filter(|name| name != ALL_SOURCE);
        let key = GroupKey { stream, group: group_name(text("group")?).ok()? };
        let begin = match value("startFrom")? {
            "-1" => StartFrom::Last,
            "0" => StartFrom::First,
            number => StartFrom::At(number.parse().ok()?),
        };
        let filter = match value("filter")? {
            "null" => None,
            filter => Some(parse_filter(filter)?),
        };
        let settings = Settings {
            resolve_links: is_set("resolveLinkTos")?,
            revision: 0,
            extra_statistics: is_set("extraStatistics")?,
            message_timeout: Some(MessageTimeout::MessageTimeoutMs(number("messageTimeout")?)),
            max_retry_count: number("maxRetryCount")?,
            checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(number("checkPointAfter")?)),
            min_checkpoint_count: number("minCheckPointCount")?,
            max_checkpoint_count: number("maxCheckPointCount")?,
            max_subscriber_count: number("maxSubscriberCount")?,
            live_buffer_size: number("liveBufferSize")?,
            read_batch_size: number("readBatchSize")?,
            history_buffer_size: number("historyBufferSize")?,
            named_consumer_strategy: 0,
            consumer_strategy: text("namedConsumerStrategy")?,
        };
        let config = GroupConfig::from_settings(&key, begin, filter, settings).ok()?;
        Some((key, GroupConfig { start_after: value("after")?.parse().ok(), ..config }))
    }
}

/// The strategy in a request, given by its name or by the number that older clients send.
fn strategy(settings: &Settings, failed: impl Fn(String) -> Status) -> Result<Strategy, Status> {
    match settings.consumer_strategy.as_str() {
        "" => match NamedStrategy::try_from(settings.named_consumer_strategy) {
            Ok(NamedStrategy::DispatchToSingle) => Ok(Strategy::DispatchToSingle),
            Ok(NamedStrategy::RoundRobin) => Ok(Strategy::RoundRobin),
            Ok(NamedStrategy::Pinned) => Ok(Strategy::Pinned),
            Err(_) => Err(invalid("the consumer strategy is unknown")),
        },
        name => match STRATEGIES.iter().find(|(_, known)| *known == name) {
            Some((strategy, _)) => Ok(*strategy),
            None => {
                let shown: String = name.chars().take(grpc_status::PATH_CHARS_MAX).collect();
                Err(failed(format!("Consumer strategy {shown} does not exist.")))
            }
        },
    }
}

static EMPTY_EXPRESSION: Expression = Expression { regex: String::new(), prefix: Vec::new() };

/// A group's filter as stored and as shown to users; null without one.
pub fn filter_json(filter: Option<&FilterOptions>) -> Value {
    let Some(filter) = filter else { return Value::Null };
    let (by, expression) = match &filter.filter {
        Some(Filter::StreamIdentifier(expression)) => ("stream", expression),
        Some(Filter::EventType(expression)) => ("type", expression),
        None => ("stream", &EMPTY_EXPRESSION),
    };
    json!({ "by": by, "regex": expression.regex, "prefixes": expression.prefix })
}

fn parse_filter(json: &str) -> Option<FilterOptions> {
    let [by, regex, prefixes] =
        read_json_keys(json.as_bytes(), ["by", "regex", "prefixes"]).ok()?;
    let text = |value: Option<&str>| serde_json::from_str::<String>(value?).ok();
    let prefixes = serde_json::from_str::<BoundedList<FILTER_PREFIXES_MAX>>(prefixes?).ok()?;
    let expression = Expression { regex: text(regex)?, prefix: prefixes.0 };
    let filter = match &*text(by)? {
        "stream" => Filter::StreamIdentifier(expression),
        _ => Filter::EventType(expression),
    };
    Some(group_filter(Some(filter)))
}

/// The filter of a group. Window and interval control checkpoint messages of subscriptions, which a
/// group does not send; so constants replace the client's values.
fn group_filter(filter: Option<Filter>) -> FilterOptions {
    FilterOptions { filter, window: Some(Window::Count(())), checkpoint_interval_multiplier: 1 }
}

/// The time in milliseconds, at most the largest `i32`.
pub fn to_millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// A position in the client protocol: a revision, or a position among all events.
pub fn format_position(key: &GroupKey, position: u64) -> String {
    match key.stream {
        Some(_) => position.to_string(),
        None => format!("C:{position}/P:{position}"),
    }
}

/// Parses a position in the client protocol; `None` if it is malformed.
pub fn parse_position(value: &str) -> Option<u64> {
    match value.strip_prefix("C:") {
        Some(both) => both.split_once("/P:")?.0.parse().ok(),
        None => value.parse().ok(),
    }
}

fn invalid(message: &str) -> Status {
    Status::invalid_argument(message)
}

#[cfg(test)]
mod tests {
    use umbel_proto::persistent::GroupAllOptions;
    use umbel_proto::streams::read_req::Position;

    use super::*;

    fn options() -> CreateOptions {
        let settings = Settings {
            resolve_links: true,
            message_timeout: Some(MessageTimeout::MessageTimeoutTicks(300_000_000)),
            checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(2000)),
            max_retry_count: 10,
            read_batch_size: 20,
            history_buffer_size: 500,
            named_consumer_strategy: NamedStrategy::Pinned.into(),
            ..Settings::default()
        };
        let position = Position { commit_position: 9, prepare_position: 9 };
        let filter = FilterOptions {
            filter: Some(Filter::EventType(Expression {
                regex: String::new(),
                prefix: vec!["a".to_string()],
            })),
            window: Some(Window::Count(())),
            checkpoint_interval_multiplier: 1,
        };
        let all = GroupAllOptions {
            all_option: Some(GroupStart::Position(position)),
            filter_option: Some(GroupFilter::Filter(filter)),
        };
        CreateOptions {
            stream_identifier: None,
            group_name: "group".to_string(),
            settings: Some(settings),
            stream_option: Some(GroupOrigin::All(all)),
        }
    }

    #[test]
    fn group_config_round_trips() {
        let (key, mut config) = GroupConfig::from_request(Some(options())).unwrap();
        config.start_after = Some(8);
        let value = config.to_json(&key);
        assert_eq!((&value["stream"], &value["messageTimeout"]), (&json!("$all"), &json!(30_000)));
        let (same, read) = GroupConfig::parse(&value.to_string()).unwrap();
        assert_eq!((same, read.to_json(&key)), (key, value.clone()));
        assert_eq!(
            (read.start_from, read.start_after, read.strategy),
            (config.start_from, Some(8), config.strategy)
        );
        assert!(read.compile().unwrap().is_some());
        for missing in ["group", "startFrom", "historyBufferSize", "after"] {
            let mut value = value.clone();
            value[missing] = json!({});
            let is_read = GroupConfig::parse(&value.to_string())
                .is_some_and(|read| read.1.start_after == Some(8));
            assert!(!is_read, "{missing}");
        }
    }

    #[test]
    fn checkpoint_interval_of_a_group_filter_is_ignored() {
        // The clients in Java and Go leave the interval out, which then is 0. The server refused
        // that, as for subscriptions, so these clients could not create a filtered group on all
        // events.
        let mut options = options();
        let Some(GroupOrigin::All(all)) = &mut options.stream_option else { panic!("of all") };
        let Some(GroupFilter::Filter(filter)) = &mut all.filter_option else { panic!("a filter") };
        (filter.window, filter.checkpoint_interval_multiplier) = (Some(Window::Max(0)), 0);
        let (key, config) = GroupConfig::from_request(Some(options.clone())).unwrap();
        assert!(config.compile().unwrap().unwrap().passes("s", "ab").unwrap());
        assert_eq!(
            GroupConfig::parse(&config.to_json(&key).to_string()).unwrap().1.filter,
            config.filter
        );
        let Some(GroupOrigin::All(all)) = &mut options.stream_option else { panic!("of all") };
        all.filter_option = Some(GroupFilter::Filter(FilterOptions::default()));
        let status = GroupConfig::from_request(Some(options)).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn invalid_settings_are_rejected() {
        let changes: [fn(&mut Settings); 6] = [
            |settings| settings.read_batch_size = 500,
            |settings| settings.history_buffer_size = 1 << 30,
            |settings| settings.live_buffer_size = -1,
            |settings| settings.max_retry_count = -1,
            |settings| settings.message_timeout = Some(MessageTimeout::MessageTimeoutMs(-1)),
            |settings| settings.consumer_strategy = "Dice".to_string(),
        ];
        for change in changes {
            let mut options = options();
            change(options.settings.as_mut().unwrap());
            let status = GroupConfig::from_request(Some(options)).unwrap_err();
            assert_eq!(status.code(), tonic::Code::Internal, "{status:?}");
        }
        let nameless = CreateOptions { group_name: String::new(), ..options() };
        let long = CreateOptions { group_name: "g".repeat(1000), ..options() };
        for options in [None, Some(nameless), Some(long), Some(CreateOptions::default())] {
            let status = GroupConfig::from_request(options).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
        }
    }

    #[test]
    fn positions_round_trip() {
        for stream in [None, Some("s".to_string())] {
            let key = GroupKey { stream, group: "group".to_string() };
            assert_eq!(parse_position(&format_position(&key, 7)), Some(7));
        }
        assert_eq!(
            (parse_position("x"), parse_position("C:1"), parse_position("")),
            (None, None, None)
        );
    }
}
