//! [`GroupConfig`]: how a group of consumers works, from requests and as it is kept.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tonic::Status;
use umbel_events::{Error, EventFilter};
use umbel_proto::persistent::{
    CheckpointAfter, CreateOptions, GroupFilter, GroupOrigin, GroupStart, MessageTimeout,
    NamedStrategy, Settings,
};
use umbel_proto::streams::read_req::{Expression, Filter, FilterOptions, RevisionOption, Window};

use crate::filter_request::FilterRequest;
use crate::group_key::{ALL, GroupKey};
use crate::limits::{GROUP_EVENTS_MAX, GROUP_NAME_BYTES_MAX};
use crate::{convert, failure};

/// Units of 100 nanoseconds in a millisecond.
const TICKS: i64 = 10_000;

/// Who gets which event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// One consumer as long as it has room.
    DispatchToSingle,
    /// Each in turn.
    RoundRobin,
    /// One consumer for each stream.
    Pinned,
    /// One consumer for each correlation id.
    PinnedByCorrelation,
}

const STRATEGIES: [(Strategy, &str); 4] = [
    (Strategy::DispatchToSingle, "DispatchToSingle"),
    (Strategy::RoundRobin, "RoundRobin"),
    (Strategy::Pinned, "Pinned"),
    (Strategy::PinnedByCorrelation, "PinnedByCorrelation"),
];

/// Where a group begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With the first event.
    First,
    /// Behind the last event there is when the group is made.
    Last,
    /// With the event at this revision or position, or the next one.
    At(u64),
}

/// How a group of consumers works.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupConfig {
    /// Where it begins, as was asked.
    pub begin: Begin,
    /// The event behind which that is; `None` before the first.
    pub after: Option<u64>,
    /// Which of all events it takes.
    pub filter: Option<FilterOptions>,
    /// Who gets which event.
    pub strategy: Strategy,
    /// When an event that was sent is sent again; `None` for never.
    pub message_timeout: Option<Duration>,
    /// How long a checkpoint may wait.
    pub checkpoint_after: Duration,
    /// The other settings, as they came.
    pub settings: Settings,
}

/// The name of a group; an error where it is none.
pub fn group_name(name: String) -> Result<String, Status> {
    match name.len() {
        0 => Err(invalid("the request names no group")),
        1..=GROUP_NAME_BYTES_MAX => Ok(name),
        bytes => Err(Status::invalid_argument(format!(
            "the group's name has {bytes} bytes; at most {GROUP_NAME_BYTES_MAX} are taken"
        ))),
    }
}

impl GroupConfig {
    /// Reads a request; an error that says what is wrong with it.
    pub fn read(options: Option<CreateOptions>) -> Result<(GroupKey, GroupConfig), Status> {
        let options = options.ok_or_else(|| invalid("the request has no options"))?;
        let settings = options.settings.ok_or_else(|| invalid("the request has no settings"))?;
        let group = group_name(options.group_name)?;
        let (stream, begin, filter) = match options.stream_option {
            Some(GroupOrigin::Stream(stream)) => {
                let begin = match stream.revision_option {
                    Some(RevisionOption::Revision(revision)) => Begin::At(revision),
                    Some(RevisionOption::End(())) => Begin::Last,
                    Some(RevisionOption::Start(())) | None => Begin::First,
                };
                (Some(convert::stream_name(stream.stream_identifier)?), begin, None)
            }
            Some(GroupOrigin::All(all)) => {
                let begin = match all.all_option {
                    Some(GroupStart::Position(position)) => Begin::At(position.commit_position),
                    Some(GroupStart::End(())) => Begin::Last,
                    Some(GroupStart::Start(())) | None => Begin::First,
                };
                let filter = match all.filter_option {
                    Some(GroupFilter::Filter(asked)) => Some(of_group(asked.filter)),
                    Some(GroupFilter::NoFilter(())) | None => None,
                };
                (None, begin, filter)
            }
            // As older clients say it: the highest number means the end.
            None => {
                let name = convert::stream_name(options.stream_identifier)?;
                let begin = match settings.revision {
                    u64::MAX => Begin::Last,
                    revision => Begin::At(revision),
                };
                (Some(name), begin, None)
            }
        };
        // What older clients say beside the new way is left out.
        let key = GroupKey { stream: stream.filter(|name| name != ALL), group };
        if let Some(filter) = &filter {
            FilterRequest::read(filter.clone())?;
        }
        let config = GroupConfig::of(&key, begin, filter, settings)?;
        Ok((key, config))
    }

