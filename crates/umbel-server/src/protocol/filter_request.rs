//! The filter that a read asks for.

use std::sync::Arc;

use tonic::Status;
use umbel_events::{Error, EventFilter};
use umbel_proto::streams::read_req::{Expression, Filter, FilterOptions, Window};

use crate::limits::FILTER_WINDOW_EVENTS;

/// The filter that a read asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterRequest {
    by: By,
    rule: Rule,
    /// After how many events that were looked at a subscription is told how far it is.
    pub interval: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Stream,
    Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Rule {
    Regex(String),
    Prefixes(Vec<String>),
}

impl FilterRequest {
    /// Reads the options; an error that says what is wrong with them.
    pub fn read(options: FilterOptions) -> Result<FilterRequest, Status> {
        let (by, Expression { regex, prefix }) = match options.filter {
            Some(Filter::StreamIdentifier(expression)) => (By::Stream, expression),
            Some(Filter::EventType(expression)) => (By::Kind, expression),
            None => return Err(invalid("a filter is by the stream or by the event type")),
        };
        let rule = match (regex.is_empty(), prefix.is_empty()) {
            (false, true) => Rule::Regex(regex),
            (true, false) => Rule::Prefixes(prefix),
            (true, true) => return Err(invalid("a filter has an expression or prefixes")),
            (false, false) => {
                return Err(invalid("a filter has an expression or prefixes, but not both"));
            }
        };
        let window = match options.window {
            Some(Window::Max(0)) => return Err(invalid("a filter's window has 1 event at least")),
            Some(Window::Max(most)) => most,
            Some(Window::Count(())) | None => FILTER_WINDOW_EVENTS,
        };
        let multiplier = match options.checkpoint_interval_multiplier {
            0 => return Err(invalid("a filter's checkpoint interval is 1 window at least")),
            multiplier => multiplier,
        };
        Ok(FilterRequest { by, rule, interval: u64::from(window) * u64::from(multiplier) })
    }

    /// A name by which the same expression is found again; `None` for prefixes.
    pub fn name(&self) -> Option<String> {
        match &self.rule {
            Rule::Regex(expression) => Some(format!("{:?} {expression}", self.by)),
            Rule::Prefixes(_) => None,
        }
    }

    /// The filter. An expression takes its time to be compiled.
    pub fn compile(&self) -> Result<Arc<EventFilter>, Error> {
        match (self.by, &self.rule) {
            (By::Stream, Rule::Regex(expression)) => EventFilter::stream_regex(expression),
            (By::Kind, Rule::Regex(expression)) => EventFilter::type_regex(expression),
            (By::Stream, Rule::Prefixes(prefixes)) => EventFilter::stream_prefixes(prefixes),
            (By::Kind, Rule::Prefixes(prefixes)) => EventFilter::type_prefixes(prefixes),
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
    fn a_filter_is_by_prefixes_or_by_an_expression() {
        let read = FilterRequest::read(options(expression("", &["a", "b"]))).unwrap();
        assert_eq!(read.interval, 30);
        assert!(read.compile().unwrap().passes("s", "bc").unwrap());
        let by_stream = FilterOptions {
            filter: Some(Filter::StreamIdentifier(expression("^a|b$", &[]))),
            window: Some(Window::Count(())),
            ..options(expression("", &[]))
        };
        let read = FilterRequest::read(by_stream).unwrap();
        assert_eq!(read.interval, 96);
        let filter = read.compile().unwrap();
        assert!(filter.passes("cb", "x").unwrap() && !filter.passes("c", "b").unwrap());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
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
            let status = FilterRequest::read(options.clone()).expect_err("refused");
            assert_eq!(status.code(), Code::InvalidArgument, "{options:?}");
        }
        for broken in [expression("(", &[]), expression("", &["a", ""])] {
            assert!(FilterRequest::read(options(broken)).unwrap().compile().is_err());
        }
        assert!(FilterRequest::read(FilterOptions { window: None, ..good() }).is_ok());
    }
}
