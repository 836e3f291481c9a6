//! Compares tables with a model, over shapes of keys, versions, compressions and block sizes.

use std::sync::Arc;

use proptest::prelude::*;
use umbel_base::{Cursor, RangeTombstone, RangeTombstoneRef, ValueKind};
use umbel_filter::{FilterKind, FilterOptions, FilterPlan, KeyPrefix, PrefixExtractor};
use umbel_table::{
    BlockCache, Compression, ContextTableCursor, FilterChoice, FilterResidency, Table,
    TableOptions, UnboundedCache,
};

use crate::fixture::{
    KeepNothing, Model, TABLE_ID, entry, get, hasher, open, open_paged, options, run, walk,
};

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

/// A small random number generator, so that shapes are the same in every run.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn shape(name: &str, count: usize) -> Model {
    let mut state = 11;
    let mut model = Model::default();
    for number in 0..count {
        let key: Vec<u8> = match name {
            "random" => {
                [random(&mut state).to_be_bytes(), random(&mut state).to_be_bytes()].concat()
            }
            "decimal" => format!("{:016}", number * 2).into(),
            "path" => {
                format!("/srv/data/project-{}/src/module/file-{number}.rs", number % 5).into()
            }
            "url" => format!("https://shop.example.org/c/{}/item?id={number}", number % 30).into(),
            "stream" => format!("category{}-{:08x}", number % 7, random(&mut state) as u32).into(),
            "prefixes" => vec![b'x'; number % 300],
            _ => unreachable!("no such shape"),
        };
        let len = (random(&mut state) % 150) as usize;
        let value = vec![number as u8; len];
        for version in 0..1 + random(&mut state) % 3 {
            let sequence = (number as u64) * 7 + version;
            if random(&mut state).is_multiple_of(9) {
                model.delete(&key, sequence);
            } else {
                model.put(&key, sequence, &value);
            }
        }
    }
    model.put(b"", 1, b"the empty key");
    model
}

/// Compares the results of all kinds of reads of a table with the model.
fn compare(model: &Model, table: &Arc<Table>) {
    let list = model.list();
    for fill_cache in [false, true] {
        assert!(walk(table, fill_cache).unwrap() == list, "a walk sees other entries");
    }
    assert!(run(table, None).unwrap() == list, "a run sees other entries");
    let step = list.len().div_ceil(400);
    let mut cursor = table.cursor(false);
    cursor.seek_to_first().unwrap();
    for pair in list.windows(2) {
        assert_eq!(cursor.next_repeats().unwrap(), pair[0].0 == pair[1].0);
        assert!(entry(&cursor) == pair[1]);
    }
    for (index, (key, (sequence, ..))) in list.iter().enumerate().step_by(step) {
        let mut longer = key.clone();
        longer.push(0);
        let mut probes = vec![key.clone(), longer];
        if let Some((last, rest)) = key.split_last() {
            probes.push(rest.to_vec());
            probes.push([rest, &[last.wrapping_add(1)]].concat());
        }
        for probe in &probes {
            let ats = [*sequence, sequence + 1, sequence.saturating_sub(1), 0, u64::MAX >> 8];
            for at in ats {
                assert_eq!(get(table, probe, at).unwrap(), model.get(probe, at), "{probe:?} {at}");
                cursor.seek(probe, at).unwrap();
                let mut expected = model.entries.range((probe.clone(), !at)..);
                let expected = expected
                    .next()
                    .map(|((key, at), (kind, value))| (key.clone(), (!at, *kind, value.clone())));
                assert_eq!(cursor.valid().then(|| entry(&cursor)), expected);
            }
            if index.is_multiple_of(16) {
                let from = list.partition_point(|(key, (at, ..))| (key, !at) < (probe, !sequence));
                assert!(run(table, Some((probe, *sequence))).unwrap() == list[from..]);
            }
            cursor.seek_before(probe).unwrap();
            let mut expected = model.entries.range(..(probe.clone(), 0));
            let expected = expected
                .next_back()
                .map(|((key, at), (kind, value))| (key.clone(), (!at, *kind, value.clone())));
            assert_eq!(cursor.valid().then(|| entry(&cursor)), expected);
        }
    }
}

