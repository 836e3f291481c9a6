//! [`EventFilter`]: which events somebody wants to see, by their stream or their type.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::expression::Expression;
use crate::limits::{FILTER_PREFIXES_MAX, STREAM_NAME_BYTES_MAX};
use crate::view_name::category;

/// Streams that no filter lets pass: what the store and persistent subscriptions to all events
/// write for themselves would wake whoever reads filtered events with his own progress.
const EPOCHS: &str = "$epoch-information";
const TO_ALL: &str = "$persistentsubscription-$all::";
const TO_ALL_ENDINGS: [&str; 2] = ["-checkpoint", "-parked"];

/// Which events somebody wants to see: those whose stream's name, or whose type, begins with one of
/// several prefixes or matches a regular expression.
///
/// Expressions are those of .NET, look-ahead and look-behind included; `docs/event-store.md` has
/// the differences. What nobody writes himself passes no filter: the streams `$epoch-information`
/// and `$persistentsubscription-$all::…-checkpoint` and `-parked`.
#[derive(Debug)]
pub struct EventFilter {
    by: By,
    rule: Rule,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Stream,
    Kind,
}

#[derive(Debug)]
enum Rule {
    Prefixes(Prefixes),
    Expression(Expression),
}

impl EventFilter {
    /// Events whose stream's name begins with one of these.
    ///
    /// # Errors
    /// `Invalid` where there is none, one is empty or longer than any name, or there are too many.
    pub fn stream_prefixes(prefixes: &[impl AsRef<str>]) -> Result<Arc<EventFilter>> {
        EventFilter::new(By::Stream, Rule::Prefixes(Prefixes::new(prefixes)?))
    }

    /// Events whose type begins with one of these.
    ///
    /// # Errors
    /// As [`EventFilter::stream_prefixes`].
    pub fn type_prefixes(prefixes: &[impl AsRef<str>]) -> Result<Arc<EventFilter>> {
        EventFilter::new(By::Kind, Rule::Prefixes(Prefixes::new(prefixes)?))
    }

    /// Events in the name of whose stream the expression finds something.
    ///
    /// # Errors
    /// `Invalid` where the expression is broken, which says where, too long or too large.
    pub fn stream_regex(expression: &str) -> Result<Arc<EventFilter>> {
        EventFilter::new(By::Stream, Rule::Expression(Expression::new(expression)?))
    }

    /// Events in whose type the expression finds something.
    ///
    /// # Errors
    /// As [`EventFilter::stream_regex`].
    pub fn type_regex(expression: &str) -> Result<Arc<EventFilter>> {
        EventFilter::new(By::Kind, Rule::Expression(Expression::new(expression)?))
    }

    fn new(by: By, rule: Rule) -> Result<Arc<EventFilter>> {
        Ok(Arc::new(EventFilter { by, rule }))
    }

    /// Whether an event of this stream and type passes.
    ///
    /// # Errors
    /// `Runaway` where the expression takes too long to say.
    pub fn passes(&self, stream: &str, kind: &str) -> Result<bool> {
        if is_hidden(stream) {
            return Ok(false);
        }
        self.takes(self.asks_about(stream, kind))
    }

    /// What of an event it looks at.
    pub(crate) fn asks_about<'a>(&self, stream: &'a str, kind: &'a str) -> &'a str {
        match self.by {
            By::Stream => stream,
            By::Kind => kind,
        }
    }

    /// Whether a name passes, whatever else hides the event.
    pub(crate) fn takes(&self, name: &str) -> Result<bool> {
        match &self.rule {
            Rule::Prefixes(prefixes) => Ok(prefixes.begin(name)),
            Rule::Expression(expression) => expression.is_match(name),
        }
    }

    /// Whether it looks at types, of which there are few.
    pub(crate) fn is_by_type(&self) -> bool {
        self.by == By::Kind
    }

    /// Whether it answers as quickly as anybody could remember what it said.
    pub fn is_quick(&self) -> bool {
        match &self.rule {
            Rule::Prefixes(_) => true,
            Rule::Expression(expression) => expression.prefix().is_some(),
        }
    }

    /// Which views hold every event that passes; `None` where no view may.
    pub(crate) fn within(&self) -> Option<Within<'_>> {
        let prefixes: Vec<&str> = match &self.rule {
            Rule::Prefixes(prefixes) => prefixes.0.iter().map(|prefix| &**prefix).collect(),
            Rule::Expression(expression) => expression.prefix().into_iter().collect(),
        };
        match self.by {
            By::Kind if prefixes.is_empty() => Some(Within::Types(vec![""])),
            By::Kind => Some(Within::Types(prefixes)),
            By::Stream if prefixes.is_empty() => None,
            By::Stream => {
                // What begins so has its first hyphen where the prefix has it. Without one, streams
                // of many categories may begin so, and of none.
                let categories: Option<Vec<&str>> = prefixes.into_iter().map(category).collect();
                let mut categories = categories?;
                categories.sort_unstable();
                categories.dedup();
                Some(Within::Categories(categories))
            }
        }
    }
}