    fn of(
        key: &GroupKey,
        begin: Begin,
        filter: Option<FilterOptions>,
        settings: Settings,
    ) -> Result<GroupConfig, Status> {
        let failed = |reason: String| failure::group_failed(key, &reason);
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
            Some(MessageTimeout::Ticks(ticks)) => ticks / TICKS,
            Some(MessageTimeout::Millis(millis)) => millis.into(),
            None => 0,
        };
        let timeout = time("message timeout", timeout)?;
        let after = match settings.checkpoint_after {
            Some(CheckpointAfter::Ticks(ticks)) => ticks / TICKS,
            Some(CheckpointAfter::Millis(millis)) => millis.into(),
            None => 0,
        };
        Ok(GroupConfig {
            begin,
            after: None,
            filter,
            strategy,
            message_timeout: Some(timeout).filter(|timeout| !timeout.is_zero()),
            checkpoint_after: time("checkpoint time", after)?,
            settings,
        })
    }

    /// The filter. An expression takes its time to be compiled.
    pub fn compile(&self) -> Result<Option<Arc<EventFilter>>, Error> {
        let Some(filter) = &self.filter else { return Ok(None) };
        let asked = FilterRequest::read(filter.clone());
        asked.map_err(|status| Error::Invalid(status.message().to_string()))?.compile().map(Some)
    }

    /// The name of who gets which event.
    pub fn strategy_name(&self) -> &'static str {
        let named = STRATEGIES.iter().find(|(strategy, _)| *strategy == self.strategy);
        named.map_or("", |(_, name)| name)
    }

    /// How the configuration stream says it.
    pub fn said(&self, key: &GroupKey) -> Value {
        let settings = &self.settings;
        let begin = match self.begin {
            Begin::First => json!(0),
            Begin::Last => json!(-1),
            Begin::At(number) => json!(number),
        };
        let filter = self.filter.as_ref().map(|filter| {
            let (by, expression) = match &filter.filter {
                Some(Filter::StreamIdentifier(expression)) => ("stream", expression),
                Some(Filter::EventType(expression)) => ("type", expression),
                None => ("stream", &EMPTY),
            };
            json!({ "by": by, "regex": expression.regex, "prefixes": expression.prefix })
        });
        json!({
            "stream": key.source(),
            "group": key.group,
            "resolveLinkTos": settings.resolve_links,
            "extraStatistics": settings.extra_statistics,
            "startFrom": begin,
            "after": self.after,
            "filter": filter,
            "messageTimeout": millis(self.message_timeout.unwrap_or_default()),
            "maxRetryCount": settings.max_retry_count,
            "checkPointAfter": millis(self.checkpoint_after),
            "minCheckPointCount": settings.min_checkpoint_count,
            "maxCheckPointCount": settings.max_checkpoint_count,
            "maxSubscriberCount": settings.max_subscriber_count,
            "liveBufferSize": settings.live_buffer_size,
            "readBatchSize": settings.read_batch_size,
            "historyBufferSize": settings.history_buffer_size,
            "namedConsumerStrategy": self.strategy_name(),
        })
    }

    /// Reads what the configuration stream says; `None` where it is none of ours.
    pub fn parse(said: &Value) -> Option<(GroupKey, GroupConfig)> {
        let text = |key: &str| Some(said.get(key)?.as_str()?.to_string());
        let number = |key: &str| i32::try_from(said.get(key)?.as_i64()?).ok();
        let stream = Some(text("stream")?).filter(|name| name != ALL);
        let key = GroupKey { stream, group: group_name(text("group")?).ok()? };
        let begin = match said.get("startFrom")? {
            number if number.as_i64() == Some(-1) => Begin::Last,
            number if number.as_u64() == Some(0) => Begin::First,
            number => Begin::At(number.as_u64()?),
        };
        let filter = match said.get("filter")? {
            Value::Null => None,
            filter => Some(parse_filter(filter)?),
        };
        let settings = Settings {
            resolve_links: said.get("resolveLinkTos")?.as_bool()?,
            revision: 0,
            extra_statistics: said.get("extraStatistics")?.as_bool()?,
            message_timeout: Some(MessageTimeout::Millis(number("messageTimeout")?)),
            max_retry_count: number("maxRetryCount")?,
            checkpoint_after: Some(CheckpointAfter::Millis(number("checkPointAfter")?)),
            min_checkpoint_count: number("minCheckPointCount")?,
            max_checkpoint_count: number("maxCheckPointCount")?,
            max_subscriber_count: number("maxSubscriberCount")?,
            live_buffer_size: number("liveBufferSize")?,
            read_batch_size: number("readBatchSize")?,
            history_buffer_size: number("historyBufferSize")?,
            named_consumer_strategy: 0,
            consumer_strategy: text("namedConsumerStrategy")?,
        };
        let config = GroupConfig::of(&key, begin, filter, settings).ok()?;
        Some((key, GroupConfig { after: said.get("after")?.as_u64(), ..config }))
    }
}