/// Scans with `try_next_visible` wherever it moves, with some keys as limits. Returns how many of
/// its calls moved.
fn stride(model: &Model, table: &Table) -> usize {
    let list = model.list();
    let mut strides = 0;
    for (limit, sequence) in [(1, u64::MAX >> 8), (3, 7 * 400), (50, u64::MAX >> 8), (400, 9)] {
        let limits = list.iter().step_by(list.len().div_ceil(limit)).skip(1);
        let mut limits = limits.map(|(key, _)| key.as_slice());
        let mut limit = limits.next();
        let mut walk = ContextTableCursor::new(true);
        walk.seek_to_first(table).unwrap();
        for (at, (key, (own_sequence, kind, value))) in list.iter().enumerate() {
            assert_eq!((walk.key(), walk.sequence()), (key.as_slice(), *own_sequence));
            assert_eq!((walk.kind(), walk.value()), (*kind, value.as_slice()));
            while limit.is_some_and(|limit| limit <= key.as_slice()) {
                limit = limits.next();
            }
            if at % 5 == 0 {
                walk.set_limit(limit);
            }
            if walk.try_next_visible(sequence) {
                let (next, (next_sequence, next_kind, _)) = &list[at + 1];
                assert!(next != key && *next_kind == ValueKind::Put && *next_sequence <= sequence);
                assert!(limit.is_none_or(|limit| next.as_slice() < limit));
                strides += 1;
            } else {
                walk.next(table).unwrap();
            }
        }
        assert!(!walk.valid());
    }
    strides
}

#[test]
fn unique_keys_get_strides() {
    for name in ["random", "decimal", "path", "url", "stream"] {
        let mut model = Model::default();
        for (number, key) in shape(name, 700).keys().into_iter().enumerate() {
            match number % 50 {
                7 => model.delete(&key, 7 * 300),
                _ => model.put(&key, 7 * (number as u64 % 500), b"value"),
            }
        }
        let (file, meta) = model.build(options(4096, Compression::None));
        let strides = stride(&model, &open(&file, &meta, Some(&hasher())).unwrap());
        assert!(strides > 1000, "{name}: {strides}");
    }
}

fn check(model: &Model, block_bytes: usize, compression: Compression) {
    let (file, meta) = model.build(options(block_bytes, compression));
    assert_eq!(meta.entries, model.entries.len() as u64);
    let table = open(&file, &meta, Some(&hasher())).unwrap();
    assert_eq!(table.meta(), &meta);
    let filter = table.read_filter(FilterResidency::default()).unwrap().unwrap();
    assert!(filter.designed_rate() < 0.05 && filter.kind() == FilterKind::Blocked512);
    let keys = hasher().keys;
    let all = model.keys();
    assert!(all.iter().all(|key| filter.may_contain(keys.hash(key))));
    assert!(table.read_filter(FilterResidency::Nothing).unwrap().is_none());
    compare(model, &table);
    stride(model, &table);
    let report = table.verify().unwrap();
    assert_eq!(report.entries, meta.entries);
    assert_eq!(report.bytes, meta.file_bytes);
    assert_eq!(report.filter_keys, model.keys().len() as u64);
    let unhashed = open(&file, &meta, None).unwrap();
    assert!(unhashed.read_filter(FilterResidency::default()).unwrap().is_none());
    compare(model, &unhashed);
    let mut stranger = hasher();
    stranger.seed_id += 1;
    let stranger = open(&file, &meta, Some(&stranger)).unwrap();
    assert!(stranger.read_filter(FilterResidency::default()).unwrap().is_none());
    compare(model, &stranger);
    for cache in [Arc::new(UnboundedCache) as Arc<dyn BlockCache>, Arc::new(KeepNothing)] {
        let paged = open_paged(&file, &meta, cache).unwrap();
        assert!(paged.is_paged());
        assert!(paged.block_separators().eq(table.block_separators()));
        compare(model, &paged);
        assert_eq!(paged.verify().unwrap(), report, "the filter in the file is verified too");
    }
    let standalone = Table::open_standalone(Arc::new(file), TABLE_ID).unwrap();
    assert_eq!(standalone.meta(), &meta);
    standalone.verify().unwrap();
}

