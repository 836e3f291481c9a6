//! [`Changes`]: what appends change in the index, one after the other in few pieces of memory that
//! are used again and again.

use std::ops::Range;

use crate::head::Head;
use crate::view_tails::Placed;

/// Memory that grew beyond so many bytes is given back.
const BYTES_KEPT: usize = 1 << 20;

/// One stream as an append leaves it.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Its name.
    pub stream: &'a str,
    /// The hash of its name.
    pub hash: u64,
    /// Its head.
    pub head: Head,
    /// Revisions and positions of events that are not in the index yet, and are not its last.
    pub entries: &'a [(u64, u64)],
    /// Whether the stream had no event before.
    pub is_new: bool,
    text: &'a str,
    placed: &'a [Kind],
}

impl<'a> Change<'a> {
    /// The events that change it, in order, as views know them.
    pub fn placed(&self) -> impl Iterator<Item = Placed<'a>> + use<'a> {
        let text = self.text;
        self.placed.iter().map(move |placed| Placed {
            position: placed.position,
            revision: placed.revision,
            kind: &text[placed.kind.clone()],
        })
    }
}

/// What changes, stream by stream.
#[derive(Debug, Default)]
pub struct Changes {
    /// Names and types.
    text: String,
    streams: Vec<Kept>,
    entries: Vec<(u64, u64)>,
    placed: Vec<Kind>,
}

#[derive(Debug)]
struct Kept {
    stream: Range<usize>,
    hash: u64,
    head: Head,
    is_new: bool,
    entries: Range<usize>,
    placed: Range<usize>,
}

/// An event with its type.
#[derive(Debug)]
struct Kind {
    position: u64,
    revision: u64,
    kind: Range<usize>,
}

/// How much was there at some moment.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    text: usize,
    streams: usize,
    entries: usize,
    placed: usize,
}

/// The change of a stream while it is put together.
#[derive(Debug)]
pub struct Growing<'a> {
    changes: &'a mut Changes,
    stream: Range<usize>,
    hash: u64,
    entries: usize,
    placed: usize,
}

impl Changes {
    /// Begins the change of a stream; it counts once [`Growing::finish`] was called.
    pub fn begin(&mut self, stream: &str, hash: u64) -> Growing<'_> {
        let start = self.text.len();
        self.text.push_str(stream);
        let (entries, placed) = (self.entries.len(), self.placed.len());
        Growing { stream: start..self.text.len(), hash, entries, placed, changes: self }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = Change<'_>> + Clone {
        self.since(0)
    }

    /// The stream of one of them.
    #[inline]
    pub fn stream(&self, index: usize) -> Option<&str> {
        Some(&self.text[self.streams.get(index)?.stream.clone()])
    }

    /// Those from the one with this index on.
    pub fn since(&self, first: usize) -> impl Iterator<Item = Change<'_>> + Clone {
        self.streams[first..].iter().map(|kept| self.change(kept))
    }

    // Not a call: what is given back through memory that was just written has to wait for it.
    #[inline(always)]
    fn change(&self, kept: &Kept) -> Change<'_> {
        Change {
            stream: &self.text[kept.stream.clone()],
            hash: kept.hash,
            head: kept.head,
            entries: &self.entries[kept.entries.clone()],
            is_new: kept.is_new,
            text: &self.text,
            placed: &self.placed[kept.placed.clone()],
        }
    }

    /// This moment.
    pub fn mark(&self) -> Mark {
        Mark {
            text: self.text.len(),
            streams: self.streams.len(),
            entries: self.entries.len(),
            placed: self.placed.len(),
        }
    }

    /// Forgets what came after a moment.
    pub fn take_back(&mut self, mark: Mark) {
        self.text.truncate(mark.text);
        self.streams.truncate(mark.streams);
        self.entries.truncate(mark.entries);
        self.placed.truncate(mark.placed);
    }

    /// Forgets all of them, but keeps their memory, unless it is much.
    pub fn clear(&mut self) {
        let bytes = self.text.capacity()
            + self.streams.capacity() * size_of::<Kept>()
            + self.entries.capacity() * size_of::<(u64, u64)>()
            + self.placed.capacity() * size_of::<Kind>();
        if bytes > BYTES_KEPT {
            *self = Changes::default();
        }
        self.take_back(Mark { text: 0, streams: 0, entries: 0, placed: 0 });
    }
}

