//! Arguments of `group`.

use clap::{Args, Subcommand, ValueEnum};

use crate::events::event_args::{FilterArgs, ServerArgs};
use crate::text::numbers::integer_parser;

/// Largest number in the settings of a group.
const SETTING_MAX: u64 = i32::MAX as u64;

/// Commands of `group`.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List consumer groups: source, group, consumers, events in flight, parked events, checkpoint
    List(ListArgs),
    /// Print settings, progress and consumers of a group
    Info(NamedArgs),
    /// Create a group
    Create(CreateArgs),
    /// Change settings of a group, which disconnects its consumers; other settings stay
    Update(UpdateArgs),
    /// Delete a group with its checkpoint and its parked events
    Delete(NamedArgs),
    /// Print the parked events of a group as JSON lines, with the time and the reason of parking
    Parked(ParkedArgs),
    /// Send the parked events of a group to its consumers again
    Replay(ReplayArgs),
}

/// Arguments of `group list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Source of the groups: a stream, or $all [default: every source]
    #[arg(value_name = "STREAM")]
    pub source: Option<String>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Source and name of a group.
#[derive(Debug, Args)]
pub struct GroupName {
    /// Source of the group: a stream, or $all for the events of all streams
    #[arg(value_name = "STREAM")]
    pub source: String,
    /// Name of the group
    #[arg(value_name = "GROUP")]
    pub group: String,
}

/// Arguments of commands that need only a group.
#[derive(Debug, Args)]
pub struct NamedArgs {
    #[command(flatten)]
    pub name: GroupName,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `group create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    pub name: GroupName,
    #[command(flatten)]
    pub settings: GroupSettings,
    #[command(flatten)]
    pub filter: GroupFilterArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `group update`.
#[derive(Debug, Args)]
pub struct UpdateArgs {
    #[command(flatten)]
    pub name: GroupName,
    #[command(flatten)]
    pub settings: GroupSettings,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `group parked`.
#[derive(Debug, Args)]
pub struct ParkedArgs {
    #[command(flatten)]
    pub name: GroupName,
    /// Maximum number of events
    #[arg(long, value_name = "EVENTS", value_parser = integer_parser(1, u64::MAX))]
    pub count: Option<u64>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `group replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    #[command(flatten)]
    pub name: GroupName,
    /// End of the replay: a revision of the stream of parked events, exclusive [default: all]
    #[arg(long, value_name = "REVISION", value_parser = integer_parser(0, i64::MAX as u64))]
    pub stop_at: Option<u64>,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Filter of a new group of all events.
#[derive(Debug, Args)]
#[group(id = "group_filter", multiple = false)]
pub struct GroupFilterArgs {
    /// Only streams with this name prefix; can be given several times
    #[arg(long, value_name = "TEXT")]
    pub stream_prefix: Vec<String>,
    /// Only event types with this prefix; can be given several times
    #[arg(long, value_name = "TEXT")]
    pub type_prefix: Vec<String>,
    /// Only streams whose names match this regular expression
    #[arg(long, value_name = "REGEX")]
    pub stream_regex: Option<String>,
    /// Only event types that match this regular expression
    #[arg(long, value_name = "REGEX")]
    pub type_regex: Option<String>,
}

impl GroupFilterArgs {
    /// The filter in the form of reads.
    pub fn to_filter_args(&self) -> FilterArgs {
        FilterArgs {
            stream_prefix: self.stream_prefix.clone(),
            type_prefix: self.type_prefix.clone(),
            stream_regex: self.stream_regex.clone(),
            type_regex: self.type_regex.clone(),
        }
    }
}

/// Rule that assigns events to consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Strategy {
    /// All events go to one consumer as long as it has capacity
    DispatchToSingle,
    /// Events go to each consumer in turn
    RoundRobin,
    /// Events of a stream go to the same consumer
    Pinned,
    /// Events with the same correlation id go to the same consumer
    PinnedByCorrelation,
}

impl Strategy {
    /// The name in the client protocol.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::DispatchToSingle => "DispatchToSingle",
            Strategy::RoundRobin => "RoundRobin",
            Strategy::Pinned => "Pinned",
            Strategy::PinnedByCorrelation => "PinnedByCorrelation",
        }
    }
}

/// Settings of a group; an option that is not given has its default in a new group, and leaves an
/// existing group unchanged.
#[derive(Debug, Default, PartialEq, Eq, Args)]
pub struct GroupSettings {
    /// Start of the group: start, end, or the first revision or position [default: end]
    #[arg(long, value_name = "START", value_parser = parse_start)]
    pub from: Option<GroupStart>,
    /// Deliver the events that links point at: true or false [default: false]
    #[arg(long, value_name = "BOOL")]
    pub resolve_links: Option<bool>,
    /// Time without an ack after which an event is sent again; 0 is never [default: 30000]
    #[arg(long, value_name = "MILLISECONDS", value_parser = integer_parser(0, SETTING_MAX))]
    pub message_timeout_milliseconds: Option<u64>,
    /// Number of retries before an event is parked [default: 10]
    #[arg(long, value_name = "RETRIES", value_parser = integer_parser(0, SETTING_MAX))]
    pub max_retries: Option<u64>,
    /// Maximum delay of a checkpoint [default: 2000]
    #[arg(long, value_name = "MILLISECONDS", value_parser = integer_parser(0, SETTING_MAX))]
    pub checkpoint_after_milliseconds: Option<u64>,
    /// Number of events before a checkpoint is stored [default: 10]
    #[arg(long, value_name = "EVENTS", value_parser = integer_parser(0, SETTING_MAX))]
    pub min_checkpoint_count: Option<u64>,
    /// Number of events that force a checkpoint [default: 1000]
    #[arg(long, value_name = "EVENTS", value_parser = integer_parser(0, SETTING_MAX))]
    pub max_checkpoint_count: Option<u64>,
    /// Maximum number of consumers; 0 is no limit [default: 0]
    #[arg(long, value_name = "CONSUMERS", value_parser = integer_parser(0, SETTING_MAX))]
    pub max_consumers: Option<u64>,
    /// Number of buffered live events [default: 500]
    #[arg(long, value_name = "EVENTS", value_parser = integer_parser(0, SETTING_MAX))]
    pub live_buffer: Option<u64>,
    /// Number of events that one read fetches [default: 20]
    #[arg(long, value_name = "EVENTS", value_parser = integer_parser(1, SETTING_MAX))]
    pub read_batch: Option<u64>,
    /// Number of buffered events before the group has caught up [default: 500]
    #[arg(long, value_name = "EVENTS", value_parser = integer_parser(1, SETTING_MAX))]
    pub history_buffer: Option<u64>,
    /// Rule that assigns events to consumers [default: round-robin]
    #[arg(long, value_enum)]
    pub strategy: Option<Strategy>,
    /// Measure the time from delivery to ack: true or false [default: false]
    #[arg(long, value_name = "BOOL")]
    pub extra_statistics: Option<bool>,
}

/// Start of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupStart {
    /// The first event.
    First,
    /// After the last event.
    End,
    /// The event at this revision or position, or the next one.
    At(u64),
}

/// Parses the value of `--from`.
fn parse_start(text: &str) -> Result<GroupStart, String> {
    match text {
        "start" => Ok(GroupStart::First),
        "end" => Ok(GroupStart::End),
        number => number.parse().map(GroupStart::At).map_err(|_| {
            "write start, end, or the first revision (with $all: position)".to_string()
        }),
    }
}
