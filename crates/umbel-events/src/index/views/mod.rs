//! [`Views`]: numbers of a store's events in its views, `$ce-…`, `$et-…` and `$streams`.
//!
//! An event gets its numbers in memory when it is indexed, before it is visible. So a view never
//! lags. A flush of the index freezes the entries since the last flush and writes them to a
//! keyspace. Full blocks are stored under the position of the view's first event, and the remaining
//! entries in the view's head. A read combines three parts: the keyspace, the frozen entries, and
//! the entries added after the freeze.
//!
//! INVARIANT: frozen entries are written to the keyspace as a whole, with the marker, and stay
//! readable in memory until the keyspace has them. Blocks never change; a head only grows. So a
//! head that reaches the first event of frozen entries holds all of them.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel::{Db, Durability, Keyspace};
use umbel_base::{Error, Result};
use umbel_filter::{HashDomain, HashSecret};

use crate::index::unflushed_views::{
    IndexedEvent, UnflushedEntries, UnflushedView, UnflushedViews,
};
use crate::index::view_block::{ViewBlock, ViewHead};
use crate::primitives::lazy_flag::LazyFlag;
use crate::types::stream_names;
use crate::types::view_kind::ViewKind;

/// Minimum bytes in memory at which a flush is requested.
const FLUSH_REQUEST_BYTES: usize = 8 << 20;
/// Minimum bytes in memory at which an append waits for a flush.
const STALL_BYTES: usize = 32 << 20;

const HEAD_KEY: u8 = b'h';
const BLOCK_KEY: u8 = b'b';
/// Domain of the hash of a view's name; the hash finds the view in memory.
const NAME_HASH_DOMAIN: HashDomain = HashDomain::Other(1);
/// Domain of the ids of links.
const LINK_ID_DOMAIN: HashDomain = HashDomain::Other(2);

/// Numbers of a store's events in its views.
#[derive(Debug)]
pub struct Views {
    keyspace: Keyspace,
    folder: PathBuf,
    secret: HashSecret,
    /// Seed of the ids of links.
    pub link_seed: [u8; 16],
    live: Mutex<LiveEntries>,
    /// Count of flushes to the keyspace; changed under the lock of `live`.
    flush_count: AtomicU64,
    is_full: AtomicBool,
    /// Count of added events that may hide other events.
    hiding_epoch: AtomicU64,
    /// Whether the store has stream metadata.
    pub metadata: LazyFlag,
    /// Whether the store has tombstoned streams.
    pub tombstones: LazyFlag,
}

#[derive(Debug)]
struct LiveEntries {
    active: UnflushedViews,
    frozen: Option<Arc<UnflushedViews>>,
    /// Whether a flush was requested since the last one.
    has_requested_flush: bool,
}

/// Snapshot of a view, in its three parts.
struct ViewSnapshot<'a> {
    head: &'a ViewHead,
    frozen: Option<&'a UnflushedEntries>,
    active: Option<&'a UnflushedEntries>,
}

