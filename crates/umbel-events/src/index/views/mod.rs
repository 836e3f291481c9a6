//! [`Views`]: the numbers of a store's events in its views, `$ce-…`, `$et-…` and `$streams`.
//!
//! An event gets its numbers when it goes into the index, in memory, before it is visible: so a
//! view is never behind. A flush of the index freezes what came since the last one and puts it
//! into a keyspace, blocks of it under a view's first position and the rest into the view's head.
//! Whoever reads adds up three parts: the keyspace, what is frozen, what came since.
//!
//! INVARIANT: a part that is frozen goes into the keyspace as a whole, with the marker, and stays
//! readable until it is there. Blocks are never changed; a head only grows. So a head that
//! reaches as far as the first event of a part holds all of that part.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use umbel::{Db, Durability, Keyspace};
use umbel_base::{Error, Result};
use umbel_filter::{HashDomain, HashSecret};

use crate::lock::locked;
use crate::names;
use crate::seldom::Seldom;
use crate::view_block::{Block, ViewHead};
use crate::view_name::ViewKind;
use crate::view_tails::{Placed, Tail, Tails, Touched};

/// From so many bytes in memory on, a flush is asked for.
const ASK_BYTES: usize = 8 << 20;
/// From so many on, whoever appends waits for it.
const FULL_BYTES: usize = 32 << 20;

#[cfg(feature = "canary")]
const TAIL_FORGOTTEN: umbel_base::canary::Switch = umbel_base::canary::Switch::ViewTailForgotten;

const HEAD_KEY: u8 = b'h';
const BLOCK_KEY: u8 = b'b';
/// What the hash of a view's name is used for: to find it in memory.
const HASHES: HashDomain = HashDomain::Other(1);
/// What the ids of links are made with.
const LINKS: HashDomain = HashDomain::Other(2);

/// The numbers of a store's events in its views.
#[derive(Debug)]
pub struct Views {
    keyspace: Keyspace,
    folder: PathBuf,
    secret: HashSecret,
    /// What the ids of links are made with.
    pub links: [u8; 16],
    live: Mutex<Live>,
    /// How often something frozen went into the keyspace; changed under the lock of `live`.
    written: AtomicU64,
    is_full: AtomicBool,
    /// How many events were added that may change which others can be read.
    hiding: AtomicU64,
    /// Metadata of streams.
    pub metadata: Seldom,
    /// Streams that were tombstoned.
    pub tombstones: Seldom,
}

#[derive(Debug)]
struct Live {
    active: Tails,
    frozen: Option<Arc<Tails>>,
    /// Whether a flush was asked for since the last one.
    has_asked: bool,
}

/// A view at one moment, in its three parts.
struct Seen<'a> {
    head: &'a ViewHead,
    frozen: Option<&'a Tail>,
    active: Option<&'a Tail>,
}

impl Seen<'_> {
    /// The parts in memory, each with how many numbers were given before it, the newest first.
    fn tails(&self) -> impl Iterator<Item = (u64, &Tail)> {
        let base = self.head.numbers;
        let behind = base + self.frozen.map_or(0, |tail| tail.numbers);
        let active = self.active.map(|tail| (behind, tail));
        active.into_iter().chain(self.frozen.map(|tail| (base, tail)))
    }

    /// Entries that are in no block of their own, as [`Block::take_page`].
    fn page(&self, way: (u64, bool), most: usize) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        if way.1 {
            self.tails().for_each(|(base, tail)| tail.take_page(base, way, most, &mut found));
            self.head.open.take_page(0, way, most, &mut found);
        } else {
            self.head.open.take_page(0, way, most, &mut found);
            let mut tails: Vec<_> = self.tails().collect();
            tails.reverse();
            tails.iter().for_each(|(base, tail)| tail.take_page(*base, way, most, &mut found));
        }
        found
    }

    /// How many numbers were given up to the last event at `position` or before it; `None` where
    /// that is in a block of its own.
    fn numbers_through(&self, position: u64) -> Option<u64> {
        if let Some((base, tail)) = self.tails().find(|(_, tail)| tail.first_position <= position) {
            return Some(base + tail.numbers_through(position));
        }
        match self.head.last_position <= position {
            true => Some(self.head.numbers),
            false => self.head.open.numbers_through(position),
        }
    }

    /// How many numbers were given, and how many of them to events that were gone.
    fn counts(&self) -> (u64, u64) {
        let head = (self.head.numbers, self.head.skipped);
        let add = |sum: (u64, u64), tail: &Tail| (sum.0 + tail.numbers, sum.1 + tail.skipped);
        self.tails().fold(head, |sum, (_, tail)| add(sum, tail))
    }
}