/// Who gets which event, by its name or as older clients say it.
fn strategy(settings: &Settings, failed: impl Fn(String) -> Status) -> Result<Strategy, Status> {
    match settings.consumer_strategy.as_str() {
        "" => match NamedStrategy::try_from(settings.named_consumer_strategy) {
            Ok(NamedStrategy::DispatchToSingle) => Ok(Strategy::DispatchToSingle),
            Ok(NamedStrategy::RoundRobin) => Ok(Strategy::RoundRobin),
            Ok(NamedStrategy::Pinned) => Ok(Strategy::Pinned),
            Err(_) => Err(invalid("the consumer strategy is none of those known")),
        },
        name => match STRATEGIES.iter().find(|(_, known)| *known == name) {
            Some((strategy, _)) => Ok(*strategy),
            None => {
                let shown: String = name.chars().take(failure::PATH_SHOWN).collect();
                Err(failed(format!("Consumer strategy {shown} does not exist.")))
            }
        },
    }
}

static EMPTY: Expression = Expression { regex: String::new(), prefix: Vec::new() };

fn parse_filter(said: &Value) -> Option<FilterOptions> {
    let prefix = said.get("prefixes")?.as_array()?.iter();
    let prefix = prefix.map(|prefix| Some(prefix.as_str()?.to_string())).collect::<Option<_>>()?;
    let expression = Expression { regex: said.get("regex")?.as_str()?.to_string(), prefix };
    let filter = match said.get("by")?.as_str()? {
        "stream" => Filter::StreamIdentifier(expression),
        _ => Filter::EventType(expression),
    };
    Some(of_group(Some(filter)))
}

/// A group's filter. Window and interval say when a subscription is told how far it is, and a group
/// is told nothing: whatever a client says of them, or leaves out, is the same.
fn of_group(filter: Option<Filter>) -> FilterOptions {
    FilterOptions { filter, window: Some(Window::Count(())), checkpoint_interval_multiplier: 1 }
}

/// So many milliseconds, where a client's number can say it.
pub fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