impl ViewSnapshot<'_> {
    /// Returns the two parts in memory, newest first, each with the count of numbers before the
    /// part.
    fn unflushed(&self) -> impl Iterator<Item = (u64, &UnflushedEntries)> {
        let base = self.head.number_count;
        let active_base = base + self.frozen.map_or(0, |tail| tail.number_count);
        let active = self.active.map(|tail| (active_base, tail));
        active.into_iter().chain(self.frozen.map(|tail| (base, tail)))
    }

    /// Like [`ViewBlock::read_page`], for the entries that are not in a separate block.
    fn read_page(&self, start: (u64, bool), limit: usize) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        if start.1 {
            self.unflushed()
                .for_each(|(base, tail)| tail.read_page(base, start, limit, &mut found));
            self.head.open_block.read_page(0, start, limit, &mut found);
        } else {
            self.head.open_block.read_page(0, start, limit, &mut found);
            let mut tails: Vec<_> = self.unflushed().collect();
            tails.reverse();
            tails.iter().for_each(|(base, tail)| tail.read_page(*base, start, limit, &mut found));
        }
        found
    }

    /// Count of numbers up to the last event at or before `position`; `None` if the event at
    /// `position` is in a separate block.
    fn count_through(&self, position: u64) -> Option<u64> {
        if let Some((base, tail)) =
            self.unflushed().find(|(_, tail)| tail.first_position <= position)
        {
            return Some(base + tail.count_through(position));
        }
        match self.head.last_position <= position {
            true => Some(self.head.number_count),
            false => self.head.open_block.count_through(position),
        }
    }

    /// Returns the count of all numbers, and the count of the numbers of removed events.
    fn counts(&self) -> (u64, u64) {
        let head = (self.head.number_count, self.head.skipped);
        let add = |sum: (u64, u64), tail: &UnflushedEntries| {
            (sum.0 + tail.number_count, sum.1 + tail.skipped)
        };
        self.unflushed().fold(head, |sum, (_, tail)| add(sum, tail))
    }
}

fn head_key(kind: ViewKind, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(2 + name.len());
    key.extend([HEAD_KEY, kind.to_number()]);
    key.extend(name.as_bytes());
    key
}

fn block_key(kind: ViewKind, start: u64, first: u64) -> [u8; 18] {
    let mut key = [0; 18];
    key[..2].copy_from_slice(&[BLOCK_KEY, kind.to_number()]);
    key[2..10].copy_from_slice(&start.to_be_bytes());
    key[10..].copy_from_slice(&first.to_be_bytes());
    key
}

impl Views {
    /// Creates the views of this keyspace, which holds everything up to `through`. `seed` is the
    /// store's.
    pub fn new(db: &Db, keyspace: Keyspace, seed: [u8; 16], through: u64) -> Views {
        let active = UnflushedViews::new(through);
        Views {
            keyspace,
            folder: db.path().to_path_buf(),
            secret: HashSecret::from_seed(NAME_HASH_DOMAIN.seed(seed)),
            link_seed: LINK_ID_DOMAIN.seed(seed),
            live: Mutex::new(LiveEntries { active, frozen: None, has_requested_flush: false }),
            flush_count: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            hiding_epoch: AtomicU64::new(0),
            metadata: LazyFlag::default(),
            tombstones: LazyFlag::default(),
        }
    }

