//! [`Filters`]: the filters of reads and subscriptions whose expressions somebody has to run.
//!
//! What such an expression is compiled to, and what running it makes, may take some MiB for as long
//! as the call is open. So calls with the same expression share it, and there are only so many that
//! differ.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tonic::Status;
use umbel_events::EventFilter;

use crate::failure;
use crate::filter_request::FilterRequest;
use crate::limits::EXPRESSIONS_MAX;

/// The filters that somebody has.
#[derive(Debug, Default)]
pub struct Filters {
    used: Mutex<HashMap<String, Weak<EventFilter>>>,
}

impl Filters {
    /// The filter that is asked for. An expression takes its time to be compiled.
    ///
    /// # Errors
    /// What is wrong with it, or that too many others are in use.
    pub fn get(&self, asked: &FilterRequest) -> Result<Arc<EventFilter>, Status> {
        let name = asked.name();
        let known = |used: &mut HashMap<String, Weak<EventFilter>>| {
            used.get(name.as_ref()?).and_then(Weak::upgrade)
        };
        if let Some(filter) = self.locked(known) {
            return Ok(filter);
        }
        let filter = asked.compile().map_err(|error| failure::status(&error))?;
        let Some(name) = name.filter(|_| !filter.is_quick()) else { return Ok(filter) };
        self.locked(|used| {
            if used.len() >= EXPRESSIONS_MAX {
                used.retain(|_, filter| filter.strong_count() > 0);
            }
            if used.len() >= EXPRESSIONS_MAX && !used.contains_key(&name) {
                return Err(failure::many_expressions());
            }
            used.insert(name, Arc::downgrade(&filter));
            Ok(filter)
        })
    }

    fn locked<T>(&self, work: impl FnOnce(&mut HashMap<String, Weak<EventFilter>>) -> T) -> T {
        work(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use umbel_proto::streams::read_req::{Expression, Filter, FilterOptions};

    use super::*;

    fn asked(regex: &str, is_by_type: bool) -> FilterRequest {
        let expression = Expression { regex: regex.to_string(), prefix: Vec::new() };
        let by = if is_by_type { Filter::EventType } else { Filter::StreamIdentifier };
        let filter = Some(by(expression));
        let options = FilterOptions { filter, window: None, checkpoint_interval_multiplier: 1 };
        FilterRequest::read(options).unwrap()
    }

    /// Story: each of a thousand subscriptions compiled its expression for itself, and kept some
    /// MiB as long as it was open.
    #[test]
    fn equal_expressions_are_shared_and_only_so_many_differ() {
        let filters = Filters::default();
        let first = filters.get(&asked("a+b", false)).unwrap();
        assert!(Arc::ptr_eq(&first, &filters.get(&asked("a+b", false)).unwrap()));
        let by_type = filters.get(&asked("a+b", true)).unwrap();
        assert!(by_type.passes("s", "ab").unwrap() && !by_type.passes("ab", "s").unwrap());
        let of = |number: usize| asked(&format!("{number}$"), false);
        let mut others: Vec<_> =
            (2..EXPRESSIONS_MAX).map(|number| filters.get(&of(number)).unwrap()).collect();
        let refused = filters.get(&of(EXPRESSIONS_MAX)).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        // Those in use are had by others, too, and what only says how a name begins is no matter.
        filters.get(&of(2)).unwrap();
        let plain = (0..500).map(|number| filters.get(&asked(&format!("^{number}-"), false)));
        let plain: Vec<_> = plain.collect::<Result<_, _>>().unwrap();
        drop(plain);
        assert_eq!(filters.get(&asked("a(", false)).unwrap_err().code(), Code::InvalidArgument);
        others.pop();
        filters.get(&of(EXPRESSIONS_MAX)).unwrap();
    }
}