#[test]
fn shapes_of_keys_in_every_compression() {
    let shapes = ["random", "decimal", "path", "url", "stream", "prefixes"];
    for (index, name) in shapes.into_iter().enumerate() {
        let model = shape(name, 700);
        check(&model, 4096, COMPRESSIONS[index % 3]);
        check(&model, 1024, COMPRESSIONS[(index + 1) % 3]);
    }
}

#[test]
fn block_sizes_from_64_bytes_to_64_kibibytes() {
    let model = shape("path", 1500);
    for (index, block_bytes) in [1, 64, 300, 16 << 10, 64 << 10].into_iter().enumerate() {
        check(&model, block_bytes, COMPRESSIONS[index % 3]);
    }
}

#[test]
fn a_thousand_versions_of_a_key() {
    for block_bytes in [64, 512, 4096, 64 << 10] {
        let mut model = shape("decimal", 40);
        for version in 0..1000u64 {
            model.put(b"0000000000000010-many", 10_000 + version * 3, &version.to_le_bytes());
        }
        check(&model, block_bytes, Compression::None);
        let (file, meta) = model.build(options(block_bytes, Compression::Lz4));
        let table = open(&file, &meta, Some(&hasher())).unwrap();
        let before = table.slots().misses();
        get(&table, b"0000000000000010-many", 10_000).unwrap().unwrap();
        assert_eq!(table.slots().misses(), before + 1, "an old version costs one block, not many");
    }
}

#[test]
fn keys_of_64_kibibytes_and_values_of_mebibytes() {
    let mut model = shape("url", 60);
    for number in 0..5u8 {
        let mut key = vec![b'k'; 64 * 1024];
        *key.last_mut().unwrap() = number;
        model.put(&key, 50 + u64::from(number), b"a long key");
        model.delete(&key[..64 * 1024 - 9], 49);
        let value: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8 ^ number).collect();
        model.put(&[b'z', number], 9, &value);
        model.put(&[b'z', number, 0], 9, &value[..40_000]);
    }
    check(&model, 4096, Compression::None);
    check(&model, 64 << 10, Compression::Lz4);
    check(&model, 64, Compression::Zstd);
}

#[test]
fn long_prefixes_that_end_late_do_not_overflow_a_group() {
    let mut model = Model::default();
    for number in 0..60u64 {
        let mut key = vec![b'a'; 30_000];
        key.extend(number.to_be_bytes());
        model.put(&key, number, b"");
    }
    model.put(b"b", 3, b"shares nothing");
    check(&model, 1 << 20, Compression::None);
}

#[test]
fn range_tombstones_widen_the_bounds() {
    let one = |start: &str, end: &str, sequence| RangeTombstone {
        start: start.into(),
        end: end.into(),
        sequence,
    };
    let mut model = Model::default();
    model.put(b"m", 5, b"1");
    model.tombstones = vec![one("x", "z", 9), one("c", "d", 2), one("x", "z", 9), one("q", "q", 1)];
    let (file, meta) = model.build(options(4096, Compression::None));
    assert_eq!((meta.smallest.as_slice(), meta.largest.as_slice()), (&b"c"[..], &b"z"[..]));
    assert!(meta.largest_is_exclusive);
    assert_eq!((meta.sequence_min, meta.sequence_max, meta.range_tombstones), (2, 9, 2));
    let table = open(&file, &meta, Some(&hasher())).unwrap();
    assert_eq!(table.tombstones().covering(b"y", 100), Some(9));
    let written = table.read_tombstones().unwrap();
    let written: Vec<_> = written.iter().map(RangeTombstoneRef::to_owned).collect();
    assert_eq!(written, [one("c", "d", 2), one("x", "z", 9)]);
    table.verify().unwrap();

    model.tombstones = vec![one("a", "m", 7)];
    let (_, meta) = model.build(options(4096, Compression::None));
    assert_eq!((meta.largest.as_slice(), meta.largest_is_exclusive), (&b"m"[..], false));

    let only = Model { tombstones: vec![one("", "b", 4)], ..Model::default() };
    let (file, meta) = only.build(options(4096, Compression::None));
    assert_eq!((meta.blocks, meta.entries), (0, 0));
    let table = open(&file, &meta, Some(&hasher())).unwrap();
    assert_eq!(get(&table, b"a", 9).unwrap(), None);
    assert!(walk(&table, true).unwrap().is_empty());
    table.verify().unwrap();
}

