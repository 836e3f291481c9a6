//! What reads asked of each level of late.
//!
//! Counts decay with the gets that come after them, not with time: what a store was asked an hour
//! ago still holds if nobody asked since.

use std::f64::consts::LN_2;

use umbel_base::limits::LEVELS;
use umbel_base::{Decoder, varint};

/// After so many gets a count weighs half.
const HALF_LIFE_GETS: f64 = 16_384.0;

/// Instructions of a search of a table whose block is cached.
const CACHED_READ: f64 = 1_500.0;
/// What loading a block adds: some ten microseconds, where the operating system has it cached.
const LOADED_READ: f64 = 40_000.0;

/// What reads asked of a level since the keyspace was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How often a table was asked for a key that it does not have.
    pub absent: u64,
    /// How often for one that it has.
    pub present: u64,
    /// How often a table was searched for a key that it does not have.
    pub false_reads: u64,
}

/// What reads did since the keyspace was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Gets.
    pub gets: u64,
    /// Blocks that they had to load.
    pub loads: u64,
    /// What they asked of each level.
    pub levels: [Count; LEVELS],
}

impl Counts {
    /// Appends the counts as the manifest keeps them.
    ///
    /// FORMAT: gets and loads, then of each level, level 0 first, its three numbers in the order of
    /// the fields, all as varints.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.gets);
        varint::put_u64(out, self.loads);
        for count in &self.levels {
            for number in [count.absent, count.present, count.false_reads] {
                varint::put_u64(out, number);
            }
        }
    }

    /// Reads what [`Counts::encode`] wrote; `None` where it is malformed.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<Counts> {
        let (gets, loads) = (decoder.varint()?, decoder.varint()?);
        let mut counts = Counts { gets, loads, ..Counts::default() };
        for count in &mut counts.levels {
            let (absent, present) = (decoder.varint()?, decoder.varint()?);
            *count = Count { absent, present, false_reads: decoder.varint()? };
        }
        Some(counts)
    }
}

/// As [`Count`], of late.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Asked {
    /// How often a table was asked for a key that it does not have.
    pub absent: f64,
    /// How often for one that it has.
    pub present: f64,
    /// How often a table was searched for a key that it does not have.
    pub false_reads: f64,
}

/// What reads did of late.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Evidence {
    seen: Counts,
    /// Gets.
    pub gets: f64,
    /// Blocks that they had to load.
    pub loads: f64,
    /// What they asked of each level.
    pub levels: [Asked; LEVELS],
}

impl Evidence {
    /// Begins with what was known when the store was last open.
    pub fn from_saved(saved: &Counts) -> Evidence {
        let asked = |count: &Count| Asked {
            absent: count.absent as f64,
            present: count.present as f64,
            false_reads: count.false_reads as f64,
        };
        Evidence {
            seen: Counts::default(),
            gets: saved.gets as f64,
            loads: saved.loads as f64,
            levels: std::array::from_fn(|level| asked(&saved.levels[level])),
        }
    }

    /// What is to be known when the store is next open.
    pub fn to_saved(self) -> Counts {
        let count = |asked: &Asked| Count {
            absent: asked.absent.round() as u64,
            present: asked.present.round() as u64,
            false_reads: asked.false_reads.round() as u64,
        };
        let levels = std::array::from_fn(|level| count(&self.levels[level]));
        let round = |sum: f64| sum.round() as u64;
        Counts { gets: round(self.gets), loads: round(self.loads), levels }
    }

    /// Takes in what was counted since the last time; gives how many gets there were.
    pub fn note(&mut self, counts: &Counts) -> u64 {
        let gets = counts.gets.saturating_sub(self.seen.gets);
        let kept = (-(gets as f64) / HALF_LIFE_GETS).exp2();
        // What was counted spreads over the gets since, of which the older weigh less as well: so a
        // sum never exceeds what it comes to where nothing changes, however seldom this is called.
        let weight = match gets {
            0 => 0.0,
            gets => (1.0 - kept) * HALF_LIFE_GETS / (gets as f64 * LN_2),
        };
        let add = |sum: &mut f64, now: u64, before: u64| {
            *sum = *sum * kept + weight * now.saturating_sub(before) as f64;
        };
        add(&mut self.gets, counts.gets, self.seen.gets);
        add(&mut self.loads, counts.loads, self.seen.loads);
        for (asked, (now, before)) in
            self.levels.iter_mut().zip(counts.levels.iter().zip(&self.seen.levels))
        {
            add(&mut asked.absent, now.absent, before.absent);
            add(&mut asked.present, now.present, before.present);
            add(&mut asked.false_reads, now.false_reads, before.false_reads);
        }
        self.seen = *counts;
        gets
    }

    /// What searching a table in vain costs, about, in instructions or what takes as long: next to
    /// nothing where the block is cached, much where it has to be loaded.
    pub fn read_cost(&self) -> f64 {
        let searches: f64 = self.levels.iter().map(|asked| asked.present + asked.false_reads).sum();
        let loaded = if searches > 0.0 { (self.loads / searches).min(1.0) } else { 0.0 };
        CACHED_READ + loaded * LOADED_READ
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(gets: u64, absent: u64, present: u64) -> Counts {
        let mut counts = Counts { gets, loads: gets / 10, ..Counts::default() };
        counts.levels[2] = Count { absent, present, false_reads: absent / 100 };
        counts
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= b.abs() * 0.03
    }

    #[test]
    fn counts_weigh_half_after_their_half_life() {
        let mut evidence = Evidence::default();
        assert_eq!(evidence.note(&counts(500, 400, 100)), 500);
        let first = evidence.levels[2];
        assert!(near(evidence.gets, 500.0) && near(first.absent, 400.0), "{evidence:?}");
        assert_eq!(evidence.note(&counts(500, 400, 100)), 0, "nothing new changes nothing");
        assert_eq!(evidence.levels[2], first);
        let searches = first.present + first.false_reads;
        let cost = CACHED_READ + LOADED_READ * evidence.loads / searches;
        assert!(near(evidence.read_cost(), cost));
        assert_eq!(evidence.note(&counts(500 + 16_384, 400, 100 + 16_384)), 16_384);
        assert!(near(evidence.levels[2].absent, first.absent / 2.0), "{evidence:?}");
        let saved = evidence.to_saved();
        let mut bytes = Vec::new();
        saved.encode(&mut bytes);
        assert_eq!(Counts::decode(&mut Decoder::new(&bytes)), Some(saved));
        assert_eq!(Counts::decode(&mut Decoder::new(&bytes[..bytes.len() - 1])), None);
        let again = Evidence::from_saved(&saved);
        assert!((again.gets - evidence.gets).abs() <= 0.5);
    }

    /// However many gets there are between two decisions, a turn shows within the same number.
    #[test]
    fn one_long_while_weighs_no_more_than_many_short_ones() {
        let (mut seldom, mut often) = (Evidence::default(), Evidence::default());
        seldom.note(&counts(10_000_000, 0, 10_000_000));
        for part in 1..=1000 {
            often.note(&counts(part * 10_000, 0, part * 10_000));
        }
        assert!(near(seldom.gets, often.gets), "{} {}", seldom.gets, often.gets);
        assert!(near(seldom.gets, 16_384.0 / LN_2));
        seldom.note(&counts(10_000_100, 100, 10_000_000));
        assert!(seldom.levels[2].absent / seldom.gets > 0.003);
    }
}
