//! [`ReadRequest`]: the options of a read, without invalid combinations.

use tonic::Status;
use umbel_base::fail_point;
use umbel_events::{Direction, Source};
use umbel_proto::streams::read_req::{
    AllOption, CountOption, FilterOption, Options, ReadDirection, RevisionOption, StreamOption,
    UuidForm,
};

use crate::protocol::filter_request::FilterRequest;
use crate::protocol::{grpc_status, proto_convert};

/// Options of a read.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// Source of the events; all events until the filter is compiled.
    pub source: Source,
    /// Start of the read.
    pub start: ReadStart,
    /// Maximum number of events, or a subscription.
    pub extent: ReadExtent,
    /// Form of identifiers in responses.
    pub form: UuidForm,
    /// Whether the client wants the first and last revision of a stream.
    pub reports_stream_ends: bool,
    /// Whether links are resolved to their targets.
    pub resolve_links: bool,
    /// Filter of all events, if any.
    pub filter: Option<FilterRequest>,
}

/// Start of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadStart {
    /// From the first event on.
    First,
    /// From the last event on.
    Last,
    /// From this revision or position on.
    At(u64),
}

/// Extent of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadExtent {
    /// A read of at most this many events, in this direction.
    Count(u64, Direction),
    /// A subscription.
    Subscription,
}

fn is_backwards(direction: i32) -> Result<bool, Status> {
    match ReadDirection::try_from(direction) {
        Ok(direction) => Ok(direction == ReadDirection::Backwards),
        Err(_) => {
            fail_point!("read-accept-unknown-direction", |_| Ok(false));
            Err(invalid("the direction is neither forwards nor backwards"))
        }
    }
}

impl ReadRequest {
    /// Reads the options; fails if they are invalid.
    pub fn from_options(options: Option<Options>) -> Result<ReadRequest, Status> {
        let options = options.ok_or_else(|| invalid("the read has no options"))?;
        let is_backwards = is_backwards(options.read_direction)?;
        let extent = match options.count_option {
            Some(CountOption::Count(count)) if is_backwards => {
                ReadExtent::Count(count, Direction::Backwards)
            }
            Some(CountOption::Count(count)) => ReadExtent::Count(count, Direction::Forwards),
            Some(CountOption::Subscription(())) if is_backwards => {
                return Err(invalid("a subscription cannot read backwards"));
            }
            Some(CountOption::Subscription(())) => ReadExtent::Subscription,
            None => return Err(invalid("the read has neither a count nor a subscription")),
        };
        let form = options
            .uuid_option
            .and_then(|option| option.content)
            .ok_or_else(|| invalid("the read has no uuid_option"))?;
        let filter = match options.filter_option {
            Some(FilterOption::Filter(filter)) => Some(FilterRequest::from_options(filter)?),
            Some(FilterOption::NoFilter(())) => None,
            None => return Err(invalid("the read has neither a filter nor no_filter")),
        };
        let (source, start) = source_and_start(options.stream_option)?;
        if filter.is_some() && source.name().is_some() {
            return Err(invalid("a read of one stream cannot have a filter"));
        }
        let reports_ends = options.control_option.unwrap_or_default().compatibility >= 1;
        let resolves = options.resolve_links;
        Ok(ReadRequest {
            source,
            start,
            extent,
            form,
            reports_stream_ends: reports_ends,
            resolve_links: resolves,
            filter,
        })
    }
}

fn source_and_start(option: Option<StreamOption>) -> Result<(Source, ReadStart), Status> {
    match option {
        Some(StreamOption::Stream(stream)) => {
            let name = proto_convert::stream_name(stream.stream_identifier)?;
            grpc_status::check_not_index(&name)?;
            let start = match stream.revision_option {
                Some(RevisionOption::Revision(revision)) => ReadStart::At(revision),
                Some(RevisionOption::Start(())) => ReadStart::First,
                Some(RevisionOption::End(())) => ReadStart::Last,
                None => return Err(invalid("the read has no revision to start from")),
            };
            Ok((Source::named(name), start))
        }
        Some(StreamOption::All(all)) => {
            let start = match all.all_option {
                Some(AllOption::Position(position)) => {
                    if position.commit_position < position.prepare_position {
                        return Err(invalid_position());
                    }
                    ReadStart::At(position.commit_position)
                }
                Some(AllOption::Start(())) => ReadStart::First,
                Some(AllOption::End(())) => ReadStart::Last,
                None => return Err(invalid("the read has no position to start from")),
            };
            Ok((Source::All, start))
        }
        None => Err(invalid("the read names neither a stream nor all events")),
    }
}