impl Growing<'_> {
    /// An event that is not in the index yet and is not the stream's last.
    pub fn entry(&mut self, revision: u64, position: u64) {
        self.changes.entries.push((revision, position));
    }

    /// An event that changes the stream, as views know it.
    pub fn place(&mut self, placed: &Placed<'_>) {
        let Changes { text, placed: all, .. } = &mut *self.changes;
        let Placed { position, revision, kind } = *placed;
        // Most events are of the type of the one before.
        let same = all.last().filter(|last| text[last.kind.clone()] == *kind);
        let kind = match same {
            Some(last) => last.kind.clone(),
            None => {
                let start = text.len();
                text.push_str(kind);
                start..text.len()
            }
        };
        all.push(Kind { position, revision, kind });
    }

    /// The stream is left like this.
    pub fn finish(self, head: Head, is_new: bool) {
        let Growing { changes, stream, hash, entries, placed } = self;
        let entries = entries..changes.entries.len();
        let placed = placed..changes.placed.len();
        changes.streams.push(Kept { stream, hash, head, is_new, entries, placed });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(id: u64) -> Head {
        Head { id, last_revision: 0, last_position: id, is_tombstoned: false, settings: None }
    }

    fn add(changes: &mut Changes, stream: &str, kinds: &[&str]) {
        let mut growing = changes.begin(stream, stream.len() as u64);
        for (revision, kind) in (0..).zip(kinds) {
            growing.entry(revision, 96 + revision);
            growing.place(&Placed { position: 96 + revision, revision, kind });
        }
        growing.finish(head(7), kinds.len() > 1);
    }

    fn told(changes: &Changes) -> Vec<(String, usize, Vec<String>)> {
        let kinds = |change: &Change<'_>| change.placed().map(|p| p.kind.to_string()).collect();
        let told =
            |change: Change<'_>| (change.stream.to_string(), change.entries.len(), kinds(&change));
        changes.iter().map(told).collect()
    }

    #[test]
    fn changes_come_back_in_order_also_after_some_were_taken_back() {
        let mut changes = Changes::default();
        add(&mut changes, "cart-1", &["A", "A", "B"]);
        let mark = changes.mark();
        add(&mut changes, "cart-2", &["B"]);
        assert_eq!(changes.since(1).map(|change| change.hash).collect::<Vec<_>>(), [6]);
        assert_eq!((changes.stream(1), changes.stream(2)), (Some("cart-2"), None));
        let both = told(&changes);
        assert_eq!(both[0], ("cart-1".into(), 3, vec!["A".into(), "A".into(), "B".into()]));
        assert_eq!(both[1], ("cart-2".into(), 1, vec!["B".into()]));
        changes.take_back(mark);
        assert_eq!(told(&changes), both[..1]);
        add(&mut changes, "", &["", "C"]);
        assert_eq!(told(&changes)[1], (String::new(), 2, vec![String::new(), "C".into()]));
        changes.clear();
        assert!(changes.is_empty() && changes.iter().next().is_none());
    }

    #[test]
    fn much_memory_is_given_back() {
        let mut changes = Changes::default();
        add(&mut changes, &"x".repeat(2 * BYTES_KEPT), &["A"]);
        changes.clear();
        assert_eq!(changes.text.capacity(), 0);
        add(&mut changes, "few", &["A"]);
        changes.clear();
        assert!(changes.text.capacity() > 0 && changes.is_empty());
    }
}
