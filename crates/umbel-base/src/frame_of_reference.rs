//! [`CompactNumbers`]: a list of numbers that takes half the memory if the numbers are close
//! together.

use std::ops::{Range, RangeInclusive};

/// A list of numbers, stored as 32-bit offsets from the least number if all offsets fit.
#[derive(Debug, Clone)]
pub(crate) enum FrameOfReferenceList {
    /// Offsets from `least`.
    Narrow { least: u64, offsets: Vec<u32> },
    /// The numbers themselves.
    Wide(Vec<u64>),
}

impl Default for FrameOfReferenceList {
    fn default() -> FrameOfReferenceList {
        FrameOfReferenceList::Narrow { least: 0, offsets: Vec::new() }
    }
}

impl FrameOfReferenceList {
    /// A list of `len` times the least number of `range`, for numbers within it.
    pub(crate) fn filled(len: usize, range: RangeInclusive<u64>) -> FrameOfReferenceList {
        let (least, most) = range.into_inner();
        match most - least <= u64::from(u32::MAX) {
            true => FrameOfReferenceList::Narrow { least, offsets: vec![0; len] },
            false => FrameOfReferenceList::Wide(vec![least; len]),
        }
    }

    /// Length of the list.
    pub(crate) fn len(&self) -> usize {
        match self {
            FrameOfReferenceList::Narrow { offsets, .. } => offsets.len(),
            FrameOfReferenceList::Wide(numbers) => numbers.len(),
        }
    }

    /// Returns the number at `index`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> u64 {
        match self {
            FrameOfReferenceList::Narrow { least, offsets } => least + u64::from(offsets[index]),
            FrameOfReferenceList::Wide(numbers) => numbers[index],
        }
    }

    /// Replaces the number at `index`. REQUIRES: `number` is in the range of the list.
    #[inline]
    pub(crate) fn set(&mut self, index: usize, number: u64) {
        match self {
            FrameOfReferenceList::Narrow { least, offsets } => {
                offsets[index] = (number - *least) as u32
            }
            FrameOfReferenceList::Wide(numbers) => numbers[index] = number,
        }
    }

    /// Returns the first index in `range` whose number does not satisfy `is_before`, or the end of
    /// `range`. REQUIRES: the numbers that satisfy `is_before` come first.
    #[inline]
    pub(crate) fn partition_point(
        &self,
        range: Range<usize>,
        is_before: impl Fn(u64) -> bool,
    ) -> usize {
        range.start
            + match self {
                FrameOfReferenceList::Narrow { least, offsets } => {
                    offsets[range].partition_point(|&offset| is_before(least + u64::from(offset)))
                }
                FrameOfReferenceList::Wide(numbers) => {
                    numbers[range].partition_point(|&number| is_before(number))
                }
            }
    }

    /// Bytes of memory that the list takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            FrameOfReferenceList::Narrow { offsets, .. } => size_of_val(&**offsets),
            FrameOfReferenceList::Wide(numbers) => size_of_val(&**numbers),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_kept_whether_they_fit_32_bits_or_not(
            least in prop_oneof![Just(0), any::<u64>()],
            offsets in prop::collection::vec(
                prop_oneof![0..9_u64, u64::from(u32::MAX) - 2..u64::from(u32::MAX) + 3],
                1..20,
            ),
            limit in any::<prop::sample::Index>(),
        ) {
            let mut numbers: Vec<u64> =
                offsets.iter().map(|offset| least.saturating_add(*offset)).collect();
            numbers.sort_unstable();
            let most = numbers[numbers.len() - 1];
            let mut list = FrameOfReferenceList::filled(numbers.len(), least..=most);
            let is_narrow = most - least < 1 << 32;
            prop_assert_eq!(matches!(list, FrameOfReferenceList::Narrow { .. }), is_narrow);
            prop_assert_eq!(list.get(0), least);
            for (index, &number) in numbers.iter().enumerate() {
                list.set(index, number);
            }
            prop_assert!((0..list.len()).map(|index| list.get(index)).eq(numbers.iter().copied()));
            prop_assert_eq!(list.memory_bytes(), numbers.len() * if is_narrow { 4 } else { 8 });
            let first = limit.index(numbers.len());
            let limit = numbers[first];
            let equal = numbers[first..].iter().filter(|&&number| number == limit).count();
            let found = list.partition_point(first..numbers.len(), |number| number <= limit);
            prop_assert_eq!(found, first + equal);
        }
    }
}
