//! [`EventFilter`]: selects events by their stream or their type.

use std::sync::Arc;

use crate::event_filter::filter_regex::{ExpressionOrigin, FilterRegex};
use crate::limits::{FILTER_PREFIXES_MAX, STREAM_NAME_BYTES_MAX};
use crate::types::error::{Error, Result};
use crate::types::view_kind::{ViewKind, category, is_index_name, parse_index};

pub mod dotnet_regex;
pub mod filter_regex;
pub mod regex_complexity;

/// One of the streams that no filter passes, which the store and persistent subscriptions to all
/// events write for themselves. If a filter passed such streams, consumers of filtered events would
/// be woken by their own progress.
const EPOCH_STREAM: &str = "$epoch-information";
const GROUP_PREFIX: &str = "$persistentsubscription";
const ALL_SOURCE_PART: &str = "-$all::";
const ALL_GROUP_SUFFIXES: [&str; 2] = ["-checkpoint", "-parked"];

/// Selects events whose stream's name, or whose type, begins with a prefix or matches a regular
/// expression.
///
/// Expressions use the .NET dialect, including look-ahead and look-behind.
/// `docs/reference/event-store.md` lists the differences from .NET. Streams that no client writes
/// itself pass no filter: `$epoch-information`, and `$persistentsubscription-$all::…-checkpoint`
/// and `-parked`.
#[derive(Debug)]
pub struct EventFilter {
    subject: FilterSubject,
    rule: FilterRule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterSubject {
    Stream,
    EventType,
}

#[derive(Debug)]
enum FilterRule {
    Prefixes(PrefixSet),
    /// The events of this view, as far as they can be read from their streams.
    Index(ViewKind, Box<str>),
    Expression(FilterRegex),
}

impl EventFilter {
    /// Passes events whose stream's name begins with one of these prefixes. The name of an index as
    /// the only prefix passes the readable events of that index:
    ///
    /// | index | events |
    /// |---|---|
    /// | `$idx-ce-` and a category | those of all streams whose names begin with it and a hyphen |
    /// | `$idx-et-` and a type | those of that type |
    ///
    /// # Errors
    /// `Invalid` if there are no prefixes or too many, or if a prefix is empty or longer than any
    /// name can be. `Invalid` if a prefix begins with `$idx-` and names no index, or is not alone.
    pub fn stream_prefixes(prefixes: &[impl AsRef<str>]) -> Result<Arc<EventFilter>> {
        if let Some(name) = prefixes.iter().map(AsRef::as_ref).find(|name| is_index_name(name)) {
            return EventFilter::index(name, prefixes.len());
        }
        EventFilter::new(FilterSubject::Stream, FilterRule::Prefixes(PrefixSet::new(prefixes)?))
    }

    fn index(index: &str, prefix_count: usize) -> Result<Arc<EventFilter>> {
        let name = || index.escape_debug();
        if prefix_count > 1 {
            return Err(Error::invalid(format!(
                "the prefix '{}' of a filter is the name of an index, but the filter has other \
                 prefixes; read each index alone",
                name()
            )));
        }
        let Some((kind, of)) = parse_index(index) else {
            return Err(Error::invalid(format!(
                "there is no index '{}'; the indexes are $idx-ce-CATEGORY and $idx-et-TYPE",
                name()
            )));
        };
        let by = match kind {
            ViewKind::Type => FilterSubject::EventType,
            ViewKind::Category | ViewKind::Streams => FilterSubject::Stream,
        };
        EventFilter::new(by, FilterRule::Index(kind, of.into()))
    }

    /// Passes events whose type begins with one of these prefixes.
    ///
    /// # Errors
    /// The errors of [`EventFilter::stream_prefixes`].
    pub fn type_prefixes(prefixes: &[impl AsRef<str>]) -> Result<Arc<EventFilter>> {
        EventFilter::new(FilterSubject::EventType, FilterRule::Prefixes(PrefixSet::new(prefixes)?))
    }

    /// Passes events whose stream's name matches the expression.
    ///
    /// # Errors
    /// `Invalid` where the expression is too long, too large, or malformed; for a malformed one
    /// with the place.
    pub fn stream_regex(expression: &str) -> Result<Arc<EventFilter>> {
        EventFilter::expression(FilterSubject::Stream, expression, ExpressionOrigin::Request)
    }

    /// Passes events whose type matches the expression.
    ///
    /// # Errors
    /// The errors of [`EventFilter::stream_regex`].
    pub fn type_regex(expression: &str) -> Result<Arc<EventFilter>> {
        EventFilter::expression(FilterSubject::EventType, expression, ExpressionOrigin::Request)
    }

