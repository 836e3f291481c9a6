//! [`ExistenceStats`]: what a filter says about itself.

use crate::lines::Lines;

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
        let Some(asked) = first.or(second) else { return };
        self.designed_items = asked.shape().keys;
        self.designed_rate = asked.shape().designed_rate();
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
