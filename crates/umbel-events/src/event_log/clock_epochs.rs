//! [`ClockEpochs`]: the clock epochs of an event log, and the times of events across them.
//!
//! A clock epoch begins when an operator confirms a wall clock that reads less than the times of
//! the last events.
//!
//! INVARIANT: `created` never decreases within an epoch, and is never below the epoch's start. So
//! [`ClockEpochs::ordered_time`] never decreases in the whole log.

use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use umbel_base::ignore_poison::IgnorePoison;
use umbel_base::{Decoder, varint};

/// A clock epoch after the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockEpoch {
    /// Events from this position on belong to the epoch or to later ones.
    pub position: u64,
    /// The wall clock when the epoch began, in units of 100 ns since 1970.
    pub start: u64,
}

/// The clock epochs of an event log after the first one, by position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClockEpochs(Vec<ClockEpoch>);

impl ClockEpochs {
    /// Number of the current epoch; the first one is 1.
    pub fn number(&self) -> u64 {
        self.0.len() as u64 + 1
    }

    /// The current epoch; `None` for the first one, which has no start.
    pub fn last(&self) -> Option<ClockEpoch> {
        self.0.last().copied()
    }

    /// Begins an epoch after the last event, which has the position `last_event`. Replaces an epoch
    /// without events.
    ///
    /// REQUIRES: no event has the position of the epoch or a higher one.
    pub fn begin(&mut self, epoch: ClockEpoch, last_event: u64) {
        if self.last().is_some_and(|last| last.position > last_event) {
            self.0.pop();
        }
        self.0.push(epoch);
    }

    /// Returns the time of an event for `$maxAge` and for every order by time. An event is at least
    /// as old as the start of each later epoch.
    pub fn ordered_time(&self, position: u64, created: u64) -> u64 {
        let later = self.0.iter().rev().take_while(|epoch| epoch.position > position);
        later.map(|epoch| epoch.start).fold(created, u64::min)
    }

    /// Returns the time that the next event gets at least. `last` is the position and time of the
    /// last event, both 0 without events.
    pub fn next_created_min(&self, last: (u64, u64)) -> u64 {
        self.created_min(u64::MAX, last)
    }

    /// Returns the least time that an event at `position` can have after the event `before`, given
    /// by its position and time.
    pub fn created_min(&self, position: u64, before: (u64, u64)) -> u64 {
        let count = self.0.partition_point(|epoch| epoch.position <= position);
        match self.0[..count].last() {
            Some(epoch) if before.0 < epoch.position => epoch.start,
            _ => before.1,
        }
    }

    /// Begins an epoch at `position` if the event there, created at `created`, is older than the
    /// event before it. `before` is the position and time of the event before. Only a repair calls
    /// this, where the manifest with the epochs is lost.
    pub fn derive(&mut self, before: (u64, u64), (position, created): (u64, u64)) {
        if self.ordered_time(before.0, before.1) <= self.ordered_time(position, created) {
            return;
        }
        let at = self.0.partition_point(|epoch| epoch.position < position);
        self.0.insert(at, ClockEpoch { position, start: created });
    }

    /// Removes the epochs that begin at `position` or later.
    pub fn truncate(&mut self, position: u64) {
        self.0.retain(|epoch| epoch.position < position);
    }

    /// Appends the bytes of the epochs to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.0.len() as u64);
        for epoch in &self.0 {
            varint::put_u64(out, epoch.position);
            varint::put_u64(out, epoch.start);
        }
    }

    /// Decodes the output of [`ClockEpochs::encode`] in a log whose next chunk begins at
    /// `next_start`; `None` where it is malformed.
    pub fn decode(decoder: &mut Decoder<'_>, next_start: u64) -> Option<ClockEpochs> {
        let mut epochs: Vec<ClockEpoch> = Vec::new();
        for _ in 0..decoder.varint_usize()? {
            let (position, start) = (decoder.varint()?, decoder.varint()?);
            let in_order = epochs.last().is_none_or(|last| last.position < position);
            if !in_order || position > next_start {
                return None;
            }
            epochs.push(ClockEpoch { position, start });
        }
        Some(ClockEpochs(epochs))
    }
}

/// The clock epochs of an open event log. Only a replica begins epochs while it is open.
#[derive(Debug)]
pub struct OpenEpochs {
    /// Whether there are epochs after the first one. Few logs have any, and readers take no lock.
    has_later: AtomicBool,
    epochs: RwLock<ClockEpochs>,
}

impl OpenEpochs {
    /// The epochs at the open.
    pub fn new(epochs: ClockEpochs) -> OpenEpochs {
        OpenEpochs {
            has_later: AtomicBool::new(epochs.last().is_some()),
            epochs: RwLock::new(epochs),
        }
    }