fn head_key(kind: ViewKind, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(2 + name.len());
    key.extend([HEAD_KEY, kind.number()]);
    key.extend(name.as_bytes());
    key
}

fn block_key(kind: ViewKind, start: u64, first: u64) -> [u8; 18] {
    let mut key = [0; 18];
    key[..2].copy_from_slice(&[BLOCK_KEY, kind.number()]);
    key[2..10].copy_from_slice(&start.to_be_bytes());
    key[10..].copy_from_slice(&first.to_be_bytes());
    key
}

impl Views {
    /// The views in this keyspace, which holds everything up to `through`. `seed` is the store's.
    pub fn new(db: &Db, keyspace: Keyspace, seed: [u8; 16], through: u64) -> Views {
        let active = Tails::new(through);
        Views {
            keyspace,
            folder: db.path().to_path_buf(),
            secret: HashSecret::from_seed(HASHES.seed(seed)),
            links: LINKS.seed(seed),
            live: Mutex::new(Live { active, frozen: None, has_asked: false }),
            written: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            hiding: AtomicU64::new(0),
            metadata: Seldom::default(),
            tombstones: Seldom::default(),
        }
    }

    /// The keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// Gives numbers to events, stream by stream, in the order of their positions; events that
    /// have theirs already are left out. Says whether the index should be flushed soon.
    /// REQUIRES: whoever puts events into the index does this, before they are visible.
    pub fn add<'a, E>(&self, streams: impl Iterator<Item = (&'a str, E)>) -> bool
    where
        E: Iterator<Item = Placed<'a>>,
    {
        let mut live = locked(&self.live);
        let before = live.active.through;
        for (stream, events) in streams {
            let events = events.skip_while(|event| event.position <= before);
            let Some(last) = live.active.add(&self.secret, stream, events) else { continue };
            live.active.through = last.position;
            self.note_hiding(stream, &last);
        }
        if live.active.bytes < ASK_BYTES {
            return false;
        }
        self.is_full.store(live.active.bytes >= FULL_BYTES, Ordering::Release);
        !std::mem::replace(&mut live.has_asked, true)
    }

    /// Notes an event that may change which events of streams can be read.
    fn note_hiding(&self, stream: &str, event: &Placed<'_>) {
        let holder = match () {
            () if names::subject(stream).is_some() => &self.metadata,
            () if *event.kind == *names::TOMBSTONE_TYPE => &self.tombstones,
            () => return,
        };
        holder.note();
        self.hiding.fetch_add(1, Ordering::Release);
    }

    /// Gives numbers to events that are gone from the log, by how many of them each view had; the
    /// last of them stood at `position`. REQUIRES: as [`Views::add`].
    pub fn skip<'a>(&self, position: u64, gone: impl Iterator<Item = ((ViewKind, &'a str), u64)>) {
        let mut live = locked(&self.live);
        if position > live.active.through {
            gone.for_each(|(view, count)| {
                live.active.skip(&self.secret, view, count, position);
            });
            live.active.through = position;
        }
    }

    /// Whether so much is in memory that the index has to be flushed before anything is appended.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Whether the index should be flushed soon.
    pub fn wants_flush(&self) -> bool {
        locked(&self.live).active.bytes >= ASK_BYTES
    }

    /// Bytes of memory that what is not in the keyspace takes, about.
    pub fn bytes(&self) -> usize {
        let live = locked(&self.live);
        live.active.bytes + live.frozen.as_ref().map_or(0, |frozen| frozen.bytes)
    }

    /// A number that is another one after anything happened that may hide events of streams.
    pub fn hiding(&self) -> u64 {
        self.hiding.load(Ordering::Acquire)
    }

    /// Puts into the keyspace what came since the last time. Returns the position up to which it
    /// holds everything then; `marker` makes the bytes that say so. REQUIRES: nobody else does the
    /// same.
    pub fn write(&self, db: &Db, marker: &mut dyn FnMut(u64) -> [u8; 16]) -> Result<u64> {
        let left = locked(&self.live).frozen.clone();
        if let Some(left) = left {
            self.write_frozen(db, &left, marker(left.through))?;
        }
        let frozen = {
            let mut live = locked(&self.live);
            let through = live.active.through;
            if live.active.is_empty() {
                return Ok(through);
            }
            let frozen = Arc::new(std::mem::replace(&mut live.active, Tails::new(through)));
            live.frozen = Some(Arc::clone(&frozen));
            live.has_asked = false;
            self.is_full.store(false, Ordering::Release);
            frozen
        };
        self.write_frozen(db, &frozen, marker(frozen.through))?;
        Ok(frozen.through)
    }

    fn write_frozen(&self, db: &Db, frozen: &Tails, marker: [u8; 16]) -> Result<()> {
        let mut batch = db.batch();
        let mut value = Vec::new();
        for view in frozen.views() {
            let mut head = self.head(view.kind, &view.name)?.unwrap_or_default();
            if head.last_position >= view.tail.first_position {
                continue;
            }
            take_in(&mut head, view, |start, block| {
                value.clear();
                block.encode(start, &mut value);
                batch.put(&self.keyspace, block_key(view.kind, start, block.first), &value);
            });
            value.clear();
            head.encode(&mut value);
            batch.put(&self.keyspace, head_key(view.kind, &view.name), &value);
        }
        batch.set_marker(&self.keyspace, marker);
        batch.commit(Durability::Buffered)?;
        let mut live = locked(&self.live);
        live.frozen = None;
        self.written.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn head(&self, kind: ViewKind, name: &str) -> Result<Option<ViewHead>> {
        match self.keyspace.get_with(head_key(kind, name), ViewHead::decode)? {
            None => Ok(None),
            Some(Some(head)) => Ok(Some(head)),
            Some(None) => Err(self.malformed(kind, name)),
        }
    }

    /// Hands a view as it is at one moment to `look`, which is to be short.
    fn look<R>(&self, kind: ViewKind, name: &str, look: impl Fn(&Seen<'_>) -> R) -> Result<R> {
        loop {
            let written = self.written.load(Ordering::Acquire);
            let head = self.head(kind, name)?.unwrap_or_default();
            let live = locked(&self.live);
            if self.written.load(Ordering::Acquire) != written {
                // The head may lack what is in memory no more.
                continue;
            }
            let frozen = live.frozen.as_ref();
            let frozen = frozen.and_then(|tails| tails.tail(&self.secret, kind, name));
            let frozen = frozen.filter(|tail| tail.first_position > head.last_position);
            let active = live.active.tail(&self.secret, kind, name);
            #[cfg(feature = "canary")]
            let active = active.filter(|_| head.numbers == 0 || !TAIL_FORGOTTEN.is_on());
            return Ok(look(&Seen { head: &head, frozen, active }));
        }
    }

    /// Numbers and positions of entries of a view, from the number `from` on in order, or with
    /// `backwards` from `from` down. At least one where there is any, at most `most`.
    pub fn positions(
        &self,
        kind: ViewKind,
        name: &str,
        mut from: u64,
        most: usize,
        backwards: bool,
    ) -> Result<Vec<(u64, u64)>> {
        loop {
            let (start, below, page) = self.look(kind, name, |seen| {
                let below = seen.head.open_from();
                let is_in_block = !backwards && from < below && seen.head.start > 0;
                let page =
                    if is_in_block { Vec::new() } else { seen.page((from, backwards), most) };
                (seen.head.start, below, page)
            })?;
            let is_done = !page.is_empty() || start == 0 || (!backwards && from >= below);
            if is_done || below == 0 {
                return Ok(page);
            }
            let mut found = Vec::new();
            let block = self.block_with(kind, name, start, from.min(below - 1))?;
            if let Some(block) = block {
                block.take_page(0, (from, backwards), most, &mut found);
            }
            if !found.is_empty() || backwards {
                return Ok(found);
            }
            // What was asked for lies in a gap behind that block.
            let behind = block_key(kind, start, from + 1)..block_key(kind, start, below);
            match self.blocks(kind, name, start, self.keyspace.range(behind)).next() {
                Some(block) => block?.take_page(0, (from, false), most, &mut found),
                None => from = below,
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    /// The block that begins with this number, or the last one before.
    fn block_with(
        &self,
        kind: ViewKind,
        name: &str,
        start: u64,
        number: u64,
    ) -> Result<Option<Block>> {
        let range = block_key(kind, start, 0)..=block_key(kind, start, number);
        self.blocks(kind, name, start, self.keyspace.range(range).rev()).next().transpose()
    }

    fn blocks(
        &self,
        kind: ViewKind,
        name: &str,
        start: u64,
        found: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> impl Iterator<Item = Result<Block>> {
        found.map(move |entry| {
            let (key, value) = entry?;
            let first = key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            let block = first.and_then(|first| Block::decode(first, start, &value));
            block.ok_or_else(|| self.malformed(kind, name))
        })
    }

    /// How many numbers a view had given when the event at `position` was the last one: the next
    /// entry behind it has this number or, where events are gone, a higher one.
    pub fn numbers_through(&self, kind: ViewKind, name: &str, position: u64) -> Result<u64> {
        let (start, below, numbers) = self.look(kind, name, |seen| {
            (seen.head.start, seen.head.open_from(), seen.numbers_through(position))
        })?;
        if let Some(numbers) = numbers {
            return Ok(numbers);
        }
        if start == 0 || start > position {
            return Ok(0);
        }
        let (mut low, mut high, mut last) = (0, below, None);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.block_with(kind, name, start, middle)? {
                Some(block) if block.first_position > position => high = block.first,
                block => {
                    low = middle + 1;
                    last = block.or(last);
                }
            }
        }
        Ok(last.and_then(|block| block.numbers_through(position)).unwrap_or(0))
    }

    /// How many events are in a view.
    pub fn entries(&self, kind: ViewKind, name: &str) -> Result<u64> {
        let (numbers, skipped) = self.look(kind, name, |seen| seen.counts())?;
        Ok(numbers - skipped)
    }

    /// How many events up to this position are in a view.
    pub fn entries_through(&self, kind: ViewKind, name: &str, position: u64) -> Result<u64> {
        // Events that were gone were so before the store was open.
        let (_, skipped) = self.look(kind, name, |seen| seen.counts())?;
        Ok(self.numbers_through(kind, name, position)?.saturating_sub(skipped))
    }

    /// Categories or types that begin with `prefix`, in order of their bytes, behind the name
    /// `after`, with how many events each has; at most `most` of them.
    pub fn list(
        &self,
        kind: ViewKind,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Result<Vec<(String, u64)>> {
        // Memory first: what leaves it meanwhile is in the keyspace then.
        let mut names = self.names_in_memory(kind, prefix, after, most);
        let mut start = head_key(kind, after.unwrap_or(prefix));
        if after.is_some() {
            start.push(0);
        }
        let prefix = head_key(kind, prefix);
        for entry in self.keyspace.range(start..).take(most) {
            let (key, _) = entry?;
            if !key.starts_with(&prefix) {
                break;
            }
            let name = String::from_utf8(key[2..].to_vec());
            names.push(name.map_err(|_| self.malformed(kind, &String::from_utf8_lossy(&key)))?);
        }
        names.sort_unstable();
        names.dedup();
        names.truncate(most);
        let counted = |name: String| Ok((name.clone(), self.entries(kind, &name)?));
        names.into_iter().map(counted).collect()
    }

    fn names_in_memory(
        &self,
        kind: ViewKind,
        prefix: &str,
        after: Option<&str>,
        most: usize,
    ) -> Vec<String> {
        let live = locked(&self.live);
        let all = live.frozen.iter().flat_map(|tails| tails.views()).chain(live.active.views());
        let is_meant =
            |name: &&str| after.is_none_or(|after| *name > after) && name.starts_with(prefix);
        let of_kind = all.filter(|view| view.kind == kind).map(|view| &*view.name);
        let mut names: Vec<&str> = of_kind.filter(is_meant).collect();
        // A name may be there twice.
        let wanted = most.saturating_mul(2);
        if wanted < names.len() {
            names.select_nth_unstable(wanted);
            names.truncate(wanted);
        }
        names.into_iter().map(str::to_string).collect()
    }

    /// The error where the index says of a view what cannot be.
    pub fn malformed(&self, kind: ViewKind, name: &str) -> Error {
        let reason = format!(
            "the index of the view '{}' is malformed; with this folder removed, the index is made \
             anew from the event log",
            kind.view(name).escape_debug()
        );
        Error::corruption(&self.folder, 0, reason)
    }
}

/// Adds to a head what its view was given since, and hands the blocks that are full then to `full`,
/// with the position by which they are known.
fn take_in(head: &mut ViewHead, view: &Touched, mut full: impl FnMut(u64, &Block)) {
    let base = head.numbers;
    for (number, position) in view.tail.entries() {
        if head.start == 0 {
            head.start = position;
        }
        if head.open.is_full() {
            let block = std::mem::take(&mut head.open);
            #[cfg(feature = "canary")]
            let block = block.planted();
            full(head.start, &block);
        }
        head.open.push(base + number, position);
    }
    head.numbers += view.tail.numbers;
    head.skipped += view.tail.skipped;
    head.last_position = view.tail.last_position;
}

#[cfg(test)]
#[path = "views_tests.rs"]
mod tests;
