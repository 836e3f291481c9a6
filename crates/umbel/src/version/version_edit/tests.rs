//! Tests of the manifest's edits: their encoding, and the state that results from a sequence of
//! them.

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_base::BlobPointer;
use umbel_table::{Compression, SecondFilter};

use super::*;
use crate::options::{
    CompressionPlan, ExistenceSize, FilterKind, HashKind, KeyPrefix, LevelFilter,
};
use crate::test_support::format_examples;
use crate::version::read_stats::LevelReadCounts;

fn meta() -> TableMeta {
    TableMeta {
        id: 9,
        file_bytes: 703,
        entries: 5,
        deletes: 1,
        range_tombstones: 1,
        key_bytes: 29,
        value_bytes: 22,
        smallest: b"apple".to_vec(),
        largest: b"f".to_vec(),
        largest_is_exclusive: true,
        sequence_min: 1,
        sequence_max: 300,
        filter_bytes: 128,
        second_filter: None,
        prefix_filter_bytes: 0,
        index_bytes: 14,
        blocks: 2,
        footer_checksum: 0xbcc7_7ba5_4800_2abe,
        blobs: Vec::new(),
    }
}

/// Returns a table of which two entries point at long values.
fn meta_with_blobs() -> TableMeta {
    let blob = |id, value_bytes, checksum| BlobPointer { id, value_bytes, checksum };
    TableMeta {
        id: 5,
        entries: 2,
        deletes: 0,
        blobs: vec![blob(3, 3 << 19, 0xb120_d4ca_7df1_bdee), blob(4, 300, 7)],
        ..meta()
    }
}

/// Returns a table with a second filter.
fn meta_with_second_filter() -> TableMeta {
    TableMeta { id: 3, second_filter: Some(SecondFilter { kind: 5, bytes: 100 }), ..meta() }
}

fn evidence() -> Arc<ReadCounts> {
    let mut counts = ReadCounts { gets: 300, loads: 7, ..ReadCounts::default() };
    counts.levels[1] = LevelReadCounts { absent: 200, present: 80, false_reads: 2 };
    Arc::new(counts)
}

fn identity() -> Identity {
    let store_id = std::array::from_fn(|at| 0xa0 + at as u8);
    let hash_seed = std::array::from_fn(|at| at as u8);
    Identity { store_id, hash_seed, seed_id: 1, features: 0 }
}

fn sealed() -> LogState {
    LogState::Sealed(Seal { len: 192, checksum: 0x5424_a36d_9f89_688e })
}

/// Returns one edit of every kind, as in the worked example of the format page.
fn every_kind() -> Vec<Edit> {
    vec![
        Edit::Identity(identity()),
        Edit::NextFileId(10),
        Edit::LastSequence(300),
        Edit::Keyspace { id: 0, name: "plants".into(), options: KeyspaceOptions::default() },
        Edit::FlushedThrough { keyspace: 0, sequence: 300 },
        Edit::Marker { keyspace: 0, marker: b"at 7".to_vec() },
        Edit::AddTable { keyspace: 0, level: 0, meta: meta().into() },
        Edit::AddTable { keyspace: 0, level: 1, meta: meta_with_blobs().into() },
        Edit::Log { id: 6, state: sealed() },
        Edit::Log { id: 7, state: LogState::Recovered(144) },
        Edit::Log { id: 8, state: LogState::Open },
        Edit::RemoveTable { keyspace: 0, level: 0, id: 9 },
        Edit::DropLog(6),
        Edit::AddTable { keyspace: 0, level: 2, meta: meta_with_second_filter().into() },
        Edit::ReadStats(0, evidence()),
        Edit::Instance(std::array::from_fn(|at| 0xc0 + at as u8)),
        Edit::OpenRecord(OpenRecord { after: 300, id: 0xd7d6_d5d4_d3d2_d1d0 }),
        Edit::DropKeyspace(0),
    ]
}

fn bytes_of(edits: &[Edit]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_record(edits, &mut bytes);
    bytes
}

