//! Damaged, cut off and hostile bytes, of every kind: an error or "maybe", never a panic.

use crate::Numbers;
use crate::kind_oracle::every_kind;
use crate::kinds::build;
use proptest::prelude::*;
use umbel_filter::{
    CountingBloom, Filter, FilterError, FilterKind, FilterOptions, FilterSize, FilterView,
    from_leveldb, from_parquet, to_leveldb, to_parquet,
};

const HASHES: [u64; 6] = [0, 1, u64::MAX, 1 << 63, 0x9e37_79b9_7f4a_7c15, 0x0123_4567_89ab_cdef];

/// Does with the bytes all that can be done.
fn use_up(bytes: &[u8]) -> Result<Option<FilterKind>, FilterError> {
    let view = FilterView::parse(bytes);
    let owned = Filter::decode(bytes);
    assert_eq!(owned.is_ok(), view.is_ok_and(|view| view.kind().is_some()));
    let view = view?;
    let mut found = [false; HASHES.len()];
    view.contains_batch(&HASHES, &mut found);
    for (hash, found) in HASHES.into_iter().zip(found) {
        assert_eq!(view.contains(hash), found);
        assert!(view.kind().is_some() || found, "without a filter every key may be there");
    }
    assert!(!view.designed_rate().is_nan() && !view.estimated_rate().is_nan());
    assert!(!view.estimated_keys().is_nan());
    assert!(view.estimated_keys() >= 0.0 && (0.0..=1.0).contains(&view.designed_rate()));
    for factor in [0, 1, 2, 3, 7, 8, u64::MAX] {
        if let Some(folded) = view.fold(factor) {
            assert!(folded.len() <= bytes.len() && FilterView::parse(&folded).is_ok());
        }
    }
    if view.kind().is_some() {
        let union = view.union(&view).map(|union| union.len());
        assert_eq!(union, Ok(bytes.len()));
    }
    drop((to_leveldb(&view), to_parquet(&view)));
    if let Ok(mut counting) = CountingBloom::decode(bytes) {
        counting.add(5);
        assert!(counting.contains(5) && counting.remove(5));
    }
    Ok(view.kind())
}

fn small(options: FilterOptions) -> Vec<u8> {
    let mut numbers = Numbers(81);
    let hashes: Vec<u64> = (0..60).map(|_| numbers.draw()).collect();
    build(FilterOptions { size: FilterSize::BitsPerKey(9.5), ..options }, &hashes)
}

