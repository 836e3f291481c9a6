//! [`ViewKind`]: the kinds of views, their names, and the events in them.

/// Kind of a view: a list of events that the index maintains and that can be read like a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ViewKind {
    /// `$ce-CATEGORY`: the events of all streams whose names begin with the category and a hyphen.
    Category,
    /// `$et-TYPE`: the events of this type, whatever their stream.
    Type,
    /// `$streams`: the first event of each stream. A store has one view of this kind, whose name is
    /// empty.
    Streams,
}

/// Prefix of the name of a view of this kind.
const CATEGORY_PREFIX: &str = "$ce-";
const TYPE_PREFIX: &str = "$et-";
const STREAMS: &str = "$streams";
/// Prefix of the names of indexes.
const INDEX_PREFIX: &str = "$idx-";

impl ViewKind {
    /// FORMAT: the number of the kind in the index.
    pub(crate) fn to_number(self) -> u8 {
        match self {
            ViewKind::Category => 0,
            ViewKind::Type => 1,
            ViewKind::Streams => 2,
        }
    }

    /// Returns the name by which the view of this category or type is read, such as `$ce-cart`.
    pub fn view_name(self, name: &str) -> String {
        match self {
            ViewKind::Category => format!("{CATEGORY_PREFIX}{name}"),
            ViewKind::Type => format!("{TYPE_PREFIX}{name}"),
            ViewKind::Streams => STREAMS.to_string(),
        }
    }

    /// Whether an event of this stream, type and revision is in the view of this kind and name.
    pub(crate) fn contains(self, name: &str, stream: &str, kind: &str, revision: u64) -> bool {
        match self {
            ViewKind::Category => category(stream) == Some(name),
            ViewKind::Type => kind == name,
            ViewKind::Streams => begins_stream(stream, revision),
        }
    }
}

/// Parses a view name into its kind and its category or type; `None` if no view has this name.
pub fn parse(view: &str) -> Option<(ViewKind, &str)> {
    if let Some(category) = view.strip_prefix(CATEGORY_PREFIX) {
        return Some((ViewKind::Category, category));
    }
    if let Some(kind) = view.strip_prefix(TYPE_PREFIX) {
        return Some((ViewKind::Type, kind));
    }
    (view == STREAMS).then_some((ViewKind::Streams, ""))
}

/// Whether this is the name of a view, which the index maintains: `$streams`, or a name that begins
/// with `$ce-` or `$et-`. A view can be read and its metadata written, but appends to it are
/// refused.
pub fn is_view(name: &str) -> bool {
    parse(name).is_some()
}

/// Whether the name is reserved for indexes, since it begins with `$idx-`.
pub fn is_index_name(name: &str) -> bool {
    name.starts_with(INDEX_PREFIX)
}

/// Parses the name of an index into the view that has its events: `$idx-ce-` and a category, or
/// `$idx-et-` and a type. `None` if no index has this name.
pub fn parse_index(name: &str) -> Option<(ViewKind, &str)> {
    let rest = name.strip_prefix(INDEX_PREFIX)?;
    let category = rest.strip_prefix("ce-").map(|category| (ViewKind::Category, category));
    let index = category.or_else(|| Some((ViewKind::Type, rest.strip_prefix("et-")?)));
    index.filter(|(_, name)| !name.is_empty())
}

/// Returns the category of a stream: the part of its name before the first hyphen. Streams whose
/// names begin with `$` or a hyphen, or have no hyphen, have no category.
pub fn category(stream: &str) -> Option<&str> {
    if is_system(stream) {
        return None;
    }
    let (category, _) = stream.split_once('-')?;
    (!category.is_empty()).then_some(category)
}

/// Whether an event of this revision represents its stream in `$streams`.
pub fn begins_stream(stream: &str, revision: u64) -> bool {
    revision == 0 && !is_system(stream)
}

/// Whether only administrators and the server may append to the stream by default. Metadata streams
/// belong to them.
pub fn is_system(stream: &str) -> bool {
    stream.starts_with('$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn category_ends_at_the_first_hyphen() {
        let cases = [
            ("cart-42", Some("cart")),
            ("cart-42-a", Some("cart")),
            ("käse-1", Some("käse")),
            ("cart-", Some("cart")),
            ("a b-\n", Some("a b")),
            ("-42", None),
            ("cart", None),
            ("$cart-42", None),
            ("$$cart-42", None),
        ];
        for (stream, wanted) in cases {
            assert_eq!(category(stream), wanted, "{stream}");
        }
    }

    #[test]
    fn view_names_parse_to_view_kinds() {
        for kind in [ViewKind::Category, ViewKind::Type] {
            for name in ["cart", "a-b", ""] {
                assert_eq!(parse(&kind.view_name(name)), Some((kind, name)));
            }
        }
        assert_eq!(parse(&ViewKind::Streams.view_name("")), Some((ViewKind::Streams, "")));
        for name in ["$stream", "$streams2", "$ce", "cart-1", "$$ce-cart", "$all"] {
            assert!(!is_view(name), "{name}");
        }
    }

    #[test]
    fn index_names_parse_to_the_views_of_their_events() {
        assert_eq!(parse_index("$idx-ce-cart"), Some((ViewKind::Category, "cart")));
        assert_eq!(parse_index("$idx-et-Item-Added"), Some((ViewKind::Type, "Item-Added")));
        for name in ["$idx-", "$idx-all", "$idx-ce-", "$idx-et-", "$idx-ce", "$idx-user-a"] {
            assert!(is_index_name(name) && parse_index(name).is_none(), "{name}");
        }
        for name in ["$idx", "$ce-cart", "idx-ce-cart", "$$idx-ce-cart"] {
            assert!(!is_index_name(name) && parse_index(name).is_none(), "{name}");
        }
    }

    #[test]
    fn view_selects_events_by_its_name() {
        assert!(ViewKind::Category.contains("cart", "cart-1", "Opened", 3));
        assert!(!ViewKind::Category.contains("cart", "carts-1", "Opened", 3));
        assert!(ViewKind::Type.contains("Opened", "$x", "Opened", 3));
        assert!(ViewKind::Streams.contains("", "a", "Opened", 0));
        assert!(!ViewKind::Streams.contains("", "a", "Opened", 1));
        assert!(!ViewKind::Streams.contains("", "$a", "Opened", 0));
    }
}
