//! Counts of recent reads of each level, which decay.
//!
//! Counts decay with later gets, not with time: an hour-old count still holds if no get came since.

use std::f64::consts::LN_2;

use umbel_base::limits::LEVELS;
use umbel_base::{Decoder, varint};

/// Number of later gets after which a count has half its weight.
const HALF_LIFE_GETS: f64 = 16_384.0;

/// Approximate number of instructions for a search of a table whose block is cached.
const CACHED_READ: f64 = 1_500.0;
/// Additional cost of loading a block, in instructions: about ten microseconds if the block is in
/// the page cache.
const LOADED_READ: f64 = 40_000.0;

/// Reads of a level since the keyspace was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelReadCounts {
    /// Number of probes of a table for an absent key.
    pub absent: u64,
    /// Number of probes of a table for a present key.
    pub present: u64,
    /// Number of searches of a table for an absent key.
    pub false_reads: u64,
}

/// Reads of a keyspace since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadCounts {
    /// Number of gets.
    pub gets: u64,
    /// Number of blocks that the gets loaded.
    pub loads: u64,
    /// For each level, counts of its reads.
    pub levels: [LevelReadCounts; LEVELS],
}

impl ReadCounts {
    /// Appends the counts as the manifest stores them.
    ///
    /// FORMAT: gets and loads, then for each level, level 0 first, its three numbers in the order
    /// of the fields, all as varints.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.gets);
        varint::put_u64(out, self.loads);
        for count in &self.levels {
            for number in [count.absent, count.present, count.false_reads] {
                varint::put_u64(out, number);
            }
        }
    }

    /// Reads the output of [`ReadCounts::encode`]; `None` if it is malformed.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<ReadCounts> {
        let (gets, loads) = (decoder.varint()?, decoder.varint()?);
        let mut counts = ReadCounts { gets, loads, ..ReadCounts::default() };
        for count in &mut counts.levels {
            let (absent, present) = (decoder.varint()?, decoder.varint()?);
            *count = LevelReadCounts { absent, present, false_reads: decoder.varint()? };
        }
        Some(counts)
    }
}

/// [`LevelReadCounts`] that decay with later gets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LevelReads {
    /// Number of probes of a table for an absent key.
    pub absent: f64,
    /// Number of probes of a table for a present key.
    pub present: f64,
    /// Number of searches of a table for an absent key.
    pub false_reads: f64,
}

/// [`ReadCounts`] that decay with later gets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReadStats {
    counts_seen: ReadCounts,
    /// Number of gets.
    pub gets: f64,
    /// Number of blocks that the gets loaded.
    pub loads: f64,
    /// For each level, decayed counts of its reads.
    pub levels: [LevelReads; LEVELS],
}

impl ReadStats {
    /// Creates statistics from the counts that were saved when the store was last open.
    pub fn from_saved(saved: &ReadCounts) -> ReadStats {
        let reads = |count: &LevelReadCounts| LevelReads {
            absent: count.absent as f64,
            present: count.present as f64,
            false_reads: count.false_reads as f64,
        };
        ReadStats {
            counts_seen: ReadCounts::default(),
            gets: saved.gets as f64,
            loads: saved.loads as f64,
            levels: std::array::from_fn(|level| reads(&saved.levels[level])),
        }
    }

    /// Returns the counts to save for the next open.
    pub fn to_saved(self) -> ReadCounts {
        let count = |reads: &LevelReads| LevelReadCounts {
            absent: reads.absent.round() as u64,
            present: reads.present.round() as u64,
            false_reads: reads.false_reads.round() as u64,
        };
        let levels = std::array::from_fn(|level| count(&self.levels[level]));
        let round = |sum: f64| sum.round() as u64;
        ReadCounts { gets: round(self.gets), loads: round(self.loads), levels }
    }

