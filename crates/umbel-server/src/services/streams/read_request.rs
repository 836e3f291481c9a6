//! What a read asks for, with every combination that makes no sense refused.

use std::sync::Arc;

use tonic::Status;
use umbel_events::Direction;
use umbel_proto::streams::read_req::{
    AllOption, CountOption, FilterOption, Options, ReadDirection, RevisionOption, StreamOption,
    UuidForm,
};

use crate::convert;
use crate::filter_request::FilterRequest;
use crate::planted::{Bug, planted};

/// What a read asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// Which events, from where.
    pub origin: Origin,
    /// How many, or all from now on.
    pub extent: Extent,
    /// In which form identifiers are answered.
    pub form: UuidForm,
    /// Whether the client wants to know the revisions of a stream's ends.
    pub tells_ends: bool,
    /// Whether links are answered with what they point to.
    pub resolves: bool,
    /// Which of all events pass, where not all do.
    pub filter: Option<FilterRequest>,
}

/// Which events, from where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Those of a stream.
    Stream(Arc<str>, Start),
    /// All.
    All(Start),
}

/// From where on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// From the first event on.
    First,
    /// From the last event on.
    Last,
    /// From this revision or position on.
    At(u64),
}

/// How many events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// At most so many, in this direction.
    Count(u64, Direction),
    /// All from now on.
    Subscription,
}

impl ReadRequest {
    /// Reads the options; an error that says what is wrong with them.
    pub fn read(options: Option<Options>) -> Result<ReadRequest, Status> {
        let options = options.ok_or_else(|| invalid("a read has options"))?;
        let is_backwards = match ReadDirection::try_from(options.read_direction) {
            Ok(direction) => direction == ReadDirection::Backwards,
            Err(_) if planted(Bug::DirectionUnknown) => false,
            Err(_) => return Err(invalid("the direction is neither forwards nor backwards")),
        };
        let extent = match options.count_option {
            Some(CountOption::Count(count)) if is_backwards => {
                Extent::Count(count, Direction::Backwards)
            }
            Some(CountOption::Count(count)) => Extent::Count(count, Direction::Forwards),
            Some(CountOption::Subscription(())) if is_backwards => {
                return Err(invalid("a subscription goes forwards"));
            }
            Some(CountOption::Subscription(())) => Extent::Subscription,
            None => return Err(invalid("a read has a count or is a subscription")),
        };
        let form = options
            .uuid_option
            .and_then(|option| option.content)
            .ok_or_else(|| invalid("a read says in which form identifiers are answered"))?;
        let filter = match options.filter_option {
            Some(FilterOption::Filter(filter)) => Some(FilterRequest::read(filter)?),
            Some(FilterOption::NoFilter(())) => None,
            None => return Err(invalid("a read has a filter or says that it has none")),
        };
        let origin = origin(options.stream_option)?;
        if filter.is_some() && matches!(origin, Origin::Stream(..)) {
            return Err(invalid("only reads of all events have filters"));
        }
        let tells_ends = options.control_option.unwrap_or_default().compatibility >= 1;
        let resolves = options.resolve_links;
        Ok(ReadRequest { origin, extent, form, tells_ends, resolves, filter })
    }
}

fn origin(option: Option<StreamOption>) -> Result<Origin, Status> {
    match option {
        Some(StreamOption::Stream(stream)) => {
            let name = convert::stream_name(stream.stream_identifier)?;
            let start = match stream.revision_option {
                Some(RevisionOption::Revision(revision)) => Start::At(revision),
                Some(RevisionOption::Start(())) => Start::First,
                Some(RevisionOption::End(())) => Start::Last,
                None => return Err(invalid("a read says where in the stream it begins")),
            };
            Ok(Origin::Stream(name.into(), start))
        }
        Some(StreamOption::All(all)) => match all.all_option {
            Some(AllOption::Position(position)) => {
                if position.commit_position < position.prepare_position {
                    return Err(invalid_position());
                }
                Ok(Origin::All(Start::At(position.commit_position)))
            }
            Some(AllOption::Start(())) => Ok(Origin::All(Start::First)),
            Some(AllOption::End(())) => Ok(Origin::All(Start::Last)),
            None => Err(invalid("a read says where among all events it begins")),
        },
        None => Err(invalid("a read is of one stream or of all")),
    }
}

/// A read begins where no event can be.
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
                stream_identifier: Some(convert::identifier("a")),
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
    fn a_whole_request_is_understood() {
        let read = ReadRequest::read(Some(options())).unwrap();
        assert_eq!(read.origin, Origin::Stream("a".into(), Start::First));
        assert_eq!(read.extent, Extent::Count(5, Direction::Forwards));
        assert!(read.tells_ends);
        let place = Position { commit_position: 9, prepare_position: 9 };
        let backwards = Options {
            read_direction: 1,
            stream_option: all(Some(AllOption::Position(place))),
            control_option: None,
            ..options()
        };
        let read = ReadRequest::read(Some(backwards)).unwrap();
        assert_eq!(read.origin, Origin::All(Start::At(9)));
        assert_eq!(read.extent, Extent::Count(5, Direction::Backwards));
        assert!(!read.tells_ends);
    }

    #[test]
    fn what_is_missing_or_makes_no_sense_is_refused() {
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
            stream_identifier: Some(convert::identifier("a")),
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
            let status = ReadRequest::read(Some(options.clone())).expect_err("refused");
            assert_eq!(status.code(), Code::InvalidArgument, "{options:?}");
        }
        assert_eq!(ReadRequest::read(None).unwrap_err().code(), Code::InvalidArgument);
        let filtered = Options { stream_option: of_all, filter_option: filter, ..options() };
        let read = ReadRequest::read(Some(filtered)).unwrap();
        assert!(read.filter.is_some() && read.resolves);
    }
}
