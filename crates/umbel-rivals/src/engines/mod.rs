//! The engines that take part.

use std::path::Path;
use std::time::Duration;

use umbel_lab::disk;
use umbel_lab::engine::{Counters, Engine, Result, Tunes};
use umbel_lab::engines::umbel;
use umbel_lab::measure::{now, pause};

mod fjall;
#[cfg(feature = "leveldb")]
#[expect(unsafe_code, reason = "LevelDB is reached through its C interface")]
mod leveldb;
#[expect(unsafe_code, reason = "LMDB is reached through its C interface")]
mod lmdb;
mod none;
#[cfg(feature = "pebble")]
#[expect(unsafe_code, reason = "Pebble is reached through a C interface")]
mod pebble;
mod redb;
#[cfg(feature = "rocksdb")]
#[expect(unsafe_code, reason = "RocksDB is reached through its C interface")]
mod rocksdb;
mod sled;
mod surrealkv;

#[cfg(not(feature = "leveldb"))]
mod leveldb {
    //! LevelDB, where its library is not there.

    use umbel_lab::engine::Engine;

    pub const ENGINE: Engine = Engine {
        missing: Some("built without the feature `leveldb`, which needs libleveldb-dev"),
        name: "leveldb",
        ..super::none::ENGINE
    };
}

#[cfg(not(feature = "pebble"))]
mod pebble {
    //! Pebble, where there is no Go.

    use umbel_lab::engine::Engine;

    pub const ENGINE: Engine = Engine {
        missing: Some("built without the feature `pebble`, which needs Go"),
        name: "pebble",
        ..super::none::ENGINE
    };
}

#[cfg(not(feature = "rocksdb"))]
mod rocksdb {
    //! RocksDB, where its library is not there.

    use umbel_lab::engine::Engine;

    pub const ENGINE: Engine = Engine {
        missing: Some("built without the feature `rocksdb`, which needs librocksdb-dev"),
        name: "rocksdb",
        ..super::none::ENGINE
    };
}

/// An engine that can be told nothing but the bytes of its cache.
const UNTUNED: Tunes = Tunes {
    bloom_bits: false,
    bloom_bits_max: None,
    probes: false,
    memtable_bytes: false,
    spread: false,
};

/// All of them, ours first.
pub const ALL: [Engine; 10] = [
    umbel::ENGINE,
    lmdb::ENGINE,
    rocksdb::ENGINE,
    leveldb::ENGINE,
    pebble::ENGINE,
    fjall::ENGINE,
    redb::ENGINE,
    sled::ENGINE,
    surrealkv::ENGINE,
    none::ENGINE,
];

/// How long the files of an engine that cannot be asked must not change before it counts as
/// settled.
const QUIET: Duration = Duration::from_secs(1);

/// Waits until the files of a folder stay as they are. Returns how long it only looked.
fn watch_files(folder: &Path) -> Result<Duration> {
    let mut files = disk::listing(folder)?;
    let mut quiet_since = now();
    while quiet_since.elapsed() < QUIET {
        pause(Duration::from_millis(20));
        let present = disk::listing(folder)?;
        if present != files {
            files = present;
            quiet_since = now();
        }
    }
    Ok(quiet_since.elapsed())
}

/// What is known of an engine that counts nothing: whether its files change.
fn watched_files(folder: &Path) -> Counters {
    Counters { files: disk::fingerprint(folder).ok(), ..Counters::default() }
}

/// The version of a crate this program was built with.
fn built_with(name: &str) -> String {
    let wanted = format!("name = \"{name}\"\nversion = \"");
    let lock = include_str!("../Cargo.lock");
    let version = lock.split_once(&wanted).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or_else(|| "unknown".to_string(), |(version, _)| version.to_string())
}

/// The engines of these names; all where none is named.
pub fn chosen(names: &[String]) -> Result<Vec<Engine>> {
    if names.is_empty() {
        return Ok(ALL.to_vec());
    }
    let find = |name: &String| {
        let found = ALL.into_iter().find(|engine| engine.name == name);
        let known: Vec<&str> = ALL.iter().map(|engine| engine.name).collect();
        found.ok_or_else(|| format!("there is no engine `{name}`: {}", known.join(", ")).into())
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rival_says_where_its_settings_come_from() {
        for (at, engine) in ALL.iter().enumerate() {
            assert!(ALL[..at].iter().all(|other| other.name != engine.name), "{}", engine.name);
            let rival = !["umbel", "none"].contains(&engine.name) && engine.missing.is_none();
            assert_eq!(engine.recommended.is_empty(), !rival, "{}", engine.name);
            let page = |address: &&str| address.starts_with("http") && address.contains("://");
            assert!(engine.recommended.iter().all(page), "{}", engine.name);
            assert!(engine.fresh_way < engine.ways.len(), "{}", engine.name);
            let settings = (engine.settings)();
            println!("{}: {settings}", engine.name);
            // What is set at every opening stands in the words: the size of memtables, where told.
            let memtables = !engine.tunes.memtable_bytes || settings.contains("128 MiB");
            assert!(settings.len() > 40 && (memtables || !rival), "{}: {settings}", engine.name);
        }
    }
}
