//! Option sets for the model test: small sizes, so that little data reaches every level.

use umbel::limits::LEVELS;
use umbel::{
    Compression, CompressionPlan, Env, ExistenceSize, FilterKind, HashKind, KeyspaceOptions,
    LevelFilter, Options,
};
use umbel_sim::Random;

/// Number of option sets.
pub const SETS: u64 = 48;

/// Smallest limit of all option sets above which values get files of their own.
pub const INLINE_VALUE_BYTES_MIN: usize = 100;

/// The store's options of a set. `threads` holds the permitted numbers of background threads.
pub fn store_options(set: u64, env: &Env, threads: &[usize]) -> Options {
    let mut random = Random::new(1000 + set % SETS);
    Options {
        cache_bytes: random.pick(&[None, Some(1), Some(4 << 10), Some(64 << 10), Some(16 << 20)]),
        background_threads: random.pick(threads),
        log_segment_bytes: random.pick(&[4 << 10, 8 << 10, 64 << 10, 1 << 20]),
        write_buffer_total_bytes: random.pick(&[
            Some(16 << 10),
            Some(64 << 10),
            Some(256 << 10),
            None,
        ]),
        // In half of the sets some values get files of their own.
        inline_value_bytes_max: [1 << 20, INLINE_VALUE_BYTES_MIN, 1 << 20, 1500]
            [(set % 4) as usize],
        env: env.clone(),
        ..Options::default()
    }
}

/// Options of a keyspace, drawn from `random`. About every third keyspace has no WAL.
pub fn keyspace_options(random: &mut Random) -> KeyspaceOptions {
    let plain = random.pick(&[Compression::None, Compression::Lz4, Compression::Zstd]);
    let mut compression = CompressionPlan::all(plain);
    if random.percent(40) {
        for level in 0..LEVELS {
            compression.levels[level] =
                random.pick(&[Compression::None, Compression::Lz4, Compression::Zstd]);
        }
    }
    let level_filters = random.percent(30).then(|| {
        let kinds = FilterKind::ALL.map(|kind| match kind {
            FilterKind::Counting => FilterKind::Standard,
            kind => kind,
        });
        let bits = [-1, 1, 5, 10, 20];
        std::array::from_fn(|_| LevelFilter {
            kind: random.pick(&kinds),
            bits_per_key: random.pick(&bits),
            probes: None,
        })
    });
    let options = KeyspaceOptions {
        level_filters,
        prefix: random
            .percent(40)
            .then(|| random.pick(&["fixed:1", "fixed:3", "capped:2", "until:/"]).parse().unwrap()),
        bloom_bits: random.pick(&[-1, 0, 1, 2, 5, 10, 10, 10, 30, 100, 1000]),
        memtable_bytes: random.pick(&[4 << 10, 4 << 10, 8 << 10, 32 << 10, 1 << 20]),
        table_bytes: random.pick(&[4 << 10, 4 << 10, 16 << 10, 64 << 10, 64 << 20]),
        block_bytes: random.pick(&[64, 128, 512, 1024, 4096, 4096, 64 << 10]),
        level_bytes_base: random.pick(&[4 << 10, 8 << 10, 64 << 10, 1 << 20]),
        level_ratio: random.pick(&[2, 2, 3, 4, 10]),
        level0_tables: random.pick(&[1, 2, 2, 4, 8]),
        compression,
        advisor: random.percent(70),
        log: random.percent(70),
        ..KeyspaceOptions::default()
    };
    // Not drawn, so that each seed keeps its meaning.
    let hash = if options.level_ratio == 3 { HashKind::SipHash13 } else { HashKind::Keyed };
    let level_filters = options.level_filters.map(|filters| {
        filters.map(|filter| {
            let has_probes = options.level0_tables == 2 && filter.kind.most_probes().is_some();
            LevelFilter { probes: has_probes.then_some(3), ..filter }
        })
    });
    // As small as possible, so that a few keys make it grow.
    let existence_filter = match options.level0_tables {
        1 | 2 => ExistenceSize::Growing { first_keys: 20 },
        8 => ExistenceSize::Fixed { bytes: 4096 },
        _ => ExistenceSize::Off,
    };
    KeyspaceOptions { hash, level_filters, existence_filter, ..options }
}

/// The keyspace options of a set.
pub fn set_keyspace_options(set: u64) -> KeyspaceOptions {
    let options = keyspace_options(&mut Random::new(2000 + set % SETS));
    KeyspaceOptions { log: true, ..options }
}
