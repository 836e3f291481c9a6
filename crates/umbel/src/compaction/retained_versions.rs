//! [`Older`]: for which readers a table is written with older versions.

use std::collections::BTreeMap;

use umbel_base::SequenceNumber;

/// So many ranges of states are told apart at most. Versions of others are not counted: they go
/// when the oldest reader does.
const RANGES_MAX: usize = 256;

/// Counts older versions by the readers who see them.
#[derive(Debug)]
pub struct Older<'a> {
    /// The states held, ascending.
    held: &'a [SequenceNumber],
    /// The version handed on before.
    newer: SequenceNumber,
    /// Of ranges of states, by their ends, the versions that all states held in them see, and
    /// nobody else does.
    counts: BTreeMap<(SequenceNumber, SequenceNumber), u64>,
}

impl<'a> Older<'a> {
    /// Nothing counted yet. `held` are the states held, ascending.
    pub fn new(held: &'a [SequenceNumber]) -> Older<'a> {
        Older { held, newer: 0, counts: BTreeMap::new() }
    }

    /// Notes the next version that is written, and whether the one before is of the same key.
    #[inline]
    pub fn note(&mut self, sequence: SequenceNumber, repeats: bool) {
        let newer = std::mem::replace(&mut self.newer, sequence);
        if repeats {
            self.count(sequence, newer);
        }
    }

    fn count(&mut self, sequence: SequenceNumber, newer: SequenceNumber) {
        let first = self.held.partition_point(|&state| state < sequence);
        let end = self.held.partition_point(|&state| state < newer);
        let seen_by = self.held.get(first..end).unwrap_or_default();
        let (Some(&first), Some(&last)) = (seen_by.first(), seen_by.last()) else { return };
        let states = (first, last);
        if self.counts.len() < RANGES_MAX || self.counts.contains_key(&states) {
            *self.counts.entry(states).or_default() += 1;
        }
    }

    /// The ranges of states for which more than `few` versions were counted. Counts anew from then
    /// on.
    pub fn take_above(&mut self, few: u64) -> Vec<(SequenceNumber, SequenceNumber)> {
        let counts = std::mem::take(&mut self.counts);
        counts.into_iter().filter(|(_, count)| *count > few).map(|(states, _)| states).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_counted_for_those_who_see_them() {
        let mut older = Older::new(&[3, 6, 9]);
        let note = |older: &mut Older<'_>, versions: &[u64]| {
            for (index, version) in versions.iter().enumerate() {
                older.note(*version, index > 0);
            }
        };
        // The last one is seen by all and has no number any more.
        note(&mut older, &[12, 7, 5, 0]);
        // One that the states 6 and 9 see, and one with no state between.
        note(&mut older, &[11, 4]);
        note(&mut older, &[2, 1]);
        note(&mut older, &[10, 5]);
        assert_eq!(older.take_above(1), [(6, 9)]);
        assert!(older.take_above(0).is_empty());
        note(&mut older, &[12, 7, 5, 0]);
        assert_eq!(older.take_above(0), [(3, 3), (6, 6), (9, 9)]);
    }
}
