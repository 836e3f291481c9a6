//! List of the engines that take part.

use std::path::Path;
use std::time::Duration;

use umbel_lab::engine::umbel_engine;
use umbel_lab::engine::{Counters, Engine, Result, TunableSettings};
use umbel_lab::measure::disk_usage;
use umbel_lab::measure::{now, pause};

mod fjall;
mod null_engine;
mod redb;
mod sled;
mod surrealkv;

#[cfg(feature = "leveldb")]
#[expect(unsafe_code, reason = "LevelDB is reached through its C interface")]
mod leveldb;
#[expect(unsafe_code, reason = "LMDB is reached through its C interface")]
mod lmdb;
#[cfg(feature = "pebble")]
#[expect(unsafe_code, reason = "Pebble is reached through a C interface")]
mod pebble;
#[cfg(feature = "rocksdb")]
#[expect(unsafe_code, reason = "RocksDB is reached through its C interface")]
mod rocksdb;

#[cfg(not(feature = "leveldb"))]
mod leveldb {
    //! Takes the place of LevelDB if its library is missing.

    use umbel_lab::engine::Engine;

    pub const ENGINE: Engine = Engine {
        missing_reason: Some("built without the feature `leveldb`, which needs libleveldb-dev"),
        name: "leveldb",
        ..super::null_engine::ENGINE
    };
}

#[cfg(not(feature = "pebble"))]
mod pebble {
    //! Takes the place of Pebble if Go is missing.

    use umbel_lab::engine::Engine;

    pub const ENGINE: Engine = Engine {
        missing_reason: Some("built without the feature `pebble`, which needs Go"),
        name: "pebble",
        ..super::null_engine::ENGINE
    };
}

#[cfg(not(feature = "rocksdb"))]
mod rocksdb {
    //! Takes the place of RocksDB if its library is missing.

    use umbel_lab::engine::Engine;

    pub const ENGINE: Engine = Engine {
        missing_reason: Some("built without the feature `rocksdb`, which needs librocksdb-dev"),
        name: "rocksdb",
        ..super::null_engine::ENGINE
    };
}

/// Settings of an engine of which only the bytes of its cache can be set.
const NOT_TUNABLE: TunableSettings = TunableSettings {
    bloom_bits: false,
    bloom_bits_max: None,
    probes: false,
    memtable_bytes: false,
    spread: false,
};

/// All engines, Umbel first.
pub const ALL: [Engine; 10] = [
    umbel_engine::ENGINE,
    lmdb::ENGINE,
    rocksdb::ENGINE,
    leveldb::ENGINE,
    pebble::ENGINE,
    fjall::ENGINE,
    redb::ENGINE,
    sled::ENGINE,
    surrealkv::ENGINE,
    null_engine::ENGINE,
];

/// Time without changes of its files after which an engine counts as settled, if it reports no
/// state.
const QUIET_TIME: Duration = Duration::from_secs(1);

/// Waits until the files of a folder stop changing. Returns the part of the time in which the files
/// did not change any more.
fn wait_until_quiet(folder: &Path) -> Result<Duration> {
    let mut files = disk_usage::listing(folder)?;
    let mut quiet_since = now();
    while quiet_since.elapsed() < QUIET_TIME {
        pause(Duration::from_millis(20));
        let present = disk_usage::listing(folder)?;
        if present != files {
            files = present;
            quiet_since = now();
        }
    }
    Ok(quiet_since.elapsed())
}

/// Counters of an engine that reports no counts; these counters change with its files.
fn file_counters(folder: &Path) -> Counters {
    Counters { files: disk_usage::fingerprint(folder).ok(), ..Counters::default() }
}

/// Returns the version of a crate that this program was built with.
fn crate_version(name: &str) -> String {
    let wanted = format!("name = \"{name}\"\nversion = \"");
    let lock = include_str!("../../Cargo.lock");
    let version = lock.split_once(&wanted).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or_else(|| "unknown".to_string(), |(version, _)| version.to_string())
}

/// Returns the engines of these names; all engines if no name is given.
pub fn find_engines(names: &[String]) -> Result<Vec<Engine>> {
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    let find = |name: &String| {
        let found = ALL.into_iter().find(|engine| engine.name == name);
        let known: Vec<&str> = ALL.iter().map(|engine| engine.name).collect();
        found.ok_or_else(|| format!("there is no engine `{name}`; use {}", known.join(", ")).into())
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rival_names_sources_of_its_settings() {
        for (at, engine) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name != engine.name), "{}", engine.name);
            let rival =
                !["umbel", "none"].contains(&engine.name) && engine.missing_reason.is_none();
            assert_eq!(engine.recommended.is_empty(), !rival, "{}", engine.name);
            let page = |address: &&str| address.starts_with("http") && address.contains("://");
            assert!(engine.recommended.iter().all(page), "{}", engine.name);
            assert!(engine.fresh_read_path < engine.read_paths.len(), "{}", engine.name);
            let settings = (engine.settings)();
            println!("{}: {settings}", engine.name);
            // The words describe every option set at an open: the size of memtables, where it is
            // set.
            let memtables = !engine.tunes.memtable_bytes || settings.contains("128 MiB");
            assert!(settings.len() > 40 && (memtables || !rival), "{}: {settings}", engine.name);
        }
    }
}
