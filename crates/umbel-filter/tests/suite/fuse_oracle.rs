//! The oracle of fuse filters: a reader written once more from `docs/formats/filter-fuse.md`, bit
//! by bit, and a solver that knows nothing of peeling.

const MASK: u128 = (1 << 64) - 1;

/// The number in little-endian bytes.
pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Key of a hash, as the format page defines it.
pub fn key(hash: u64, attempt: u32) -> u64 {
    let seed = (0xa54ff53a5f1d36f1 * (u128::from(attempt) + 1)) & MASK;
    let first = ((u128::from(hash) ^ seed) * 0x9e3779b97f4a7c15) & MASK;
    let second = ((first ^ (first >> 32)) * 0xbb67ae8584caa73b) & MASK;
    (second >> 5) as u64
}

/// The slots of a key.
pub fn slots(key: u64, arity: u64, segment_log: u32, slots: u64) -> Vec<u64> {
    let segment = 1 << segment_log;
    let spread = slots - (arity - 1) * segment;
    let first = (u128::from(key) * u128::from(spread) / (1 << 59)) as u64;
    let product = ((u128::from(key) * 0xbb67ae8584caa73b) & MASK) as u64;
    let bits = [0, product >> 30, product >> 12, key];
    (0..arity)
        .map(|number| match number {
            0 => first,
            _ => (first + number * segment) ^ (bits[number as usize] % segment),
        })
        .collect()
}

/// The lowest `bits` bits of a key's fingerprint.
pub fn fingerprint(key: u64, bits: u32) -> u64 {
    let product = (u128::from(key) * 0xbb67ae8584caa73b) & MASK;
    ((product >> 48) as u64) % (1 << bits)
}

/// Whether the filter in `bytes` lets `hash` through.
pub fn contains(bytes: &[u8], hash: u64) -> bool {
    let bits = u32::from(bytes[7]);
    let units = number(&bytes[16..24]);
    let key = key(hash, number(&bytes[28..32]) as u32);
    let all = slots(key, u64::from(bytes[32]), u32::from(bytes[33]), units);
    let value = |slot: u64| {
        (0..u64::from(bits)).fold(0, |value, bit| {
            let at = slot * u64::from(bits) + bit;
            value | u64::from(bytes[64 + at as usize / 8] >> (at % 8) & 1) << bit
        })
    };
    all.into_iter().fold(0, |all, slot| all ^ value(slot)) == fingerprint(key, bits)
}

/// Whether fingerprints exist for which every key in `rows`, given by its slots, can have any value
/// at all: whether the rows are linearly independent.
pub fn are_independent(rows: &[Vec<u64>]) -> bool {
    let mut basis: Vec<std::collections::BTreeSet<u64>> = Vec::new();
    for row in rows {
        let mut row: std::collections::BTreeSet<u64> = row.iter().copied().collect();
        for other in &basis {
            let Some(first) = other.first() else { continue };
            if row.contains(first) {
                row = row.symmetric_difference(other).copied().collect();
            }
        }
        if row.is_empty() {
            return false;
        }
        basis.push(row);
    }
    true
}