/// A place as clients read it: a revision, or a position among all events.
pub fn place(key: &GroupKey, place: u64) -> String {
    match key.stream {
        Some(_) => place.to_string(),
        None => format!("C:{place}/P:{place}"),
    }
}

/// A place that was written so; `None` where it is none.
pub fn parse_place(said: &str) -> Option<u64> {
    match said.strip_prefix("C:") {
        Some(both) => both.split_once("/P:")?.0.parse().ok(),
        None => said.parse().ok(),
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
            message_timeout: Some(MessageTimeout::Ticks(300_000_000)),
            checkpoint_after: Some(CheckpointAfter::Millis(2000)),
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
    fn what_is_kept_of_a_group_is_read_again() {
        let (key, mut config) = GroupConfig::read(Some(options())).unwrap();
        config.after = Some(8);
        let said = config.said(&key);
        assert_eq!((&said["stream"], &said["messageTimeout"]), (&json!("$all"), &json!(30_000)));
        let (same, read) = GroupConfig::parse(&said).unwrap();
        assert_eq!((same, read.said(&key)), (key, said.clone()));
        assert_eq!(
            (read.begin, read.after, read.strategy),
            (config.begin, Some(8), config.strategy)
        );
        assert!(read.compile().unwrap().is_some());
        for missing in ["group", "startFrom", "historyBufferSize", "after"] {
            let mut said = said.clone();
            said[missing] = json!({});
            let is_read = GroupConfig::parse(&said).is_some_and(|read| read.1.after == Some(8));
            assert!(!is_read, "{missing}");
        }
    }

    #[test]
    fn what_a_groups_filter_says_of_checkpoints_is_not_looked_at() {
        // The clients in Java and Go leave out the interval, which is 0 then. Both were refused, as
        // a subscription's filter is, and could make no group of all events with a filter.
        let mut options = options();
        let Some(GroupOrigin::All(all)) = &mut options.stream_option else { panic!("of all") };
        let Some(GroupFilter::Filter(filter)) = &mut all.filter_option else { panic!("a filter") };
        (filter.window, filter.checkpoint_interval_multiplier) = (Some(Window::Max(0)), 0);
        let (key, config) = GroupConfig::read(Some(options.clone())).unwrap();
        assert!(config.compile().unwrap().unwrap().passes("s", "ab").unwrap());
        assert_eq!(GroupConfig::parse(&config.said(&key)).unwrap().1.filter, config.filter);
        let Some(GroupOrigin::All(all)) = &mut options.stream_option else { panic!("of all") };
        all.filter_option = Some(GroupFilter::Filter(FilterOptions::default()));
        let status = GroupConfig::read(Some(options)).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let changes: [fn(&mut Settings); 6] = [
            |settings| settings.read_batch_size = 500,
            |settings| settings.history_buffer_size = 1 << 30,
            |settings| settings.live_buffer_size = -1,
            |settings| settings.max_retry_count = -1,
            |settings| settings.message_timeout = Some(MessageTimeout::Millis(-1)),
            |settings| settings.consumer_strategy = "Dice".to_string(),
        ];
        for change in changes {
            let mut options = options();
            change(options.settings.as_mut().unwrap());
            let status = GroupConfig::read(Some(options)).unwrap_err();
            assert_eq!(status.code(), tonic::Code::Internal, "{status:?}");
        }
        let nameless = CreateOptions { group_name: String::new(), ..options() };
        let long = CreateOptions { group_name: "g".repeat(1000), ..options() };
        for options in [None, Some(nameless), Some(long), Some(CreateOptions::default())] {
            let status = GroupConfig::read(options).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
        }
    }

    #[test]
    fn places_are_read_as_they_are_written() {
        for stream in [None, Some("s".to_string())] {
            let key = GroupKey { stream, group: "group".to_string() };
            assert_eq!(parse_place(&place(&key, 7)), Some(7));
        }
        assert_eq!((parse_place("x"), parse_place("C:1"), parse_place("")), (None, None, None));
    }
}
