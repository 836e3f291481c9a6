//! The oracle: builder and reader written once more from `docs/formats/filter.md`, bit by bit.

/// The bits, as their numbers in the whole body, that `hash` sets among `lines` lines.
pub fn bits(hash: u64, lines: u64, probes: u8) -> Vec<u64> {
    let multipliers: [u128; 4] =
        [0x9e3779b97f4a7c15, 0xbb67ae8584caa73b, 0xa54ff53a5f1d36f1, 0x9b05688c2b3e6c1f];
    let line = u128::from(hash) * u128::from(lines) / (1 << 64);
    let mut bits = Vec::new();
    for probe in 0..u32::from(probes) {
        let product = u128::from(hash) * multipliers[probe as usize / 7];
        let remix = (product / (1 << 64)) ^ (product % (1 << 64));
        let position = remix / 512u128.pow(probe % 7) % 512;
        bits.push(line as u64 * 512 + position as u64);
    }
    bits
}

/// Bytes that the builder must write for `hashes`.
pub fn build(hashes: &[u64], lines: u64, probes: u8) -> Vec<u8> {
    let mut bytes = b"uFLT".to_vec();
    bytes.extend([1, 1, 1, probes]);
    bytes.extend((hashes.len() as u64).to_le_bytes());
    bytes.extend(lines.to_le_bytes());
    bytes.resize(64 + lines as usize * 64, 0);
    for hash in hashes {
        for bit in bits(*hash, lines, probes) {
            bytes[64 + bit as usize / 8] |= 1 << (bit % 8);
        }
    }
    bytes
}

/// Whether the filter in `bytes` lets `hash` through.
pub fn may_contain(bytes: &[u8], hash: u64) -> bool {
    let lines = (bytes.len() - 64) as u64 / 64;
    bits(hash, lines, bytes[7])
        .iter()
        .all(|bit| bytes[64 + *bit as usize / 8] >> (bit % 8) & 1 == 1)
}