fn one(bytes: &[u8]) -> Option<Edit> {
    let mut decoder = Decoder::new(bytes);
    Edit::decode(&mut decoder).filter(|_| decoder.is_done())
}

#[test]
fn format_document_matches_encoding() {
    format_examples::assert_shows("manifest.md", "record", &bytes_of(&every_kind()));
}

#[test]
fn every_kind_round_trips_and_prefixes_are_rejected() {
    let mut kinds = HashSet::new();
    for edit in every_kind() {
        let bytes = bytes_of(std::slice::from_ref(&edit));
        assert_eq!(one(&bytes).as_ref(), Some(&edit));
        for cut in 0..bytes.len() {
            assert_eq!(Edit::decode(&mut Decoder::new(&bytes[..cut])), None, "{edit:?} at {cut}");
        }
        kinds.insert(bytes[0]);
    }
    assert_eq!(kinds, (IDENTITY..=OPENING).collect());
    for unknown in [0].into_iter().chain(OPENING + 1..=255) {
        let mut bytes = vec![unknown];
        bytes.extend([0; 64]);
        assert_eq!(decode_record(&bytes), Err(0), "kind {unknown}");
    }
}

#[test]
fn error_has_the_offset_of_the_invalid_edit() {
    let edits = every_kind();
    let bytes = bytes_of(&edits);
    let mut starts: Vec<usize> = (0..edits.len()).map(|n| bytes_of(&edits[..n]).len()).collect();
    starts.push(bytes.len());
    for cut in 0..=bytes.len() {
        let complete = starts.iter().take_while(|start| **start <= cut).count() - 1;
        let expected = match starts[complete] == cut {
            true => Ok(edits[..complete].to_vec()),
            false => Err(starts[complete]),
        };
        assert_eq!(decode_record(&bytes[..cut]), expected, "cut at {cut}");
    }
}

#[test]
fn invalid_edits_are_rejected() {
    let with = |kind: u8, rest: &[u8]| [&[kind], rest].concat();
    let number = |kind: u8, number: u64| {
        let mut bytes = vec![kind];
        varint::put_u64(&mut bytes, number);
        bytes
    };
    assert_eq!(one(&number(LAST_SEQUENCE, 5)), Some(Edit::LastSequence(5)));
    assert_eq!(one(&with(LAST_SEQUENCE, &[0x85, 0])), None, "five in two bytes");
    assert_eq!(one(&number(LAST_SEQUENCE, limits::SEQUENCE_MAX + 1)), None);
    assert_eq!(one(&with(FLUSHED_THROUGH, &number(0, limits::SEQUENCE_MAX + 1))), None);
    assert_eq!(one(&number(DROP_KEYSPACE, 1 << 32)), None, "an id of 33 bits");
    assert!(one(&with(REMOVE_TABLE, &[1, 6, 9])).is_some());
    assert_eq!(one(&with(REMOVE_TABLE, &[1, 7, 9])), None, "level 7");
    assert!(one(&with(LOG, &[8, 2, 9])).is_some());
    assert_eq!(one(&with(LOG, &[8, 3, 9])), None, "a log state that is not known");
    assert_eq!(one(&with(DROP_LOG, &[8, 0])), None, "a byte too many");

    let marker = vec![7; limits::MARKER_BYTES_MAX + 1];
    let marked = |len| Edit::Marker { keyspace: 1, marker: marker[..len].to_vec() };
    assert!(one(&bytes_of(&[marked(marker.len() - 1)])).is_some());
    assert_eq!(one(&bytes_of(&[marked(marker.len())])), None, "a marker over the limit");

    let keyspace = |name: String| {
        bytes_of(&[Edit::Keyspace { id: 0, name, options: KeyspaceOptions::default() }])
    };
    assert!(one(&keyspace("n".repeat(255))).is_some());
    assert_eq!(one(&keyspace("n".repeat(256))), None, "a name over the limit");
    let plain = keyspace("n".into());
    for (at, byte) in [(3, 0xff), (plain.len() - 1, 64), (plain.len() - 2, 3)] {
        let mut bytes = plain.clone();
        bytes[at] = byte;
        assert_eq!(one(&bytes), None, "a name, a flag or a compression that is none");
    }
    let table = bytes_of(&[Edit::AddTable { keyspace: 0, level: 0, meta: meta().into() }]);
    let flag = table.windows(2).position(|pair| pair == [b'f', 1]).expect("the flag") + 1;
    let mut bytes = table;
    bytes[flag] = 2;
    assert_eq!(one(&bytes), None, "a flag that is neither 0 nor 1");
}

