//! [`ExistenceStats`]: what a filter says about itself.

use crate::line::LINE_BITS;
use crate::lines::Lines;
use crate::shape::{Shape, rate};
use crate::stored::Stored;

/// What a filter says about itself. Counts are since it was opened, unless said otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExistenceStats {
    /// Whether there is a filter at all: not with [`Size::Off`](crate::Size::Off).
    pub is_on: bool,
    /// Whether it answers: everything is "maybe" while it is made from nothing.
    pub is_answering: bool,
    /// Whether a second filter is being filled, to grow, to be rebuilt or to begin with.
    pub is_filling: bool,
    /// Why it had to be made from nothing at the open.
    pub lost: Option<String>,
    /// Different hashes in the filter that new ones go to, but for a few that had all their bits by
    /// chance.
    pub items: u64,
    /// For how many the filter that is asked was made.
    pub designed_items: u64,
    /// For how many the one is made that is being filled to take its place.
    pub designed_items_next: Option<u64>,
    /// Bytes of memory of the filters.
    pub memory_bytes: u64,
    /// The share of bits that are set in the filter that is asked.
    pub fill: f64,
    /// Of keys that are absent, the share that is let through at the designed load.
    pub designed_rate: f64,
    /// The same as it follows from the fill now, both filters together while there are two.
    pub estimated_rate: f64,
    /// The same as it was measured: "maybe" in vain, as reported by
    /// [`note_in_vain`](crate::ExistenceFilter::note_in_vain), of these and of all "no". `None`
    /// where nothing was asked.
    pub measured_rate: Option<f64>,
    /// How often the answer was "no".
    pub denied: u64,
    /// How often the answer was "maybe".
    pub maybe: u64,
    /// How often a "maybe" was reported to have been in vain.
    pub in_vain: u64,
    /// The user's position up to which everything is durable here.
    pub covered: u64,
    /// How far the files lag: hashes inserted since the last flush.
    pub lag_items: u64,
    /// Flushes that succeeded.
    pub flushes: u64,
    /// Generations of the filter files that were written.
    pub generations: u64,
    /// Bytes written to journals, filter files and `CHECKPOINT`.
    pub bytes_written: u64,
    /// Pages of 4,096 bytes that were not read yet.
    pub unread_pages: u64,
    /// Lines that are all ones because they are damaged.
    pub damaged_lines: u64,
    /// Damaged lines that were remade.
    pub healed_lines: u64,
    /// How often the filter grew.
    pub growths: u64,
    /// How often it was made anew: from nothing, for damage, for another size, or when asked to.
    pub rebuilds: u64,
}

impl ExistenceStats {
    /// What it is at: `"off"`, `"being made"` (it denies nothing yet), `"growing"`, `"rebuilding"`,
    /// `"healing"` or `"ready"`.
    pub fn state(&self) -> &'static str {
        match self.designed_items_next {
            _ if !self.is_on => "off",
            _ if !self.is_answering => "being made",
            Some(next) if next > self.designed_items => "growing",
            Some(_) => "rebuilding",
            None if self.damaged_lines > 0 => "healing",
            None => "ready",
        }
    }

    /// Of a filter that has to be made anew, and why.
    pub(crate) fn of_lost(reason: String) -> ExistenceStats {
        let lost = Some(reason);
        ExistenceStats { is_on: true, estimated_rate: 1.0, lost, ..ExistenceStats::default() }
    }

    /// Adds what `CHECKPOINT` says of the filters, and that journals have so many hashes more.
    pub(crate) fn of_files(
        self,
        first: Option<&Stored>,
        second: Option<&Stored>,
        in_journals: u64,
    ) -> ExistenceStats {
        let items = |stored: &Stored, is_target: bool| {
            let more = if is_target { in_journals } else { 0 };
            stored.items.saturating_add(more).min(stored.shape.items_max())
        };
        let all = || first.into_iter().chain(second);
        let mut stats = ExistenceStats {
            is_on: true,
            is_answering: first.is_some(),
            is_filling: second.is_some(),
            items: all().next_back().map_or(0, |stored| items(stored, true)),
            memory_bytes: all().map(|stored| stored.shape.bytes()).sum(),
            unread_pages: all().map(|stored| stored.shape.pages()).sum(),
            damaged_lines: all().map(|stored| stored.damaged).sum(),
            designed_items_next: first.and(second).map(|stored| stored.shape.keys),
            estimated_rate: 1.0,
            ..self
        };
        let Some(asked) = first.or(second) else { return stats };
        stats.describe_asked(asked.shape);
        let in_asked = items(asked, second.is_none() || first.is_none());
        let of = |shape: Shape, items| rate(items, shape.lines, shape.probes);
        let bits_set = in_asked as f64 * f64::from(asked.shape.probes);
        stats.fill = -(-bits_set / (asked.shape.lines * LINE_BITS) as f64).exp_m1();
        if first.is_some() {
            let passed = of(asked.shape, in_asked);
            let also = second.map_or(0.0, |stored| of(stored.shape, items(stored, true)));
            stats.estimated_rate = 1.0 - (1.0 - passed) * (1.0 - also);
        }
        stats
    }

    fn describe_asked(&mut self, shape: Shape) {
        self.designed_items = shape.keys;
        self.designed_rate = shape.designed_rate();
    }

    /// Adds what the filters say.
    pub(crate) fn describe(&mut self, first: Option<&Lines>, second: Option<&Lines>) {
        self.is_on = true;
        self.is_answering = first.is_some();
        self.is_filling = second.is_some();
        for lines in first.iter().chain(&second) {
            self.items = lines.items();
            self.memory_bytes += lines.shape().bytes();
            self.unread_pages += lines.unread_pages();
            self.damaged_lines += lines.damaged_count();
        }
        self.designed_items_next = first.and(second).map(|second| second.shape().keys);
        let Some(asked) = first.or(second) else { return };
        self.describe_asked(asked.shape());
        let (fill, rate) = asked.fill();
        self.fill = fill;
        self.estimated_rate = match (first, second) {
            (None, _) => 1.0,
            (Some(_), None) => rate,
            (Some(_), Some(second)) => 1.0 - (1.0 - rate) * (1.0 - second.fill().1),
        };
    }

    /// Adds how it was asked.
    pub(crate) fn count(&mut self, denied: u64, maybe: u64, in_vain: u64) {
        (self.denied, self.maybe, self.in_vain) = (denied, maybe, in_vain);
        let absent = denied + in_vain;
        self.measured_rate = (absent > 0).then(|| in_vain as f64 / absent as f64);
    }
}