#[test]
fn next_and_prev_are_inverse() {
    let model = shape("stream", 300);
    let list = model.list();
    let (file, meta) = model.build(options(256, Compression::None));
    let table = open(&file, &meta, None).unwrap();
    let mut cursor = table.cursor(true);
    assert!(!cursor.valid());
    cursor.seek_to_first().unwrap();
    let mut at = 0usize;
    let mut state = 4;
    for _ in 0..5000 {
        assert_eq!(entry(&cursor), list[at]);
        let forwards = at == 0 || at + 1 < list.len() && !random(&mut state).is_multiple_of(3);
        if forwards {
            cursor.next().unwrap();
            at += 1;
        } else {
            cursor.prev().unwrap();
            at -= 1;
        }
    }
    cursor.seek_to_first().unwrap();
    cursor.prev().unwrap();
    assert!(!cursor.valid());
    cursor.seek_to_last().unwrap();
    cursor.next().unwrap();
    assert!(!cursor.valid());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_entries(
        entries in proptest::collection::btree_map(
            (
                proptest::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(255)], 0..12),
                0u64..40,
            ),
            proptest::option::of(proptest::collection::vec(any::<u8>(), 0..90)),
            1..250,
        ),
        block_bytes in prop_oneof![Just(64usize), Just(200), Just(1000), Just(8000)],
        compression in prop_oneof![
            Just(Compression::None), Just(Compression::Lz4), Just(Compression::Zstd)
        ],
    ) {
        let mut model = Model::default();
        for ((key, sequence), value) in &entries {
            match value {
                Some(value) => model.put(key, *sequence, value),
                None => model.delete(key, *sequence),
            }
        }
        check(&model, block_bytes, compression);
    }
}

#[test]
fn second_filter_coexists_with_the_plain_filter() {
    let keys = hasher().keys;
    for (kind, bits_per_key) in [
        (FilterKind::BinaryFuse, 9.6),
        (FilterKind::Ribbon, 7.5),
        (FilterKind::Blocked512, 17.0),
        (FilterKind::SplitBlock, 12.0),
    ] {
        let model = shape("random", 20_000);
        let second_filter = Some(FilterChoice { kind, bits_per_key });
        let plain = options(4096, Compression::None);
        let (file, meta) = model.build(TableOptions { second_filter, ..plain });
        let second = meta.second_filter.unwrap();
        assert_eq!(FilterKind::from_number(second.kind), Some(kind));
        let (_, without) = model.build(plain);
        assert_eq!(meta.plain_filter_bytes(), without.filter_bytes, "the plain one is as ever");
        let table = open(&file, &meta, Some(&hasher())).unwrap();
        assert_eq!(table.meta(), &meta);
        compare(&model, &table);
        let report = table.verify().unwrap();
        assert_eq!(report.filter_keys, model.keys().len() as u64);
        let read = |keep| table.read_filter(keep).unwrap().unwrap();
        let (plain, second) = (read(FilterResidency::default()), read(FilterResidency::Second));
        assert_eq!((plain.kind(), second.kind()), (FilterKind::Blocked512, kind));
        for key in model.keys() {
            let hash = keys.hash(&key);
            assert!(plain.may_contain(hash) && second.may_contain(hash));
        }
        let mut passed = [0.0; 2];
        for number in 0..40_000u64 {
            let hash = keys.hash(&number.to_le_bytes());
            passed[0] += f64::from(u8::from(plain.may_contain(hash)));
            passed[1] += f64::from(u8::from(second.may_contain(hash)));
        }
        for (filter, passed) in [&plain, &second].into_iter().zip(passed) {
            let designed = filter.designed_rate() * 40_000.0;
            assert!((passed - designed).abs() < 5.0 * designed.sqrt() + 8.0, "{passed} {designed}");
        }
    }
}