fn applied(edits: &[Edit]) -> Result<ManifestState, String> {
    let mut state = ManifestState::default();
    edits.iter().try_for_each(|edit| state.apply(edit))?;
    Ok(state)
}

#[test]
fn inapplicable_edits_are_rejected() {
    let first = Edit::Identity(identity());
    let keyspace =
        |id| Edit::Keyspace { id, name: "k".into(), options: KeyspaceOptions::default() };
    let add = Edit::AddTable { keyspace: 0, level: 1, meta: meta().into() };
    let log = |state| Edit::Log { id: 6, state };
    let other = KeyspaceOptions { hash: HashKind::SipHash13, ..KeyspaceOptions::default() };
    let rehashed = Edit::Keyspace { id: 0, name: "k".into(), options: other };
    let misfits: [(&[Edit], &str); 11] = [
        (&[first.clone(), keyspace(0), rehashed], "keyspace 0 changes its hash"),
        (&[Edit::NextFileId(1), first.clone()], "not the first edit"),
        (&[first.clone(), first.clone()], "given twice"),
        (&[first.clone(), Edit::DropKeyspace(0)], "keyspace 0 is unknown"),
        (&[first.clone(), add.clone()], "keyspace 0 is unknown"),
        (&[first.clone(), keyspace(0), Edit::DropKeyspace(0), add.clone()], "is unknown"),
        (&[first.clone(), keyspace(u32::MAX)], "used up its keyspace ids"),
        (
            &[first.clone(), keyspace(0), add, Edit::RemoveTable { keyspace: 0, level: 2, id: 9 }],
            "removed from level 2",
        ),
        (&[first.clone(), Edit::DropLog(6)], "log 6 is dropped, but is not live"),
        (&[first.clone(), log(sealed()), log(LogState::Open)], "had ended"),
        (&[first.clone(), log(LogState::Recovered(64)), log(sealed())], "had ended"),
    ];
    for (edits, reason) in misfits {
        let refused = applied(edits).expect_err(reason);
        assert!(refused.contains(reason), "{refused}");
    }
    let fits = [first, log(LogState::Open), log(sealed()), Edit::DropLog(6)];
    assert!(applied(&fits).is_ok());
}

#[test]
fn invalid_states_are_rejected() {
    let good = applied(&every_kind()[..10]).expect("they fit");
    assert_eq!(good.check(), Ok(()));
    let refused = |change: &dyn Fn(&mut ManifestState), reason: &str| {
        let mut state = good.clone();
        change(&mut state);
        let refused = state.check().expect_err(reason);
        assert!(refused.contains(reason), "{refused}");
    };
    refused(&|state| state.identity = None, "identity is missing");
    refused(&|state| state.next_file_id = u64::MAX, "over the limit");
    refused(&|state| state.next_file_id = 8, "never assigned");
    refused(&|state| state.logs.extend([(9, LogState::Open)]), "file 9 is listed twice");
    refused(&|state| drop(state.keyspaces.insert(1, state.keyspaces[&0].clone())), "'plants'");
    let twice = |state: &mut ManifestState| {
        let record = state.keyspaces.get_mut(&0).expect("it is there");
        record.levels[3] = record.levels[0].clone();
    };
    refused(&twice, "file 9 is listed twice");
    let unnamed = |state: &mut ManifestState| {
        state.keyspaces.get_mut(&0).expect("it is there").name.clear();
    };
    refused(&unnamed, "''");
    let many = |state: &mut ManifestState| {
        let record = applied(&every_kind()[..4]).expect("they fit").keyspaces[&0].clone();
        state.keyspaces.extend((1..=limits::KEYSPACES_MAX as u32).map(|id| (id, record.clone())));
    };
    refused(&many, "there are 1025 keyspaces");
}

