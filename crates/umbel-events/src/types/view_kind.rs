//! [`ViewKind`]: which views of a store there are, what they are called and which events are in
//! them.

/// A kind of view: what is made of the index and can be read like a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ViewKind {
    /// `$ce-CATEGORY`: the events of all streams whose names begin with the category and a hyphen.
    Category,
    /// `$et-TYPE`: the events of this type, whatever their stream.
    Type,
    /// `$streams`: the first event of each stream. There is one such view, and its name is empty.
    Streams,
}

/// What the name of a view of this kind begins with.
const CATEGORY_PREFIX: &str = "$ce-";
const TYPE_PREFIX: &str = "$et-";
const STREAMS: &str = "$streams";

impl ViewKind {
    /// FORMAT: the number by which the index knows the kind.
    pub(crate) fn number(self) -> u8 {
        match self {
            ViewKind::Category => 0,
            ViewKind::Type => 1,
            ViewKind::Streams => 2,
        }
    }

    /// What the view of this category or type is read as, such as `$ce-cart`.
    pub fn view(self, name: &str) -> String {
        match self {
            ViewKind::Category => format!("{CATEGORY_PREFIX}{name}"),
            ViewKind::Type => format!("{TYPE_PREFIX}{name}"),
            ViewKind::Streams => STREAMS.to_string(),
        }
    }

    /// Whether an event of this stream, type and revision is in the view of this kind and name.
    pub(crate) fn holds(self, name: &str, stream: &str, kind: &str, revision: u64) -> bool {
        match self {
            ViewKind::Category => category(stream) == Some(name),
            ViewKind::Type => kind == name,
            ViewKind::Streams => begins_stream(stream, revision),
        }
    }
}

/// The kind of a view and its category or type; `None` where this is the name of no view.
pub fn parse(view: &str) -> Option<(ViewKind, &str)> {
    if let Some(category) = view.strip_prefix(CATEGORY_PREFIX) {
        return Some((ViewKind::Category, category));
    }
    if let Some(kind) = view.strip_prefix(TYPE_PREFIX) {
        return Some((ViewKind::Type, kind));
    }
    (view == STREAMS).then_some((ViewKind::Streams, ""))
}

/// Whether this is the name of a view, which is made of the index: `$streams`, or what begins with
/// `$ce-` or `$et-`. It can be read, and its metadata written, but nobody can append to it.
pub fn is_view(name: &str) -> bool {
    parse(name).is_some()
}

/// The category of a stream: what stands before the first hyphen of its name. Streams whose names
/// begin with `$`, or have nothing there, are in none.
pub fn category(stream: &str) -> Option<&str> {
    if is_system(stream) {
        return None;
    }
    let (category, _) = stream.split_once('-')?;
    (!category.is_empty()).then_some(category)
}

/// Whether an event of this revision is the one that stands for its stream in `$streams`.
pub fn begins_stream(stream: &str, revision: u64) -> bool {
    revision == 0 && !is_system(stream)
}

fn is_system(stream: &str) -> bool {
    stream.starts_with('$')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_category_stands_before_the_first_hyphen() {
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
    fn views_are_known_by_their_names() {
        for kind in [ViewKind::Category, ViewKind::Type] {
            for name in ["cart", "a-b", ""] {
                assert_eq!(parse(&kind.view(name)), Some((kind, name)));
            }
        }
        assert_eq!(parse(&ViewKind::Streams.view("")), Some((ViewKind::Streams, "")));
        for name in ["$stream", "$streams2", "$ce", "cart-1", "$$ce-cart", "$all"] {
            assert!(!is_view(name), "{name}");
        }
    }

    #[test]
    fn a_view_holds_what_its_name_says() {
        assert!(ViewKind::Category.holds("cart", "cart-1", "Opened", 3));
        assert!(!ViewKind::Category.holds("cart", "carts-1", "Opened", 3));
        assert!(ViewKind::Type.holds("Opened", "$x", "Opened", 3));
        assert!(ViewKind::Streams.holds("", "a", "Opened", 0));
        assert!(!ViewKind::Streams.holds("", "a", "Opened", 1));
        assert!(!ViewKind::Streams.holds("", "$a", "Opened", 0));
    }
}
