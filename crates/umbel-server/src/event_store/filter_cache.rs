//! [`FilterCache`]: compiled filters of open reads and subscriptions.
//!
//! A compiled regular expression and its run-time cache can take some MiB for as long as the call
//! is open. Calls with the same expression therefore share the compiled one, and the number of
//! different expressions is bounded.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use umbel_base::ignore_poison::IgnorePoison;

use tonic::Status;
use umbel_events::EventFilter;

use crate::limits::FILTER_EXPRESSIONS_MAX;
use crate::protocol::filter_request::FilterRequest;
use crate::protocol::grpc_status;

/// The filters in use.
#[derive(Debug, Default)]
pub struct FilterCache {
    filters: Mutex<HashMap<String, Weak<EventFilter>>>,
}

impl FilterCache {
    /// The requested filter. Compiling a regular expression takes time.
    ///
    /// # Errors
    /// The expression is invalid, or too many other expressions are in use.
    pub fn get(&self, request: &FilterRequest) -> Result<Arc<EventFilter>, Status> {
        let name = request.cache_key();
        let known = |used: &mut HashMap<String, Weak<EventFilter>>| {
            used.get(name.as_ref()?).and_then(Weak::upgrade)
        };
        if let Some(filter) = self.locked(known) {
            return Ok(filter);
        }
        let filter = request.compile().map_err(|error| grpc_status::status(&error))?;
        let Some(name) = name.filter(|_| !filter.is_cheap()) else { return Ok(filter) };
        self.locked(|used| {
            if used.len() >= FILTER_EXPRESSIONS_MAX {
                used.retain(|_, filter| filter.strong_count() > 0);
            }
            if used.len() >= FILTER_EXPRESSIONS_MAX && !used.contains_key(&name) {
                return Err(grpc_status::too_many_expressions());
            }
            used.insert(name, Arc::downgrade(&filter));
            Ok(filter)
        })
    }

    fn locked<T>(&self, work: impl FnOnce(&mut HashMap<String, Weak<EventFilter>>) -> T) -> T {
        work(&mut self.filters.lock().ignore_poison())
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use umbel_proto::streams::read_req::{Expression, Filter, FilterOptions};

    use super::*;

    fn filter_request(regex: &str, is_by_type: bool) -> FilterRequest {
        let expression = Expression { regex: regex.to_string(), prefix: Vec::new() };
        let by = if is_by_type { Filter::EventType } else { Filter::StreamIdentifier };
        let filter = Some(by(expression));
        let options = FilterOptions { filter, window: None, checkpoint_interval_multiplier: 1 };
        FilterRequest::from_options(options).unwrap()
    }

    /// Story: each of a thousand subscriptions compiled its own expression and kept some MiB as
    /// long as it was open.
    #[test]
    fn equal_expressions_are_shared_and_distinct_ones_limited() {
        let filters = FilterCache::default();
        let first = filters.get(&filter_request("a+b", false)).unwrap();
        assert!(Arc::ptr_eq(&first, &filters.get(&filter_request("a+b", false)).unwrap()));
        let by_type = filters.get(&filter_request("a+b", true)).unwrap();
        assert!(by_type.passes("s", "ab").unwrap() && !by_type.passes("ab", "s").unwrap());
        let of = |number: usize| filter_request(&format!("{number}$"), false);
        let mut others: Vec<_> =
            (2..FILTER_EXPRESSIONS_MAX).map(|number| filters.get(&of(number)).unwrap()).collect();
        let refused = filters.get(&of(FILTER_EXPRESSIONS_MAX)).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        // An expression in use may be shared, and filters that are only prefixes are not limited.
        filters.get(&of(2)).unwrap();
        let plain =
            (0..500).map(|number| filters.get(&filter_request(&format!("^{number}-"), false)));
        let plain: Vec<_> = plain.collect::<Result<_, _>>().unwrap();
        drop(plain);
        assert_eq!(
            filters.get(&filter_request("a(", false)).unwrap_err().code(),
            Code::InvalidArgument
        );
        others.pop();
        filters.get(&of(FILTER_EXPRESSIONS_MAX)).unwrap();
    }
}
