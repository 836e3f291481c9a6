//! [`NameList`]: sorted names of users and groups in two allocations.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, SeqAccess, Visitor};

/// Bytes of the length before each name.
const LENGTH_BYTES: usize = 2;

/// Sorted names, each once. Their memory is at most three times that of a JSON list of them.
#[derive(Debug, Clone, Default)]
pub struct NameList {
    /// The names, each after its length.
    names: Box<[u8]>,
    /// Start of each name, in the names' order.
    starts: Box<[u32]>,
}

impl NameList {
    /// Reads a JSON list of strings; no names where a value is no string. Names that are longer
    /// than any user's are left out.
    pub fn from_json_list(json: &str) -> NameList {
        let count = serde_json::Deserializer::from_str(json).deserialize_seq(ElementCount);
        let Ok(count) = count else { return NameList::default() };
        let mut list =
            Builder { names: Vec::with_capacity(json.len()), starts: Vec::with_capacity(count) };
        match serde_json::Deserializer::from_str(json).deserialize_seq(ListVisitor(&mut list)) {
            Ok(()) => list.build(),
            Err(_) => NameList::default(),
        }
    }

    /// Whether the list has this name.
    pub fn contains(&self, name: &str) -> bool {
        let position =
            self.starts.binary_search_by(|at| name_at(&self.names, *at).cmp(name.as_bytes()));
        position.is_ok()
    }

    /// The names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let names = self.starts.iter().map(|at| name_at(&self.names, *at));
        names.map(|name| std::str::from_utf8(name).unwrap_or_default())
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> usize {
        self.names.len() + size_of_val(&*self.starts)
    }
}

impl PartialEq for NameList {
    fn eq(&self, other: &NameList) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for NameList {}

impl<'a> FromIterator<&'a str> for NameList {
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> NameList {
        let mut list = Builder { names: Vec::new(), starts: Vec::new() };
        names.into_iter().for_each(|name| list.push(name));
        list.build()
    }
}

fn name_at(names: &[u8], at: u32) -> &[u8] {
    let rest = names.get(at as usize..).unwrap_or_default();
    let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else { return &[] };
    rest.get(..usize::from(u16::from_le_bytes(*length))).unwrap_or_default()
}

struct Builder {
    names: Vec<u8>,
    starts: Vec<u32>,
}

impl Builder {
    fn push(&mut self, name: &str) {
        let (Ok(length), Ok(start)) = (u16::try_from(name.len()), u32::try_from(self.names.len()))
        else {
            return;
        };
        self.starts.push(start);
        self.names.extend_from_slice(&length.to_le_bytes());
        self.names.extend_from_slice(name.as_bytes());
    }

    fn build(self) -> NameList {
        let Builder { names, mut starts } = self;
        starts.sort_unstable_by(|one, other| name_at(&names, *one).cmp(name_at(&names, *other)));
        starts.dedup_by(|one, other| name_at(&names, *one) == name_at(&names, *other));
        NameList { names: names.into(), starts: starts.into() }
    }
}

/// Counts the elements of a list.
struct ElementCount;

impl<'de> Visitor<'de> for ElementCount {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<usize, A::Error> {
        let mut count = 0;
        while elements.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}

struct ListVisitor<'b>(&'b mut Builder);

impl<'de> Visitor<'de> for ListVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element_seed(NameSeed(&mut *self.0))?.is_some() {}
        Ok(())
    }
}

/// Adds a name to a list.
struct NameSeed<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for NameSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameSeed<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<(), E> {
        self.0.push(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found() {
        let list = NameList::from_json_list(r#"["b","a\n","", "b" ,"c\u00e4"]"#);
        assert_eq!(list.iter().collect::<Vec<_>>(), ["", "a\n", "b", "cä"]);
        assert!(list.contains("b") && list.contains("") && !list.contains("c"));
        assert_eq!(["b", "cä", "", "a\n", ""].into_iter().collect::<NameList>(), list);
        let long = format!(r#"["a","{}"]"#, "x".repeat(1 << 16));
        assert_eq!(NameList::from_json_list(&long), ["a"].into_iter().collect());
        for other in [r#"["a",7]"#, r#"["a",["b"]]"#, "[null]", "[]"] {
            assert_eq!(NameList::from_json_list(other), NameList::default(), "{other}");
        }
    }
}