    /// Returns the keyspace.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// Numbers events, stream by stream, in the order of their positions; events that already have
    /// numbers are skipped. Returns whether the index should be flushed soon. REQUIRES: the thread
    /// that indexes the events calls this before they are visible.
    pub fn add_events<'a, E>(&self, streams: impl Iterator<Item = (&'a str, E)>) -> bool
    where
        E: Iterator<Item = IndexedEvent<'a>>,
    {
        let mut live = self.live.lock().ignore_poison();
        let before = live.active.through;
        for (stream, events) in streams {
            let events = events.skip_while(|event| event.position <= before);
            let Some(last) = live.active.add(&self.secret, stream, events) else { continue };
            live.active.through = last.position;
            self.note_hiding(stream, &last);
        }
        if live.active.bytes < FLUSH_REQUEST_BYTES {
            return false;
        }
        self.is_full.store(live.active.bytes >= STALL_BYTES, Ordering::Release);
        !std::mem::replace(&mut live.has_requested_flush, true)
    }

    /// Records an event that may hide events of streams.
    fn note_hiding(&self, stream: &str, event: &IndexedEvent<'_>) {
        let holder = match () {
            () if stream_names::metadata_subject(stream).is_some() => &self.metadata,
            () if *event.kind == *stream_names::TOMBSTONE_TYPE => &self.tombstones,
            () => return,
        };
        holder.set_present();
        self.hiding_epoch.fetch_add(1, Ordering::Release);
    }

    /// Numbers events that were removed from the log, by their count in each view. The last removed
    /// event was at `position`. REQUIRES: the same as [`Views::add_events`].
    pub fn skip_removed<'a>(
        &self,
        position: u64,
        removed: impl Iterator<Item = ((ViewKind, &'a str), u64)>,
    ) {
        let mut live = self.live.lock().ignore_poison();
        if position > live.active.through {
            removed.for_each(|(view, count)| {
                live.active.skip(&self.secret, view, count, position);
            });
            live.active.through = position;
        }
    }

    /// Whether unflushed entries take so much memory that the index must be flushed before an
    /// append.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Whether the index should be flushed soon.
    pub fn needs_flush(&self) -> bool {
        self.live.lock().ignore_poison().active.bytes >= FLUSH_REQUEST_BYTES
    }

    /// Approximate memory of the entries that are not in the keyspace, in bytes.
    pub fn bytes(&self) -> usize {
        let live = self.live.lock().ignore_poison();
        live.active.bytes + live.frozen.as_ref().map_or(0, |frozen| frozen.bytes)
    }

    /// Returns a number that changes after each event that may hide events of streams.
    pub fn hiding_epoch(&self) -> u64 {
        self.hiding_epoch.load(Ordering::Acquire)
    }

    /// Writes the entries since the last flush to the keyspace. Returns the position up to which
    /// the keyspace then holds everything; `marker` encodes this position. REQUIRES: no other
    /// thread flushes the views.
    pub fn flush(&self, db: &Db, marker: &mut dyn FnMut(u64) -> [u8; 16]) -> Result<u64> {
        let left = self.live.lock().ignore_poison().frozen.clone();
        if let Some(left) = left {
            self.flush_frozen(db, &left, marker(left.through))?;
        }
        let frozen = {
            let mut live = self.live.lock().ignore_poison();
            let through = live.active.through;
            if live.active.is_empty() {
                return Ok(through);
            }
            let frozen =
                Arc::new(std::mem::replace(&mut live.active, UnflushedViews::new(through)));
            live.frozen = Some(Arc::clone(&frozen));
            live.has_requested_flush = false;
            self.is_full.store(false, Ordering::Release);
            frozen
        };
        self.flush_frozen(db, &frozen, marker(frozen.through))?;
        Ok(frozen.through)
    }

    fn flush_frozen(&self, db: &Db, frozen: &UnflushedViews, marker: [u8; 16]) -> Result<()> {
        let mut batch = db.batch();
        let mut value = Vec::new();
        for view in frozen.views() {
            let mut head = self.head(view.kind, &view.name)?.unwrap_or_default();
            if head.last_position >= view.entries.first_position {
                continue;
            }
            merge_into_head(&mut head, view, |start, block| {
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
        let mut live = self.live.lock().ignore_poison();
        live.frozen = None;
        self.flush_count.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn head(&self, kind: ViewKind, name: &str) -> Result<Option<ViewHead>> {
        match self.keyspace.get_with(head_key(kind, name), ViewHead::decode)? {
            None => Ok(None),
            Some(Some(head)) => Ok(Some(head)),
            Some(None) => Err(self.corruption(kind, name)),
        }
    }

    /// Passes a snapshot of a view to `visit`, which must return soon.
    fn with_snapshot<R>(
        &self,
        kind: ViewKind,
        name: &str,
        visit: impl Fn(&ViewSnapshot<'_>) -> R,
    ) -> Result<R> {
        loop {
            let written = self.flush_count.load(Ordering::Acquire);
            let head = self.head(kind, name)?.unwrap_or_default();
            let live = self.live.lock().ignore_poison();
            if self.flush_count.load(Ordering::Acquire) != written {
                // The head may lack entries that were flushed from memory meanwhile.
                continue;
            }
            let (frozen, active) = self.entries_after(&head, &live, (kind, name));
            return Ok(visit(&ViewSnapshot { head: &head, frozen, active }));
        }
    }

    /// Returns a view's entries in memory that its head in the keyspace lacks: the frozen ones that
    /// a flush writes, and the later ones.
    fn entries_after<'a>(
        &self,
        head: &ViewHead,
        live: &'a LiveEntries,
        (kind, name): (ViewKind, &str),
    ) -> (Option<&'a UnflushedEntries>, Option<&'a UnflushedEntries>) {
        let frozen = live.frozen.as_ref();
        let frozen = frozen.and_then(|tails| tails.entries_of(&self.secret, kind, name));
        let frozen = frozen.filter(|tail| tail.first_position > head.last_position);
        fail_point!("view-omit-unflushed-entries", head.number_count > 0, |_| (frozen, None));
        (frozen, live.active.entries_of(&self.secret, kind, name))
    }

    /// Returns numbers and positions of a view's entries, ascending from `from`, or with
    /// `backwards` descending from `from`. Returns at most `limit` entries, and at least one if any
    /// entry is in this direction.
    pub fn positions(
        &self,
        kind: ViewKind,
        name: &str,
        mut from: u64,
        limit: usize,
        backwards: bool,
    ) -> Result<Vec<(u64, u64)>> {
        loop {
            let (start, below, page) = self.with_snapshot(kind, name, |seen| {
                let below = seen.head.first_open_number();
                let is_in_block = !backwards && from < below && seen.head.start > 0;
                let page =
                    if is_in_block { Vec::new() } else { seen.read_page((from, backwards), limit) };
                (seen.head.start, below, page)
            })?;
            let is_done = !page.is_empty() || start == 0 || (!backwards && from >= below);
            if is_done || below == 0 {
                return Ok(page);
            }
            let mut found = Vec::new();
            let block = self.block_containing(kind, name, start, from.min(below - 1))?;
            if let Some(block) = block {
                block.read_page(0, (from, backwards), limit, &mut found);
            }
            if !found.is_empty() || backwards {
                return Ok(found);
            }
            // The requested number is in a gap after that block.
            let rest = block_key(kind, start, from + 1)..block_key(kind, start, below);
            match self.blocks(kind, name, start, self.keyspace.range(rest)).next() {
                Some(block) => block?.read_page(0, (from, false), limit, &mut found),
                None => from = below,
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }

    /// Returns the block whose first number is the highest one at or below `number`.
    fn block_containing(
        &self,
        kind: ViewKind,
        name: &str,
        start: u64,
        number: u64,
    ) -> Result<Option<ViewBlock>> {
        let range = block_key(kind, start, 0)..=block_key(kind, start, number);
        self.blocks(kind, name, start, self.keyspace.range(range).rev()).next().transpose()
    }

    /// Returns the first number of the block after the one with `number`, or of the entries that
    /// are in no block; `None` if `number` is among these. Decodes no block.
    pub fn first_number_of_later_block(
        &self,
        kind: ViewKind,
        name: &str,
        number: u64,
    ) -> Result<Option<u64>> {
        let (start, below) = self
            .with_snapshot(kind, name, |seen| (seen.head.start, seen.head.first_open_number()))?;
        if number >= below {
            return Ok(None);
        }
        let rest = block_key(kind, start, number + 1)..block_key(kind, start, below);
        let later = self.keyspace.range(rest).next().transpose()?;
        let first = later.and_then(|(key, _)| Some(u64::from_be_bytes(*key.last_chunk()?)));
        Ok(first.or(Some(below)))
    }

    fn blocks(
        &self,
        kind: ViewKind,
        name: &str,
        start: u64,
        found: impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>>,
    ) -> impl Iterator<Item = Result<ViewBlock>> {
        found.map(move |entry| {
            let (key, value) = entry?;
            let first = key.last_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            let block = first.and_then(|first| ViewBlock::decode(first, start, &value));
            block.ok_or_else(|| self.corruption(kind, name))
        })
    }

    /// Count of numbers of a view up to the event at `position`. The next entry has this count as
    /// its number or, if events were removed, a higher number.
    pub fn count_through(&self, kind: ViewKind, name: &str, position: u64) -> Result<u64> {
        let (start, below, numbers) = self.with_snapshot(kind, name, |seen| {
            (seen.head.start, seen.head.first_open_number(), seen.count_through(position))
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
            match self.block_containing(kind, name, start, middle)? {
                Some(block) if block.first_position > position => high = block.first,
                block => {
                    low = middle + 1;
                    last = block.or(last);
                }
            }
        }
        Ok(last.and_then(|block| block.count_through(position)).unwrap_or(0))
    }

    /// Returns the number of events in a view.
    pub fn entries(&self, kind: ViewKind, name: &str) -> Result<u64> {
        let (numbers, skipped) = self.with_snapshot(kind, name, |seen| seen.counts())?;
        Ok(numbers - skipped)
    }

    /// Returns the number of events in a view up to this position.
    pub fn entries_through(&self, kind: ViewKind, name: &str, position: u64) -> Result<u64> {
        // All removed events were removed before the store was opened.
        let (_, skipped) = self.with_snapshot(kind, name, |seen| seen.counts())?;
        Ok(self.count_through(kind, name, position)?.saturating_sub(skipped))
    }

    /// Returns categories or types that begin with `prefix`, in order of their bytes, after the
    /// name `after`. Returns at most `limit` of them, each with its number of events.
    pub fn list(
        &self,
        kind: ViewKind,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, u64)>> {
        // Memory first: entries that leave it meanwhile are in the keyspace then.
        let mut names = self.names_in_memory(kind, prefix, after, limit);
        let mut start = head_key(kind, after.unwrap_or(prefix));
        if after.is_some() {
            start.push(0);
        }
        let prefix = head_key(kind, prefix);
        for entry in self.keyspace.range(start..).take(limit) {
            let (key, _) = entry?;
            if !key.starts_with(&prefix) {
                break;
            }
            let name = String::from_utf8(key[2..].to_vec());
            names.push(name.map_err(|_| self.corruption(kind, &String::from_utf8_lossy(&key)))?);
        }
        names.sort_unstable();
        names.dedup();
        names.truncate(limit);
        let counted = |name: String| Ok((name.clone(), self.entries(kind, &name)?));
        names.into_iter().map(counted).collect()
    }

    fn names_in_memory(
        &self,
        kind: ViewKind,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Vec<String> {
        let live = self.live.lock().ignore_poison();
        let all = live.frozen.iter().flat_map(|tails| tails.views()).chain(live.active.views());
        let is_meant =
            |name: &&str| after.is_none_or(|after| *name > after) && name.starts_with(prefix);
        let of_kind = all.filter(|view| view.kind == kind).map(|view| &*view.name);
        let mut names: Vec<&str> = of_kind.filter(is_meant).collect();
        // A name may occur twice.
        let wanted = limit.saturating_mul(2);
        if wanted < names.len() {
            names.select_nth_unstable(wanted);
            names.truncate(wanted);
        }
        names.into_iter().map(str::to_string).collect()
    }

    /// Returns the error for an invalid view in the index.
    pub fn corruption(&self, kind: ViewKind, name: &str) -> Error {
        let reason = format!(
            "the index of the view '{}' is malformed; remove this directory, and the next open \
             rebuilds the index from the event log",
            kind.view_name(name).escape_debug()
        );
        Error::corruption(&self.folder, 0, reason)
    }
}

/// Adds a view's unflushed entries to its head. Passes full blocks to `full`, with the position
/// that identifies the view's blocks.
fn merge_into_head(
    head: &mut ViewHead,
    view: &UnflushedView,
    mut full: impl FnMut(u64, &ViewBlock),
) {
    let base = head.number_count;
    for (number, position) in view.entries.entries() {
        head.push(base + number, position, &mut full);
    }
    head.number_count += view.entries.number_count;
    head.skipped += view.entries.skipped;
    head.last_position = view.entries.last_position;
}

#[cfg(test)]
mod tests;
