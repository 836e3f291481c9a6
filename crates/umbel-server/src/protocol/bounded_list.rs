//! [`BoundedList`]: strings of a JSON list with few elements.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// Strings of a JSON list that has at most this many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BoundedList<const MAX: usize>(pub Vec<String>);

impl<'de, const MAX: usize> Deserialize<'de> for BoundedList<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ListVisitor)
    }
}

struct ListVisitor<const MAX: usize>;

impl<'de, const MAX: usize> Visitor<'de> for ListVisitor<MAX> {
    type Value = BoundedList<MAX>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a list of at most {MAX} strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::custom(format_args!(
                    "the list has more than {MAX} elements; use several requests"
                )));
            }
            list.push(element);
        }
        Ok(BoundedList(list))
    }
}
