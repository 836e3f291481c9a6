//! Tests of a keyspace's options: rejected values, and the encoding in the manifest.

use super::*;

#[test]
fn options_round_trip() {
    let options =
        KeyspaceOptions { bloom_bits: -1, log: false, advisor: false, ..Default::default() };
    let filter = |level: usize| LevelFilter {
        kind: FilterKind::ALL[level % 6],
        bits_per_key: level as i32 * 100 - 1,
        probes: None,
    };
    let level_filters = Some(std::array::from_fn(filter));
    let prefix = Some(KeyPrefix::until(b'/', 2).unwrap());
    let all = KeyspaceOptions { level_filters, prefix, ..options.clone() };
    let probes = |level: usize| LevelFilter {
        probes: [Some(24), None, Some(255)].get(level).copied().flatten(),
        ..filter(level)
    };
    let probes = Some(std::array::from_fn(probes));
    let probes = [&options, &all]
        .map(|options| KeyspaceOptions { level_filters: probes, ..options.clone() });
    let filters = KeyspaceOptions { level_filters, ..options.clone() };
    let sizes = [
        ExistenceSize::Fixed { bytes: 4096 },
        ExistenceSize::Fixed { bytes: 1 << 40 },
        ExistenceSize::Growing { first_keys: 1 },
    ];
    let existence =
        sizes.map(|existence_filter| KeyspaceOptions { existence_filter, ..probes[1].clone() });
    let others = probes.into_iter().chain(existence);
    for options in [filters, all, options].into_iter().chain(others) {
        let mut bytes = Vec::new();
        options.encode(&mut bytes);
        assert_eq!(KeyspaceOptions::decode(&mut Decoder::new(&bytes)), Some(options));
        for cut in 0..bytes.len() {
            assert_eq!(KeyspaceOptions::decode(&mut Decoder::new(&bytes[..cut])), None);
        }
    }
}

/// Encoding of kind and bits per key of every level's filter, as in the first version of the
/// manifest.
const TEN_BITS: [u8; 2 * limits::LEVELS] = [3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11, 3, 11];

#[test]
fn probes_round_trip_and_change_nothing_else() {
    let standard = |probes| LevelFilter { kind: FilterKind::Standard, bits_per_key: 10, probes };
    let of = |filters| KeyspaceOptions { level_filters: Some(filters), ..Default::default() };
    let bytes_of = |options: KeyspaceOptions| {
        let mut bytes = Vec::new();
        options.encode(&mut bytes);
        bytes
    };
    let decode = |bytes: &[u8]| KeyspaceOptions::decode(&mut Decoder::new(bytes));
    let none = of([standard(None); limits::LEVELS]);
    let mut bytes = bytes_of(KeyspaceOptions::default());
    let flags = bytes.len() - 1;
    bytes[flags] |= 4;
    bytes.extend(TEN_BITS);
    assert_eq!(bytes, bytes_of(none.clone()), "without probes nothing is new");
    assert_eq!(decode(&bytes), Some(none));
    let mut filters = [standard(None); limits::LEVELS];
    filters[1].probes = Some(6);
    filters[6].probes = Some(7);
    bytes[flags] |= 32;
    bytes.extend([0, 6, 0, 0, 0, 0, 7]);
    assert_eq!(bytes, bytes_of(of(filters)));
    assert_eq!(decode(&bytes), Some(of(filters)));
    let end = bytes.len();
    bytes[end - 6..].fill(0);
    assert_eq!(decode(&bytes), None, "absent probes have no encoding");
    bytes[end - 1] = 25;
    assert!(decode(&bytes).is_some());
    bytes[end - 2 - limits::LEVELS] = FilterKind::Blocked256.number();
    assert_eq!(decode(&bytes), None, "more probes than such a filter has");
    let mut bytes = bytes_of(KeyspaceOptions::default());
    bytes[flags] |= 32;
    bytes.extend([6; limits::LEVELS]);
    assert_eq!(decode(&bytes), None, "probes of no filters");
}

#[test]
fn probes_unsupported_by_filter_kind_are_rejected() {
    let check_error = |kind, probes| {
        let mut filters = [KeyspaceOptions::default().level_filter(0); limits::LEVELS];
        filters[4] = LevelFilter { kind, bits_per_key: 10, probes: Some(probes) };
        let options = KeyspaceOptions { level_filters: Some(filters), ..Default::default() };
        options.check().err().map(|error| error.to_string()).unwrap_or_default()
    };
    for (kind, limit) in
        [(FilterKind::Blocked512, 24), (FilterKind::Blocked256, 24), (FilterKind::Standard, 255u8)]
    {
        for probes in [1, 6, 7, limit] {
            assert_eq!(check_error(kind, probes), "");
        }
        for probes in [Some(0), limit.checked_add(1)].into_iter().flatten() {
            let bad = check_error(kind, probes);
            let expected = format!("{probes} probes for level 4, but a {kind} filter must");
            assert!(bad.contains(&expected), "{bad}");
            assert!(bad.contains(&format!("have 1 to {limit}: leave them out")), "{bad}");
        }
    }
    for kind in [FilterKind::SplitBlock, FilterKind::BinaryFuse, FilterKind::Ribbon] {
        let bad = check_error(kind, 8);
        let expected =
            format!("8 probes for level 4, but a {kind} filter has a fixed number of probes");
        assert!(bad.contains(&expected) && bad.contains("leave probes out, or use"), "{bad}");
    }
}

#[test]
fn out_of_range_option_is_named_in_error() {
    let options = KeyspaceOptions { bloom_bits: 1001, ..Default::default() };
    assert!(options.check().unwrap_err().to_string().contains("bloom_bits is 1001"));
    let mut filters = [KeyspaceOptions::default().level_filter(0); limits::LEVELS];
    filters[2].bits_per_key = 1001;
    let bad = KeyspaceOptions { level_filters: Some(filters), ..Default::default() };
    let bad = bad.check().unwrap_err().to_string();
    assert!(bad.contains("level_filters has 1001 bits per key for level 2"), "{bad}");
    filters[2].bits_per_key = 10;
    filters[3].kind = FilterKind::Counting;
    let bad = KeyspaceOptions { level_filters: Some(filters), ..Default::default() };
    assert!(bad.check().unwrap_err().to_string().contains("counting filter for level 3"));
    let options = KeyspaceOptions { level_ratio: 1, ..Default::default() };
    assert!(options.check().unwrap_err().to_string().contains("level_ratio"));
}

#[test]
fn existence_filter_is_encoded_last_and_uniquely() {
    let mut bytes = Vec::new();
    KeyspaceOptions::default().encode(&mut bytes);
    let flags = bytes.len() - 1;
    bytes[flags] |= 64;
    bytes.extend([2, 100]);
    let decode = |bytes: &[u8]| KeyspaceOptions::decode(&mut Decoder::new(bytes));
    let existence_filter = ExistenceSize::Growing { first_keys: 100 };
    let with = KeyspaceOptions { existence_filter, ..KeyspaceOptions::default() };
    assert_eq!(decode(&bytes), Some(with));
    for (kind, number) in [(0, 100), (3, 100), (1, 100), (2, 0)] {
        let at = bytes.len() - 2;
        bytes[at..].copy_from_slice(&[kind, number]);
        assert_eq!(decode(&bytes), None, "kind {kind}, {number}");
    }
}

#[test]
fn existence_filter_out_of_range_is_rejected() {
    let size = ExistenceSize::Fixed { bytes: 100 };
    let refused = KeyspaceOptions { existence_filter: size, ..Default::default() }.check();
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("100 bytes") && message.contains("4096"), "{message}");
}