prop_compose! {
    fn any_meta()(
        numbers in any::<[u32; 8]>(),
        mut keys in any::<[Vec<u8>; 2]>(),
        largest_is_exclusive: bool,
        mut sequences in [0..=limits::SEQUENCE_MAX, 0..=limits::SEQUENCE_MAX],
        id in 1u64..40,
    ) -> TableMeta {
        keys.sort();
        sequences.sort_unstable();
        let [smallest, largest] = keys;
        let entries = u64::from(numbers[1].max(1));
        let blob = |at: u64| BlobPointer {
            id: id % 7 + at + 1,
            value_bytes: u64::from(numbers[0] >> 8) + 1,
            checksum: u64::from(numbers[3]) << 20,
        };
        TableMeta {
            id,
            file_bytes: u64::from(numbers[0]) << 20,
            entries,
            deletes: u64::from(numbers[1].max(1) / 3),
            range_tombstones: u64::from(numbers[2]),
            key_bytes: numbers[3].into(),
            value_bytes: numbers[4].into(),
            smallest,
            largest,
            largest_is_exclusive,
            sequence_min: sequences[0],
            sequence_max: sequences[1],
            filter_bytes: numbers[5].into(),
            second_filter: (numbers[2] % 5 == 0 && numbers[5] > 0).then(|| SecondFilter {
                kind: (numbers[4] % 255) as u8 + 1,
                bytes: u64::from(numbers[5] / 2) + 1,
            }),
            prefix_filter_bytes: match numbers[5] {
                bytes if numbers[6] % 3 == 0 => u64::from(bytes / 3),
                _ => 0,
            },
            index_bytes: numbers[6].into(),
            blocks: numbers[7].max(1),
            footer_checksum: u64::from(numbers[7]) << 32 | u64::from(numbers[0]),
            blobs: (0..u64::from(numbers[2] % 3).min(entries - entries / 3)).map(blob).collect(),
        }
    }
}

fn any_options() -> impl Strategy<Value = KeyspaceOptions> {
    let sizes = (4u64 << 10..16 << 30, 4u64 << 10..16 << 30, 64usize..1 << 20);
    let shape = (4u64 << 10..1 << 50, 2u32..=1000, 1usize..=1000, any::<bool>());
    let compression = any::<[u8; limits::LEVELS]>().prop_map(|bytes| {
        let of = |byte: u8| Compression::from_u8(byte % 3).unwrap_or(Compression::None);
        CompressionPlan { levels: bytes.map(of) }
    });
    (limits::BLOOM_BITS_RANGE, sizes, shape, compression).prop_map(|(bits, sizes, shape, plan)| {
        KeyspaceOptions {
            bloom_bits: bits,
            prefix: (shape.2 % 4 == 0).then(|| KeyPrefix::fixed(shape.2).unwrap()),
            level_filters: (shape.1 % 3 == 0).then(|| {
                let kind = |level| FilterKind::ALL[(shape.2 + level) % 6];
                let has_probes = shape.2 % 2 == 0;
                let probes = |limit: u32| (shape.2 as u32 % limit) as u8 + 1;
                std::array::from_fn(|level| LevelFilter {
                    kind: kind(level),
                    bits_per_key: bits,
                    probes: kind(level).most_probes().filter(|_| has_probes).map(probes),
                })
            }),
            existence_filter: match shape.2 % 3 {
                0 => ExistenceSize::Off,
                1 => ExistenceSize::Fixed { bytes: 4096 + sizes.0 },
                _ => ExistenceSize::Growing { first_keys: 1 + sizes.1 },
            },
            hash: if shape.2 % 5 == 0 { HashKind::SipHash13 } else { HashKind::Keyed },
            memtable_bytes: sizes.0,
            table_bytes: sizes.1,
            block_bytes: sizes.2,
            level_bytes_base: shape.0,
            level_ratio: shape.1,
            level0_tables: shape.2,
            compression: plan,
            advisor: shape.3 ^ (shape.1 % 2 == 0),
            log: shape.3,
        }
    })
}