#[test]
fn the_plain_filter_may_be_of_any_kind() {
    let keys = hasher().keys;
    let model = shape("path", 3000);
    for filter_kind in FilterKind::ALL {
        let options = TableOptions { filter_kind, ..options(4096, Compression::None) };
        let (file, meta) = model.build(options);
        let table = open(&file, &meta, Some(&hasher())).unwrap();
        let filter = table.read_filter(FilterResidency::default()).unwrap().unwrap();
        assert_eq!(filter.kind(), filter_kind);
        let hashes = model.keys().into_iter().map(|key| keys.hash(&key));
        assert!(hashes.into_iter().all(|hash| filter.may_contain(hash)));
        assert_eq!(table.verify().unwrap().filter_keys, model.keys().len() as u64);
    }
}

#[test]
fn plain_filter_has_the_requested_probes() {
    let model = shape("path", 3000);
    let keys = model.keys().len() as u64;
    let read = |filter_kind, filter_probes| {
        let plain = options(4096, Compression::None);
        let (file, meta) = model.build(TableOptions { filter_kind, filter_probes, ..plain });
        let table = open(&file, &meta, Some(&hasher())).unwrap();
        assert_eq!(table.verify().unwrap().filter_keys, keys);
        compare(&model, &table);
        (file.bytes(), table.read_filter(FilterResidency::default()).unwrap().unwrap())
    };
    for kind in [FilterKind::Blocked512, FilterKind::Blocked256, FilterKind::Standard] {
        let (usual, _) = read(kind, None);
        let plan = |probes| {
            let options = FilterOptions { kind, probes, ..FilterOptions::default() };
            FilterPlan::of(&options, keys).unwrap()
        };
        let best = plan(None).probes;
        for probes in [1, 4, 6, 7, 24] {
            let (bytes, filter) = read(kind, Some(probes));
            let expected = plan(Some(probes.into())).designed_rate;
            assert_eq!((filter.kind(), filter.designed_rate()), (kind, expected));
            assert_eq!(bytes == usual, u32::from(probes) == best, "{kind} of {probes} probes");
        }
    }
    let (_, filter) = read(FilterKind::Ribbon, Some(6));
    assert_eq!(filter.kind(), FilterKind::Blocked512, "a ribbon has no such number");
}

#[test]
fn prefix_filters_coexist_with_others() {
    let rule: KeyPrefix = "until:/:2".parse().unwrap();
    let hasher_of_prefixes = hasher().prefixes.unwrap();
    let model = shape("path", 4000);
    let second = FilterChoice { kind: FilterKind::Ribbon, bits_per_key: 8.0 };
    for (bloom_bits, second_filter) in [(10, None), (10, Some(second)), (-1, None)] {
        let plain = options(4096, Compression::None);
        let options = TableOptions { bloom_bits, second_filter, ..plain };
        let (file, meta) = model.build_with(options, Some(&rule));
        let table = open(&file, &meta, Some(&hasher())).unwrap();
        assert_eq!(meta.second_filter.is_some(), second_filter.is_some());
        assert!(meta.prefix_filter_bytes > 0);
        assert_eq!(meta.plain_filter_bytes() > 0, bloom_bits > 0);
        let filter = table.read_prefix_filter().unwrap().unwrap();
        assert_eq!(filter.rule(), rule.name());
        let ask = |start: &[u8]| filter.may_contain_start(&rule, &hasher_of_prefixes, start);
        for key in model.keys() {
            let Some(prefix) = rule.prefix(&key) else { continue };
            assert!(ask(prefix) && ask(&key) && ask(&key[..prefix.len() - 1]));
        }
        let absent = (0..2000).filter(|number| ask(format!("no/{number}/x").as_bytes())).count();
        assert!(absent < 100, "{absent}");
        let other = KeyPrefix::fixed(3).unwrap();
        assert!(filter.may_contain_start(&other, &hasher_of_prefixes, b"no/1/"), "another rule");
        assert_eq!(
            table.read_filter(FilterResidency::default()).unwrap().is_some(),
            bloom_bits > 0
        );
        assert_eq!(table.verify().unwrap().filter_keys, model.keys().len() as u64);
        compare(&model, &table);
    }
}