/// In which views all events are that pass a filter.
#[derive(Debug, PartialEq, Eq)]
pub enum Within<'a> {
    /// Those of these categories.
    Categories(Vec<&'a str>),
    /// Those of the types that begin with one of these, none of which begins with another, and
    /// pass the filter.
    Types(Vec<&'a str>),
}

/// Whether no filter lets the events of a stream pass.
pub fn is_hidden(stream: &str) -> bool {
    stream.starts_with('$')
        && (stream == EPOCHS
            || stream
                .strip_prefix(TO_ALL)
                .is_some_and(|rest| TO_ALL_ENDINGS.iter().any(|ending| rest.ends_with(ending))))
}

/// Beginnings of names.
///
/// INVARIANT: they rise, and none begins with another. So only the last one that does not come
/// behind a name can be its beginning: whatever stands between a beginning and a name that begins
/// so begins so, too.
#[derive(Debug, PartialEq, Eq)]
struct Prefixes(Vec<Box<str>>);

impl Prefixes {
    fn new(prefixes: &[impl AsRef<str>]) -> Result<Prefixes> {
        if prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.as_ref().is_empty()) {
            return Err(Error::invalid(
                "a filter has no prefix or an empty one, which lets every event pass; leave the \
                 filter out, or say how names begin",
            ));
        }
        if prefixes.len() > FILTER_PREFIXES_MAX {
            return Err(Error::invalid(format!(
                "a filter has {} prefixes, but may have {FILTER_PREFIXES_MAX}; use several filters",
                prefixes.len()
            )));
        }
        if prefixes.iter().any(|prefix| prefix.as_ref().len() > STREAM_NAME_BYTES_MAX) {
            return Err(Error::invalid(format!(
                "a prefix of a filter has over {STREAM_NAME_BYTES_MAX} bytes, and so more than any \
                 name"
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
        Ok(Prefixes(kept))
    }

    fn begin(&self, name: &str) -> bool {
        let behind = self.0.partition_point(|prefix| &**prefix <= name);
        behind.checked_sub(1).is_some_and(|index| name.starts_with(&*self.0[index]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn streams_and_types_are_told_apart() {
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
    fn what_is_written_for_the_store_itself_passes_no_filter() {
        let all = EventFilter::type_regex("^").expect("good");
        for (stream, is_shown) in [
            ("$epoch-information", false),
            ("$persistentsubscription-$all::billing-checkpoint", false),
            ("$persistentsubscription-$all::billing-parked", false),
            ("$persistentsubscription-$all::billing", true),
            ("$persistentsubscription-cart::billing-parked", true),
            ("$epoch-information-2", true),
            ("$$cart", true),
        ] {
            assert_eq!(all.passes(stream, "Happened").expect("in time"), is_shown, "{stream}");
        }
    }

    #[test]
    fn the_views_of_a_filter_hold_whatever_passes() {
        type Made = Result<Arc<EventFilter>>;
        let within = |filter: Made| match filter.expect("good").within() {
            Some(Within::Categories(names)) => format!("in {}", names.join(" ")),
            Some(Within::Types(prefixes)) => format!("of {}", prefixes.join(" ")),
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
        assert_eq!(within(EventFilter::stream_regex("^cart-4")), "in cart");
        assert_eq!(within(EventFilter::stream_regex("cart-4")), "anywhere");
        assert_eq!(within(EventFilter::type_prefixes(&["Opened"])), "of Opened");
        assert_eq!(within(EventFilter::type_prefixes(&["Order", "Op", "Opened"])), "of Op Order");
        assert_eq!(within(EventFilter::type_regex("^Opened")), "of Opened");
        assert_eq!(within(EventFilter::type_regex("^(?!Opened)")), "of ");
    }

    #[test]
    fn prefixes_that_let_everything_or_nothing_pass_are_refused() {
        let many = vec!["a".to_string(); FILTER_PREFIXES_MAX + 1];
        let long = "a".repeat(STREAM_NAME_BYTES_MAX + 1);
        for prefixes in [vec![], vec!["a".to_string(), String::new()], many, vec![long]] {
            assert!(EventFilter::stream_prefixes(&prefixes).is_err());
        }
        assert!(EventFilter::type_regex("").is_err());
    }

    proptest! {
        #[test]
        fn a_name_begins_with_a_prefix_or_not(
            prefixes in proptest::collection::vec("[abä]{1,3}", 1..8),
            name in "[abä]{0,5}",
        ) {
            let wanted = prefixes.iter().any(|prefix| name.starts_with(prefix));
            prop_assert_eq!(Prefixes::new(&prefixes).expect("good").begin(&name), wanted);
        }
    }
}
