//! Constructors for the options of reads and subscriptions.
//!
//! ```
//! use umbel_proto::read_options::{at_most, backwards, of_stream};
//! use umbel_proto::streams::read_req::{CountOption, ReadDirection, RevisionOption};
//!
//! let newest = at_most(1, backwards(of_stream("orders-7", RevisionOption::End(()))));
//! assert_eq!(newest.read_direction(), ReadDirection::Backwards);
//! assert_eq!(newest.count_option, Some(CountOption::Count(1)));
//! ```

use crate::streams::read_req::{
    AllOption, AllOptions, ControlOption, CountOption, Expression, Filter, FilterOption,
    FilterOptions, Options, Position, ReadDirection, RevisionOption, StreamOption, StreamOptions,
    UuidForm, UuidOption, Window,
};

/// Reads all events of a stream forwards.
pub fn of_stream(stream: &str, from: RevisionOption) -> Options {
    Options {
        stream_option: Some(StreamOption::Stream(StreamOptions {
            stream_identifier: Some(stream.into()),
            revision_option: Some(from),
        })),
        read_direction: ReadDirection::Forwards.into(),
        resolve_links: false,
        count_option: Some(CountOption::Count(i64::MAX as u64)),
        filter_option: Some(FilterOption::NoFilter(())),
        uuid_option: Some(UuidOption { content: Some(UuidForm::Structured(())) }),
        control_option: Some(ControlOption { compatibility: 0 }),
    }
}

/// Reads all events of the store forwards.
pub fn of_all(from: AllOption) -> Options {
    let all = StreamOption::All(AllOptions { all_option: Some(from) });
    Options { stream_option: Some(all), ..of_stream("", RevisionOption::Start(())) }
}

/// Makes a read start at this position of the event log.
pub fn at_position(position: u64) -> AllOption {
    AllOption::Position(Position { commit_position: position, prepare_position: position })
}

/// Reverses the direction of a read.
pub fn backwards(options: Options) -> Options {
    Options { read_direction: ReadDirection::Backwards.into(), ..options }
}

/// Limits the number of events of a read.
pub fn at_most(count: u64, options: Options) -> Options {
    Options { count_option: Some(CountOption::Count(count)), ..options }
}

/// Turns a read into a subscription.
pub fn subscription(options: Options) -> Options {
    Options { count_option: Some(CountOption::Subscription(())), ..options }
}

/// Filters a read; the server reports a position after each `interval` examined events.
pub fn filtered(filter: Filter, interval: u32, options: Options) -> Options {
    let filter = FilterOptions {
        filter: Some(filter),
        window: Some(Window::Max(interval)),
        checkpoint_interval_multiplier: 1,
    };
    Options { filter_option: Some(FilterOption::Filter(filter)), ..options }
}

/// Matches names by a regular expression.
pub fn regex(expression: &str) -> Expression {
    Expression { regex: expression.to_string(), prefix: Vec::new() }
}

/// Matches names that begin with one of these prefixes.
pub fn prefixes<S: ToString>(prefixes: &[S]) -> Expression {
    let prefix = prefixes.iter().map(ToString::to_string).collect();
    Expression { regex: String::new(), prefix }
}

/// Makes a read resolve links.
pub fn resolving_links(options: Options) -> Options {
    Options { resolve_links: true, ..options }
}