    /// Adds the increase of `counts` since the last call, and returns by how many the gets
    /// increased.
    pub fn add_counts(&mut self, counts: &ReadCounts) -> u64 {
        let gets = counts.gets.saturating_sub(self.counts_seen.gets);
        let kept = (-(gets as f64) / HALF_LIFE_GETS).exp2();
        // The counts spread over the gets since the last call, of which the older weigh less too.
        // So a sum never exceeds its steady-state value, however rarely this is called.
        let weight = match gets {
            0 => 0.0,
            gets => (1.0 - kept) * HALF_LIFE_GETS / (gets as f64 * LN_2),
        };
        let add = |sum: &mut f64, now: u64, before: u64| {
            *sum = *sum * kept + weight * now.saturating_sub(before) as f64;
        };
        add(&mut self.gets, counts.gets, self.counts_seen.gets);
        add(&mut self.loads, counts.loads, self.counts_seen.loads);
        for (reads, (now, before)) in
            self.levels.iter_mut().zip(counts.levels.iter().zip(&self.counts_seen.levels))
        {
            add(&mut reads.absent, now.absent, before.absent);
            add(&mut reads.present, now.present, before.present);
            add(&mut reads.false_reads, now.false_reads, before.false_reads);
        }
        self.counts_seen = *counts;
        gets
    }

    /// Approximate cost of a false positive, in instructions or equivalent time: small if the block
    /// is cached, large if it has to be loaded.
    pub fn read_cost(&self) -> f64 {
        let searches: f64 = self.levels.iter().map(|reads| reads.present + reads.false_reads).sum();
        let loaded = if searches > 0.0 { (self.loads / searches).min(1.0) } else { 0.0 };
        CACHED_READ + loaded * LOADED_READ
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(gets: u64, absent: u64, present: u64) -> ReadCounts {
        let mut counts = ReadCounts { gets, loads: gets / 10, ..ReadCounts::default() };
        counts.levels[2] = LevelReadCounts { absent, present, false_reads: absent / 100 };
        counts
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= b.abs() * 0.03
    }

    #[test]
    fn counts_are_halved_after_their_half_life() {
        let mut evidence = ReadStats::default();
        assert_eq!(evidence.add_counts(&counts(500, 400, 100)), 500);
        let first = evidence.levels[2];
        assert!(near(evidence.gets, 500.0) && near(first.absent, 400.0), "{evidence:?}");
        assert_eq!(evidence.add_counts(&counts(500, 400, 100)), 0, "nothing new changes nothing");
        assert_eq!(evidence.levels[2], first);
        let searches = first.present + first.false_reads;
        let cost = CACHED_READ + LOADED_READ * evidence.loads / searches;
        assert!(near(evidence.read_cost(), cost));
        assert_eq!(evidence.add_counts(&counts(500 + 16_384, 400, 100 + 16_384)), 16_384);
        assert!(near(evidence.levels[2].absent, first.absent / 2.0), "{evidence:?}");
        let saved = evidence.to_saved();
        let mut bytes = Vec::new();
        saved.encode(&mut bytes);
        assert_eq!(ReadCounts::decode(&mut Decoder::new(&bytes)), Some(saved));
        assert_eq!(ReadCounts::decode(&mut Decoder::new(&bytes[..bytes.len() - 1])), None);
        let again = ReadStats::from_saved(&saved);
        assert!((again.gets - evidence.gets).abs() <= 0.5);
    }

    /// A change of the reads shows after the same number of gets, no matter how many gets are
    /// between two decisions.
    #[test]
    fn one_long_interval_weighs_like_many_short_ones() {
        let (mut seldom, mut often) = (ReadStats::default(), ReadStats::default());
        seldom.add_counts(&counts(10_000_000, 0, 10_000_000));
        for part in 1..=1000 {
            often.add_counts(&counts(part * 10_000, 0, part * 10_000));
        }
        assert!(near(seldom.gets, often.gets), "{} {}", seldom.gets, often.gets);
        assert!(near(seldom.gets, 16_384.0 / LN_2));
        seldom.add_counts(&counts(10_000_100, 100, 10_000_000));
        assert!(seldom.levels[2].absent / seldom.gets > 0.003);
    }
}