    /// Replaces the epochs by those of the new manifest.
    pub fn set(&self, epochs: ClockEpochs) {
        let has_later = epochs.last().is_some();
        *self.epochs.write().ignore_poison() = epochs;
        self.has_later.store(has_later, Ordering::Release);
    }

    /// Number of the current epoch; the first one is 1.
    pub fn number(&self) -> u64 {
        self.epochs.read().ignore_poison().number()
    }

    /// The current epoch; `None` for the first one, which has no start.
    pub fn last(&self) -> Option<ClockEpoch> {
        self.epochs.read().ignore_poison().last()
    }

    /// Returns what [`ClockEpochs::ordered_time`] returns.
    #[inline]
    pub fn ordered_time(&self, position: u64, created: u64) -> u64 {
        match self.has_later.load(Ordering::Acquire) {
            true => self.epochs.read().ignore_poison().ordered_time(position, created),
            false => created,
        }
    }

    /// Returns what [`ClockEpochs::next_created_min`] returns.
    pub fn next_created_min(&self, last: (u64, u64)) -> u64 {
        self.epochs.read().ignore_poison().next_created_min(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(list: &[(u64, u64)]) -> ClockEpochs {
        ClockEpochs(
            list.iter()
                .map(|(position, start)| ClockEpoch { position: *position, start: *start })
                .collect(),
        )
    }

    #[test]
    fn times_never_decrease_across_epochs() {
        let epochs = epochs(&[(100, 50), (200, 20), (300, 70)]);
        // Position and time of events, in the order of the log.
        let log = [(10, 5), (20, 90), (110, 50), (150, 60), (210, 20), (220, 80), (310, 75)];
        let times = log.map(|(position, created)| epochs.ordered_time(position, created));
        assert_eq!(times, [5, 20, 20, 20, 20, 70, 75]);
        assert!(times.is_sorted());
        assert_eq!(epochs.next_created_min((220, 80)), 70, "the epoch has no events yet");
        assert_eq!(epochs.next_created_min((310, 75)), 75);
        assert_eq!(epochs.created_min(150, (20, 90)), 50);
        assert_eq!(epochs.number(), 4);
        assert_eq!(ClockEpochs::default().ordered_time(10, 5), 5);
        let open = OpenEpochs::new(ClockEpochs::default());
        assert_eq!((open.ordered_time(20, 90), open.number(), open.last()), (90, 1, None));
        open.set(epochs.clone());
        assert_eq!((open.ordered_time(20, 90), open.number()), (20, 4));
        assert_eq!((open.last(), open.next_created_min((220, 80))), (epochs.last(), 70));
    }

    #[test]
    fn epoch_without_events_is_replaced() {
        let mut some = epochs(&[(100, 50)]);
        some.begin(ClockEpoch { position: 120, start: 40 }, 90);
        assert_eq!(some, epochs(&[(120, 40)]));
        some.begin(ClockEpoch { position: 200, start: 30 }, 150);
        assert_eq!(some, epochs(&[(120, 40), (200, 30)]));
    }

    /// Story: a repair kept an epoch of another copy that began where this copy's chunks end.
    #[test]
    fn epochs_from_a_position_on_are_removed() {
        let mut some = epochs(&[(100, 50), (200, 20), (300, 70)]);
        some.truncate(200);
        assert_eq!(some, epochs(&[(100, 50)]));
    }

    #[test]
    fn lost_epochs_are_derived_from_decreasing_times() {
        let mut found = ClockEpochs::default();
        for (before, next) in [((10, 5), (100, 90)), ((150, 95), (200, 20)), ((220, 30), (300, 30))]
        {
            found.derive(before, next);
        }
        assert_eq!(found, epochs(&[(200, 20)]));
    }

    #[test]
    fn epochs_round_trip_and_disorder_is_malformed() {
        let decode = |bytes: &[u8]| {
            let mut decoder = Decoder::new(bytes);
            ClockEpochs::decode(&mut decoder, 300).filter(|_| decoder.is_done())
        };
        let encode = |list: &[(u64, u64)]| {
            let mut bytes = Vec::new();
            epochs(list).encode(&mut bytes);
            bytes
        };
        let good = [(100, 50), (200, 20), (300, 70)];
        assert_eq!(decode(&encode(&good)), Some(epochs(&good)));
        for bad in [&[(200, 20), (100, 50)][..], &[(100, 1), (100, 2)], &[(301, 1)]] {
            assert_eq!(decode(&encode(bad)), None, "{bad:?}");
        }
        let bytes = encode(&good);
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None, "{len} bytes");
        }
    }
}