fn any_log_state() -> impl Strategy<Value = LogState> {
    prop_oneof![
        Just(LogState::Open),
        any::<(u64, u64)>().prop_map(|(len, checksum)| LogState::Sealed(Seal { len, checksum })),
        any::<u64>().prop_map(LogState::Recovered),
    ]
}

/// Generates any edit. The ids are few, so that edits often concern the same table or segment.
fn any_edit() -> impl Strategy<Value = Edit> {
    let (id, keyspace, level) = (1u64..40, 0u32..4, 0..limits::LEVELS);
    let sequence = 0..=limits::SEQUENCE_MAX;
    let place = (keyspace.clone(), level);
    prop_oneof![
        any::<([u8; 16], [u8; 16], u32, u64)>().prop_map(
            |(store_id, hash_seed, seed_id, features)| {
                Edit::Identity(Identity { store_id, hash_seed, seed_id, features })
            }
        ),
        any::<u64>().prop_map(Edit::NextFileId),
        sequence.clone().prop_map(Edit::LastSequence),
        (prop_oneof![4 => keyspace.clone(), 1 => any::<u32>()], ".{0,9}", any_options())
            .prop_map(|(id, name, options)| Edit::Keyspace { id, name, options }),
        keyspace.clone().prop_map(Edit::DropKeyspace),
        (place.clone(), any_meta()).prop_map(|((keyspace, level), meta)| Edit::AddTable {
            keyspace,
            level,
            meta: meta.into()
        }),
        (place, id.clone()).prop_map(|((keyspace, level), id)| Edit::RemoveTable {
            keyspace,
            level,
            id
        }),
        (keyspace.clone(), sequence)
            .prop_map(|(keyspace, sequence)| Edit::FlushedThrough { keyspace, sequence }),
        (keyspace, any::<Vec<u8>>())
            .prop_map(|(keyspace, marker)| Edit::Marker { keyspace, marker }),
        (id.clone(), any_log_state()).prop_map(|(id, state)| Edit::Log { id, state }),
        id.prop_map(Edit::DropLog),
        (0u64..9, any::<u64>()).prop_map(|(after, id)| Edit::OpenRecord(OpenRecord { after, id })),
        (0u32..4, any::<u64>(), any::<[u32; 3]>()).prop_map(|(keyspace, gets, numbers)| {
            let mut counts = ReadCounts { gets, ..ReadCounts::default() };
            let [absent, present, false_reads] = numbers.map(u64::from);
            counts.levels[2] = LevelReadCounts { absent, present, false_reads };
            Edit::ReadStats(keyspace, Arc::new(counts))
        }),
    ]
}

proptest! {
    #[test]
    fn records_round_trip(edits in vec(any_edit(), 0..6)) {
        prop_assert_eq!(decode_record(&bytes_of(&edits)), Ok(edits));
    }

    #[test]
    fn changed_bytes_are_rejected_or_canonical(
        edits in vec(any_edit(), 1..4),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = bytes_of(&edits);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(edits) = decode_record(&bytes) {
            prop_assert_eq!(bytes_of(&edits), bytes);
            // The edits may match or not.
            let _ = applied(&edits);
        }
    }

    #[test]
    fn any_bytes_are_rejected_or_canonical(bytes: Vec<u8>) {
        if let Ok(edits) = decode_record(&bytes) {
            prop_assert_eq!(bytes_of(&edits), bytes);
        }
    }

    #[test]
    fn state_round_trips_through_its_edits(edits in vec(any_edit(), 0..60)) {
        let mut state = applied(&[Edit::Identity(identity())]).expect("it comes first");
        for edit in &edits {
            let mut next = state.clone();
            if next.apply(edit).is_ok() {
                state = next;
            }
        }
        prop_assert_eq!(applied(&state.to_edits()), Ok(state));
    }
}