    /// [`EventFilter::stream_regex`] for an expression that the caller accepted and stored. The
    /// number of its parts is not limited, so that a stored filter stays valid.
    ///
    /// # Errors
    /// The errors of [`EventFilter::stream_regex`].
    pub fn stored_stream_regex(expression: &str) -> Result<Arc<EventFilter>> {
        EventFilter::expression(FilterSubject::Stream, expression, ExpressionOrigin::Stored)
    }

    /// [`EventFilter::type_regex`] for an expression that the caller accepted and stored. The
    /// number of its parts is not limited, so that a stored filter stays valid.
    ///
    /// # Errors
    /// The errors of [`EventFilter::stream_regex`].
    pub fn stored_type_regex(expression: &str) -> Result<Arc<EventFilter>> {
        EventFilter::expression(FilterSubject::EventType, expression, ExpressionOrigin::Stored)
    }

    fn expression(
        subject: FilterSubject,
        expression: &str,
        origin: ExpressionOrigin,
    ) -> Result<Arc<EventFilter>> {
        let regex = FilterRegex::new(expression, origin)?;
        if let (FilterSubject::Stream, ExpressionOrigin::Request, Some(name)) =
            (subject, origin, regex.prefix().filter(|prefix| is_index_name(prefix)))
        {
            return Err(Error::invalid(format!(
                "the expression of a filter names the index '{}', but no stream has such a name; \
                 read an index as the only prefix of a filter by stream",
                name.escape_debug()
            )));
        }
        EventFilter::new(subject, FilterRule::Expression(regex))
    }

    fn new(by: FilterSubject, rule: FilterRule) -> Result<Arc<EventFilter>> {
        Ok(Arc::new(EventFilter { subject: by, rule }))
    }

    /// Whether an event of this stream and type passes.
    ///
    /// # Errors
    /// `RegexTooExpensive` where the match takes too long.
    pub fn passes(&self, stream: &str, kind: &str) -> Result<bool> {
        if is_hidden(stream) {
            return Ok(false);
        }
        self.matches(self.subject_of(stream, kind))
    }

    /// The part of an event that the filter examines.
    pub(crate) fn subject_of<'a>(&self, stream: &'a str, kind: &'a str) -> &'a str {
        match self.subject {
            FilterSubject::Stream => stream,
            FilterSubject::EventType => kind,
        }
    }

    /// Whether a name passes the filter, without the check for hidden streams.
    pub(crate) fn matches(&self, name: &str) -> Result<bool> {
        match &self.rule {
            FilterRule::Prefixes(prefixes) => Ok(prefixes.matches(name)),
            FilterRule::Index(ViewKind::Type, kind) => Ok(*name == **kind),
            FilterRule::Index(_, of) => Ok(category(name) == Some(&**of)),
            FilterRule::Expression(expression) => expression.is_match(name),
        }
    }

    /// Whether the filter examines types, of which a store has few.
    pub(crate) fn is_by_type(&self) -> bool {
        self.subject == FilterSubject::EventType
    }

    /// Whether the filter passes only events that can be read from their streams.
    pub(crate) fn is_index(&self) -> bool {
        matches!(self.rule, FilterRule::Index(..))
    }

    /// Whether evaluating the filter is as fast as looking up a cached result.
    pub fn is_cheap(&self) -> bool {
        match &self.rule {
            FilterRule::Prefixes(_) | FilterRule::Index(..) => true,
            FilterRule::Expression(expression) => expression.prefix().is_some(),
        }
    }

    /// Views that hold every event that passes; `None` where no views do.
    pub(crate) fn containing_views(&self) -> Option<ContainingViews<'_>> {
        let prefixes: Vec<&str> = match &self.rule {
            FilterRule::Index(kind, name) => return Some(ContainingViews::View(*kind, name)),
            FilterRule::Prefixes(prefixes) => prefixes.0.iter().map(|prefix| &**prefix).collect(),
            FilterRule::Expression(expression) => expression.prefix().into_iter().collect(),
        };
        match self.subject {
            FilterSubject::EventType if prefixes.is_empty() => {
                Some(ContainingViews::Types(vec![""]))
            }
            FilterSubject::EventType => Some(ContainingViews::Types(prefixes)),
            FilterSubject::Stream if prefixes.is_empty() => None,
            FilterSubject::Stream => {
                // Such names have their first hyphen where the prefix has it. Without a hyphen in
                // the prefix, they may have any category or none.
                let categories: Option<Vec<&str>> = prefixes.into_iter().map(category).collect();
                let mut categories = categories?;
                categories.sort_unstable();
                categories.dedup();
                Some(ContainingViews::Categories(categories))
            }
        }
    }
}