/// Status of a read that begins at an impossible position.
pub fn invalid_position() -> Status {
    invalid("Trying to read from an invalid position.")
}

fn invalid(message: &str) -> Status {
    Status::invalid_argument(message)
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use umbel_proto::streams::read_req::{
        AllOptions, ControlOption, Expression, Filter, FilterOptions, Position, StreamOptions,
        UuidOption,
    };

    use super::*;

    fn options() -> Options {
        Options {
            stream_option: Some(StreamOption::Stream(StreamOptions {
                stream_identifier: Some(proto_convert::stream_identifier("a")),
                revision_option: Some(RevisionOption::Start(())),
            })),
            read_direction: 0,
            resolve_links: true,
            count_option: Some(CountOption::Count(5)),
            filter_option: Some(FilterOption::NoFilter(())),
            uuid_option: Some(UuidOption { content: Some(UuidForm::String(())) }),
            control_option: Some(ControlOption { compatibility: 1 }),
        }
    }

    fn all(option: Option<AllOption>) -> Option<StreamOption> {
        Some(StreamOption::All(AllOptions { all_option: option }))
    }

    #[test]
    fn complete_request_is_parsed() {
        let read = ReadRequest::from_options(Some(options())).unwrap();
        assert!(matches!(&read.source, Source::Stream(name) if &**name == "a"));
        assert_eq!(read.start, ReadStart::First);
        assert_eq!(read.extent, ReadExtent::Count(5, Direction::Forwards));
        assert!(read.reports_stream_ends);
        let position = Position { commit_position: 9, prepare_position: 9 };
        let backwards = Options {
            read_direction: 1,
            stream_option: all(Some(AllOption::Position(position))),
            control_option: None,
            ..options()
        };
        let read = ReadRequest::from_options(Some(backwards)).unwrap();
        assert!(matches!(read.source, Source::All));
        assert_eq!(read.start, ReadStart::At(9));
        assert_eq!(read.extent, ReadExtent::Count(5, Direction::Backwards));
        assert!(!read.reports_stream_ends);
    }

    #[test]
    fn missing_or_invalid_options_are_rejected() {
        let unreachable = Position { commit_position: 1, prepare_position: 2 };
        let by_type = Filter::EventType(Expression { regex: "a".to_string(), prefix: vec![] });
        let filter = Some(FilterOption::Filter(FilterOptions {
            filter: Some(by_type),
            window: None,
            checkpoint_interval_multiplier: 1,
        }));
        let nothing = Some(FilterOption::Filter(FilterOptions::default()));
        let of_all = all(Some(AllOption::Start(())));
        let subscription = Some(CountOption::Subscription(()));
        let from_nowhere = StreamOptions {
            stream_identifier: Some(proto_convert::stream_identifier("a")),
            revision_option: None,
        };
        let cases = [
            Options { stream_option: None, ..options() },
            Options { stream_option: Some(StreamOption::Stream(from_nowhere)), ..options() },
            Options {
                stream_option: Some(StreamOption::Stream(StreamOptions::default())),
                ..options()
            },
            Options { stream_option: all(None), ..options() },
            Options { stream_option: all(Some(AllOption::Position(unreachable))), ..options() },
            Options { read_direction: 2, ..options() },
            Options { read_direction: 1, count_option: subscription, ..options() },
            Options { count_option: None, ..options() },
            Options { filter_option: None, ..options() },
            Options { filter_option: filter.clone(), ..options() },
            Options { filter_option: nothing, stream_option: of_all.clone(), ..options() },
            Options { uuid_option: None, ..options() },
            Options { uuid_option: Some(UuidOption { content: None }), ..options() },
        ];
        for options in cases {
            let status = ReadRequest::from_options(Some(options.clone())).expect_err("refused");
            assert_eq!(status.code(), Code::InvalidArgument, "{options:?}");
        }
        assert_eq!(ReadRequest::from_options(None).unwrap_err().code(), Code::InvalidArgument);
        let filtered = Options { stream_option: of_all, filter_option: filter, ..options() };
        let read = ReadRequest::from_options(Some(filtered)).unwrap();
        assert!(read.filter.is_some() && read.resolve_links);
    }
}
