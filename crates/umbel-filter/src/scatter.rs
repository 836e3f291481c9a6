//! Puts hashes into the order of the places they fall on, roughly, so that building a filter that
//! is larger than the caches works on one small part of it after the other.

/// The most parts, as a power of two: so many lines of eight hashes still fit the second cache.
const MOST_PARTS_LOG: u32 = 11;
/// How many hashes wait in front of each part, to be written as one cache line.
const LANE: usize = 8;

/// The hashes, each sent through `mix`, so that their top bits ascend: those of one part, a share
/// of about `part` hashes that agree in their topmost bits, are neighbours in no certain order.
///
/// Takes 8 bytes for each hash besides the hashes themselves. `mix` is called twice for each.
pub(crate) fn scatter(hashes: &[u64], part: usize, mix: impl Fn(u64) -> u64) -> Vec<u64> {
    let parts_log = hashes.len().checked_div(part).and_then(usize::checked_ilog2).unwrap_or(0);
    let parts_log = parts_log.min(MOST_PARTS_LOG);
    if parts_log == 0 {
        return hashes.iter().map(|hash| mix(*hash)).collect();
    }
    let part_of = |mixed: u64| (mixed >> (u64::BITS - parts_log)) as usize;
    let mut ends = starts(hashes, 1 << parts_log, |hash| part_of(mix(hash)));
    let mut sorted = vec![0; hashes.len()];
    let mut lanes = vec![[0; LANE]; 1 << parts_log];
    let mut waiting = vec![0u8; 1 << parts_log];
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
    for ((lane, filled), from) in lanes.iter().zip(waiting).zip(ends) {
        let left = &lane[..usize::from(filled)];
        sorted[from..from + left.len()].copy_from_slice(left);
    }
    sorted
}

/// Where each part begins.
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
    fn parts_ascend_and_nothing_is_lost() {
        for count in [0usize, 1, 7, 100, 5_000, 70_000] {
            for part in [1, 3, 64, 4_096] {
                let mix = |hash: u64| hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let hashes: Vec<u64> = (0..count as u64).collect();
                let mut sorted = scatter(&hashes, part, mix);
                let parts_log = (count / part).checked_ilog2().unwrap_or(0).min(MOST_PARTS_LOG);
                let top = |hash: u64| hash.checked_shr(64 - parts_log).unwrap_or(0);
                assert!(sorted.is_sorted_by_key(|hash| top(*hash)), "{count} in {part}");
                let mut expected: Vec<u64> = hashes.into_iter().map(mix).collect();
                expected.sort_unstable();
                sorted.sort_unstable();
                assert!(sorted == expected, "{count} in {part}");
            }
        }
    }
}