/// Views that hold all events that pass a filter.
#[derive(Debug, PartialEq, Eq)]
pub enum ContainingViews<'a> {
    /// This view.
    View(ViewKind, &'a str),
    /// Views of these categories.
    Categories(Vec<&'a str>),
    /// Views of the types that begin with one of these prefixes and pass the filter. No prefix in
    /// the list begins with another.
    Types(Vec<&'a str>),
}

/// Whether no filter passes the events of this stream.
pub fn is_hidden(stream: &str) -> bool {
    stream.starts_with('$')
        && (stream == EPOCH_STREAM
            || all_group_rest(stream)
                .is_some_and(|rest| ALL_GROUP_SUFFIXES.iter().any(|ending| rest.ends_with(ending))))
}

/// The name of a stream of a group on all events, after the source; `None` for other streams. A
/// stream that replaces a tombstoned one has a number after the first prefix.
fn all_group_rest(stream: &str) -> Option<&str> {
    let rest = stream.strip_prefix(GROUP_PREFIX)?;
    let rest = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    rest.strip_prefix(ALL_SOURCE_PART)
}

/// Set of name prefixes.
///
/// INVARIANT: the prefixes are sorted, and none begins with another. So only the last prefix that
/// does not sort after a name can begin the name. Every string between a prefix and a name with
/// that prefix has the prefix, too.
#[derive(Debug, PartialEq, Eq)]
struct PrefixSet(Vec<Box<str>>);

impl PrefixSet {
    fn new(prefixes: &[impl AsRef<str>]) -> Result<PrefixSet> {
        if prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.as_ref().is_empty()) {
            return Err(Error::invalid(
                "a filter has no prefix or an empty prefix, and would pass every event; leave the \
                 filter out, or give prefixes of names",
            ));
        }
        if prefixes.len() > FILTER_PREFIXES_MAX {
            return Err(Error::invalid(format!(
                "a filter has {} prefixes, but may have at most {FILTER_PREFIXES_MAX}; use \
                 several filters",
                prefixes.len()
            )));
        }
        if prefixes.iter().any(|prefix| prefix.as_ref().len() > STREAM_NAME_BYTES_MAX) {
            return Err(Error::invalid(format!(
                "a prefix of a filter has more than {STREAM_NAME_BYTES_MAX} bytes, the limit of a \
                 name; shorten the prefix"
            )));
        }
        let mut sorted: Vec<&str> = prefixes.iter().map(AsRef::as_ref).collect();
        sorted.sort_unstable();
        let mut kept: Vec<Box<str>> = Vec::new();
        for prefix in sorted {
            if !kept.last().is_some_and(|before| prefix.starts_with(&**before)) {
                kept.push(prefix.into());
            }
        }
        Ok(PrefixSet(kept))
    }

    fn matches(&self, name: &str) -> bool {
        let next_index = self.0.partition_point(|prefix| &**prefix <= name);
        next_index.checked_sub(1).is_some_and(|index| name.starts_with(&*self.0[index]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stream_and_type_filters_are_distinct() {
        let filters = [
            EventFilter::stream_prefixes(&["cart-", "order-"]),
            EventFilter::type_prefixes(&["Open", "Close"]),
            EventFilter::stream_regex("^(cart|order)-"),
            EventFilter::type_regex("^(?!Add)"),
        ];
        let [streams, types, of_streams, of_types] = filters.map(|filter| filter.expect("good"));
        for (stream, kind, wanted) in [
            ("cart-1", "Opened", [true, true, true, true]),
            ("order-1", "Added", [true, false, true, false]),
            ("a cart-1", "Closed", [false, true, false, true]),
            ("cart", "", [false, false, false, true]),
        ] {
            let all = [&streams, &types, &of_streams, &of_types];
            let passes = all.map(|filter| filter.passes(stream, kind).expect("in time"));
            assert_eq!(passes, wanted, "{stream}, {kind}");
        }
    }

    #[test]
    fn internal_events_pass_no_filter() {
        let all = EventFilter::type_regex("^").expect("good");
        for (stream, is_shown) in [
            ("$epoch-information", false),
            ("$persistentsubscription-$all::billing-checkpoint", false),
            ("$persistentsubscription-$all::billing-parked", false),
            ("$persistentsubscription.2-$all::billing-parked", false),
            ("$persistentsubscription-$all::billing", true),
            ("$persistentsubscription-cart::billing-parked", true),
            ("$epoch-information-2", true),
            ("$$cart", true),
        ] {
            assert_eq!(all.passes(stream, "Happened").expect("in time"), is_shown, "{stream}");
        }
    }

    #[test]
    fn views_of_a_filter_contain_every_passing_event() {
        type FilterResult = Result<Arc<EventFilter>>;
        let within = |filter: FilterResult| match filter.expect("good").containing_views() {
            Some(ContainingViews::Categories(names)) => format!("in {}", names.join(" ")),
            Some(ContainingViews::Types(prefixes)) => format!("of {}", prefixes.join(" ")),
            Some(ContainingViews::View(kind, name)) => kind.view_name(name),
            None => "anywhere".to_string(),
        };
        let cases: [(&[&str], &str); 9] = [
            (&["cart-"], "in cart"),
            (&["cart-4", "cart-5-", "order-"], "in cart order"),
            (&["käse-1"], "in käse"),
            (&["cart"], "anywhere"),
            (&["cart-", "car"], "anywhere"),
            (&["cart-", "order"], "anywhere"),
            (&["-1"], "anywhere"),
            (&["$cart-1"], "anywhere"),
            (&["$$cart-1"], "anywhere"),
        ];
        for (prefixes, wanted) in cases {
            assert_eq!(within(EventFilter::stream_prefixes(prefixes)), wanted, "{prefixes:?}");
        }
        assert_eq!(within(EventFilter::stream_prefixes(&["$idx-ce-cart"])), "$ce-cart");
        assert_eq!(within(EventFilter::stream_prefixes(&["$idx-et-Opened"])), "$et-Opened");
        assert_eq!(within(EventFilter::stream_regex("^cart-4")), "in cart");
        assert_eq!(within(EventFilter::stream_regex("cart-4")), "anywhere");
        assert_eq!(within(EventFilter::type_prefixes(&["Opened"])), "of Opened");
        assert_eq!(within(EventFilter::type_prefixes(&["Order", "Op", "Opened"])), "of Op Order");
        assert_eq!(within(EventFilter::type_regex("^Opened")), "of Opened");
        assert_eq!(within(EventFilter::type_regex("^(?!Opened)")), "of ");
    }

    #[test]
    fn index_as_the_only_prefix_passes_the_events_of_its_view() {
        for (index, passing) in [
            ("$idx-ce-cart", [("cart-1", "Opened"), ("cart-1-a", "Closed")]),
            ("$idx-et-Opened", [("cart-1", "Opened"), ("$x", "Opened")]),
        ] {
            let filter = EventFilter::stream_prefixes(&[index]).expect("an index");
            for (stream, kind) in passing {
                assert!(filter.passes(stream, kind).expect("in time"), "{index}, {stream}");
            }
            for (stream, kind) in [("carts-1", "OpenedAgain"), ("cart", "Open"), (index, "x")] {
                assert!(!filter.passes(stream, kind).expect("in time"), "{index}, {stream}");
            }
        }
        let refused = |filter: Result<Arc<EventFilter>>, name: &str| {
            let error = filter.expect_err("refused").to_string();
            assert!(error.contains(&format!("'{name}'")), "{error}");
        };
        for name in ["$idx-all", "$idx-", "$idx-ce-", "$idx-et-", "$idx-own"] {
            refused(EventFilter::stream_prefixes(&[name]), name);
        }
        refused(EventFilter::stream_prefixes(&["cart-", "$idx-ce-cart"]), "$idx-ce-cart");
        refused(EventFilter::stream_regex(r"^\$idx-ce-cart"), "$idx-ce-cart");
        EventFilter::stored_stream_regex(r"^\$idx-ce-cart").expect("stored filters stay valid");
        EventFilter::type_prefixes(&["$idx-ce-cart"]).expect("a type may have this name");
    }

    #[test]
    fn trivial_prefix_lists_are_rejected() {
        let many = vec!["a".to_string(); FILTER_PREFIXES_MAX + 1];
        let long = "a".repeat(STREAM_NAME_BYTES_MAX + 1);
        for prefixes in [vec![], vec!["a".to_string(), String::new()], many, vec![long]] {
            assert!(EventFilter::stream_prefixes(&prefixes).is_err());
        }
        assert!(EventFilter::type_regex("").is_err());
    }

    proptest! {
        #[test]
        fn prefix_match_compares_the_start_of_the_name(
            prefixes in proptest::collection::vec("[abä]{1,3}", 1..8),
            name in "[abä]{0,5}",
        ) {
            let wanted = prefixes.iter().any(|prefix| name.starts_with(prefix));
            prop_assert_eq!(PrefixSet::new(&prefixes).expect("good").matches(&name), wanted);
        }
    }
}
