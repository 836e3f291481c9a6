//! [`FilterRequest`]: the filter that a read requests.

use std::sync::Arc;

use tonic::Status;
use umbel_events::{Error, EventFilter, is_index_name, parse_index};
use umbel_proto::streams::read_req::{Expression, Filter, FilterOptions, Window};

use crate::limits::FILTER_WINDOW_EVENTS;
use crate::protocol::grpc_status;

/// The filter that a read requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterRequest {
    subject: FilterSubject,
    rule: FilterRule,
    /// Number of examined events after which a subscription sends a checkpoint.
    pub checkpoint_interval: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterSubject {
    Stream,
    Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum FilterRule {
    Regex(String),
    Prefixes(Vec<String>),
}

impl FilterRequest {
    /// Parses the filter options of a read; fails if they are invalid.
    pub fn from_options(options: FilterOptions) -> Result<FilterRequest, Status> {
        let (by, Expression { regex, prefix }) = match options.filter {
            Some(Filter::StreamIdentifier(expression)) => (FilterSubject::Stream, expression),
            Some(Filter::EventType(expression)) => (FilterSubject::Kind, expression),
            None => return Err(invalid("the filter names neither the stream nor the event type")),
        };
        let rule = match (regex.is_empty(), prefix.is_empty()) {
            (false, true) => FilterRule::Regex(regex),
            (true, false) => FilterRule::Prefixes(prefix),
            (true, true) => {
                return Err(invalid("the filter has neither an expression nor prefixes"));
            }
            (false, false) => {
                return Err(invalid(
                    "the filter has both an expression and prefixes; send either an expression or \
                     prefixes",
                ));
            }
        };
        if let (FilterSubject::Stream, FilterRule::Prefixes(prefixes)) = (by, &rule)
            && let [index] = &prefixes[..]
            && is_index_name(index)
            && parse_index(index).is_none()
        {
            return Err(grpc_status::index_missing(index));
        }
        let window = match options.window {
            Some(Window::Max(0)) => {
                return Err(invalid("the filter's window must be at least 1 event"));
            }
            Some(Window::Max(events)) => events,
            Some(Window::Count(())) | None => FILTER_WINDOW_EVENTS,
        };
        let multiplier = match options.checkpoint_interval_multiplier {
            0 => return Err(invalid("the filter's checkpoint interval must be at least 1 window")),
            multiplier => multiplier,
        };
        Ok(FilterRequest {
            subject: by,
            rule,
            checkpoint_interval: u64::from(window) * u64::from(multiplier),
        })
    }

    /// Key of the expression in the filter cache; `None` if the filter has prefixes.
    pub fn cache_key(&self) -> Option<String> {
        match &self.rule {
            FilterRule::Regex(expression) => Some(format!("{:?} {expression}", self.subject)),
            FilterRule::Prefixes(_) => None,
        }
    }

    /// Builds the filter. Compiling an expression takes some time.
    pub fn compile(&self) -> Result<Arc<EventFilter>, Error> {
        match (self.subject, &self.rule) {
            (FilterSubject::Stream, FilterRule::Regex(expression)) => {
                EventFilter::stream_regex(expression)
            }
            (FilterSubject::Kind, FilterRule::Regex(expression)) => {
                EventFilter::type_regex(expression)
            }
            (FilterSubject::Stream, FilterRule::Prefixes(prefixes)) => {
                EventFilter::stream_prefixes(prefixes)
            }
            (FilterSubject::Kind, FilterRule::Prefixes(prefixes)) => {
                EventFilter::type_prefixes(prefixes)
            }
        }
    }

    /// Builds the filter of a stored consumer group, which may have more parts than that of a
    /// request.
    pub fn compile_stored(&self) -> Result<Arc<EventFilter>, Error> {
        match (self.subject, &self.rule) {
            (FilterSubject::Stream, FilterRule::Regex(expression)) => {
                EventFilter::stored_stream_regex(expression)
            }
            (FilterSubject::Kind, FilterRule::Regex(expression)) => {
                EventFilter::stored_type_regex(expression)
            }
            (_, FilterRule::Prefixes(_)) => self.compile(),
        }
    }
}

fn invalid(message: &str) -> Status {
    Status::invalid_argument(message)
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn expression(regex: &str, prefixes: &[&str]) -> Expression {
        let prefix = prefixes.iter().map(|prefix| prefix.to_string()).collect();
        Expression { regex: regex.to_string(), prefix }
    }

    fn options(expression: Expression) -> FilterOptions {
        FilterOptions {
            filter: Some(Filter::EventType(expression)),
            window: Some(Window::Max(10)),
            checkpoint_interval_multiplier: 3,
        }
    }

    #[test]
    fn filter_has_prefixes_or_an_expression() {
        let read = FilterRequest::from_options(options(expression("", &["a", "b"]))).unwrap();
        assert_eq!(read.checkpoint_interval, 30);
        assert!(read.compile().unwrap().passes("s", "bc").unwrap());
        let by_stream = FilterOptions {
            filter: Some(Filter::StreamIdentifier(expression("^a|b$", &[]))),
            window: Some(Window::Count(())),
            ..options(expression("", &[]))
        };
        let read = FilterRequest::from_options(by_stream).unwrap();
        assert_eq!(read.checkpoint_interval, 96);
        let filter = read.compile().unwrap();
        assert!(filter.passes("cb", "x").unwrap() && !filter.passes("c", "b").unwrap());
    }

    #[test]
    fn invalid_filter_is_rejected() {
        let good = || options(expression("a", &[]));
        let cases = [
            FilterOptions::default(),
            FilterOptions { filter: None, ..good() },
            options(expression("", &[])),
            options(expression("a", &["b"])),
            FilterOptions { window: Some(Window::Max(0)), ..good() },
            FilterOptions { checkpoint_interval_multiplier: 0, ..good() },
        ];
        for options in cases {
            let status = FilterRequest::from_options(options.clone()).expect_err("refused");
            assert_eq!(status.code(), Code::InvalidArgument, "{options:?}");
        }
        for broken in [expression("(", &[]), expression("", &["a", ""])] {
            assert!(FilterRequest::from_options(options(broken)).unwrap().compile().is_err());
        }
        assert!(FilterRequest::from_options(FilterOptions { window: None, ..good() }).is_ok());
    }
}