#[test]
fn every_flipped_bit_is_detected_or_harmless() {
    for options in every_kind() {
        let whole = small(options);
        for at in 0..whole.len() {
            // In the payload one bit of each byte: all of them mean the same.
            let bits = if at < 64 { 0..8 } else { at % 8..at % 8 + 1 };
            for bit in bits {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                let result = use_up(&bytes);
                match at {
                    0..=3 => assert!(result.is_err(), "the magic"),
                    // Another kind that is known reads the length in another way, or "maybe".
                    4 | 7 | 28 => {}
                    // A number of bits or counters that takes as many bytes.
                    16 if matches!(options.kind, FilterKind::Standard | FilterKind::Counting) => {}
                    5 | 6 => assert!(matches!(result, Ok(None) | Ok(Some(_)))),
                    16..=23 => assert!(result.is_err(), "{:?}: units", options.kind),
                    29..=63 => assert!(result.is_err(), "the reserved bytes"),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn every_truncation_and_extension_is_refused() {
    for options in every_kind() {
        let whole = small(options);
        assert_eq!(use_up(&whole), Ok(Some(options.kind)));
        for cut in 1..whole.len() {
            assert!(matches!(use_up(&whole[..cut]), Err(FilterError::Malformed { .. })));
        }
        assert_eq!(use_up(&[]), Ok(None));
        for more in [1, 7, 32, 64] {
            let longer = [&whole[..], &[0; 64][..more]].concat();
            assert!(matches!(use_up(&longer), Err(FilterError::Malformed { .. })));
        }
    }
}

#[test]
fn inconsistent_headers_are_refused() {
    let reason = |bytes: &[u8]| match use_up(bytes) {
        Err(FilterError::Malformed { reason }) => reason,
        other => panic!("not malformed: {other:?}"),
    };
    for options in every_kind() {
        let whole = small(options);
        let with = |at: usize, value: &[u8]| {
            let mut bytes = whole.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            bytes
        };
        let units = [0, 1 << 32, 1 << 40, (1 << 40) + 1, 1 << 58, 1 << 59, u64::MAX];
        for units in units {
            assert!(reason(&with(16, &units.to_le_bytes())).contains("lines"), "{units}");
        }
        assert!(reason(&with(7, &[0])).contains("probes"));
        match options.kind.most_probes() {
            Some(255) => {}
            Some(probes_max) => {
                assert!(reason(&with(7, &[probes_max as u8 + 1])).contains("probes"))
            }
            None => assert!(reason(&with(7, &[7])).contains("probes")),
        }
        // Any number of keys is accepted: it only serves for reports.
        let largest = with(8, &[255; 8]);
        assert_eq!(use_up(&largest), Ok(Some(options.kind)));
        // Unknown values mean "maybe", whatever follows them.
        for (at, unknown) in [(4, 0), (4, 8), (5, 0), (5, 2), (6, 0), (6, 14)] {
            let bytes = with(at, &[unknown]);
            assert_eq!(use_up(&bytes), Ok(None));
            assert!(FilterView::parse_known(&bytes).is_err_and(|error| error.means_maybe()));
            assert_eq!(use_up(&bytes[..64]), Ok(None));
        }
        match options.kind {
            FilterKind::Standard => assert_eq!(use_up(&with(28, &[3])), Ok(None)),
            _ => assert!(reason(&with(28, &[1])).contains("reserved")),
        }
    }
    // 570 bits: six of the last byte mean nothing.
    let options = FilterOptions { kind: FilterKind::Standard, ..FilterOptions::default() };
    let mut bytes = small(options);
    assert_eq!((bytes.len(), bytes[16..18] == [0x3a, 2]), (64 + 72, true));
    *bytes.last_mut().expect("it has bytes") |= 4;
    assert!(reason(&bytes).contains("after"));
    // LevelDB's: more probes than it reads, half a byte.
    let mut bytes = small(options);
    bytes[28] = 2;
    assert!(reason(&bytes).contains("half a byte"));
    bytes[7] = 31;
    assert!(reason(&bytes).contains("30 probes"));
    // 571 counters: half a byte means nothing.
    let options = FilterOptions { kind: FilterKind::Counting, ..options };
    let mut bytes = small(options);
    bytes[16] -= 1;
    *bytes.last_mut().expect("it has bytes") = 15;
    assert_eq!(use_up(&bytes), Ok(Some(FilterKind::Counting)));
    *bytes.last_mut().expect("it has bytes") = 16;
    assert!(reason(&bytes).contains("after"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_panics_on_any_bytes(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        kind in 0u8..9,
        probes in 0u8..40,
        detail in 0u8..4,
        fitting: bool,
    ) {
        drop((from_leveldb(&bytes), from_parquet(&bytes)));
        let _ = use_up(&bytes);
        let mut bytes = bytes;
        if bytes.len() >= 64 {
            bytes[..8].copy_from_slice(&[b'u', b'F', b'L', b'T', kind, 1, 1, probes]);
            bytes[28..64].fill(0);
            bytes[28] = detail;
            if fitting {
                let block = match kind {
                    1 => 64,
                    2 | 4 => 32,
                    _ => 1,
                };
                bytes.truncate(64 + (bytes.len() - 64) / block * block);
                let blocks = (bytes.len() - 64) / block;
                let per_byte = match kind {
                    3 => 8,
                    7 => 2,
                    _ => 1,
                };
                let units = (blocks * per_byte) as u64;
                bytes[16..24].copy_from_slice(&units.to_le_bytes());
            }
        }
        let _ = use_up(&bytes);
    }
}
