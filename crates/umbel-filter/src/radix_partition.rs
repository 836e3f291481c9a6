//! Partitions hashes roughly in the order of their positions. So the build of a filter larger than
//! the caches works on one small part at a time.

use crate::probe::cache_line::line_of;

/// Number of hashes that are buffered for each part and written as one cache line.
const LANE: usize = 8;

/// Applies `mix` to each hash and partitions the results into `parts` equal ranges. Ranges are in
/// ascending order, with results in any order inside a range. Also returns the end of each range.
///
/// Takes 8 bytes for each hash besides the hashes themselves. `mix` is called twice for each hash.
pub(crate) fn scatter(
    hashes: &[u64],
    parts: usize,
    mix: impl Fn(u64) -> u64,
) -> (Vec<u64>, Vec<usize>) {
    if parts <= 1 {
        return (hashes.iter().map(|hash| mix(*hash)).collect(), vec![hashes.len()]);
    }
    // Parts are chosen by the same product as a line among lines.
    let part_of = |mixed: u64| line_of(mixed, parts as u64) as usize;
    let mut ends = starts(hashes, parts, |hash| part_of(mix(hash)));
    let mut sorted = vec![0; hashes.len()];
    let mut lanes = vec![[0; LANE]; parts];
    let mut waiting = vec![0u8; parts];
    for hash in hashes {
        let mixed = mix(*hash);
        let part = part_of(mixed);
        let (lane, filled) = (&mut lanes[part], &mut waiting[part]);
        lane[usize::from(*filled) % LANE] = mixed;
        *filled += 1;
        if usize::from(*filled) == LANE {
            let from = ends[part];
            sorted[from..from + LANE].copy_from_slice(lane);
            ends[part] = from + LANE;
            *filled = 0;
        }
    }
    for ((lane, filled), end) in lanes.iter().zip(waiting).zip(&mut ends) {
        let left = &lane[..usize::from(filled)];
        sorted[*end..*end + left.len()].copy_from_slice(left);
        *end += left.len();
    }
    (sorted, ends)
}

/// Start of each part.
fn starts(hashes: &[u64], parts: usize, part_of: impl Fn(u64) -> usize) -> Vec<usize> {
    let mut counts = vec![0usize; parts];
    for hash in hashes {
        counts[part_of(*hash)] += 1;
    }
    let mut start = 0;
    for count in &mut counts {
        start += std::mem::replace(count, start);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_ascend_and_keep_every_hash() {
        for count in [0usize, 1, 7, 100, 5_000, 70_000] {
            for parts in [1, 2, 3, 64, 1_000] {
                let mix = |hash: u64| hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let hashes: Vec<u64> = (0..count as u64).collect();
                let (mut sorted, ends) = scatter(&hashes, parts, mix);
                let mut start = 0;
                for (part, end) in ends.iter().enumerate() {
                    let of_part = |hash: &u64| line_of(*hash, parts as u64) == part as u64;
                    assert!(sorted[start..*end].iter().all(of_part), "{count} in {parts}");
                    start = *end;
                }
                assert_eq!((start, ends.len()), (count, parts));
                let mut expected: Vec<u64> = hashes.into_iter().map(mix).collect();
                expected.sort_unstable();
                sorted.sort_unstable();
                assert!(sorted == expected, "{count} in {parts}");
            }
        }
    }
}
