//! The engines that take part.

use crate::engine::Engine;

mod fjall;
#[cfg(feature = "leveldb")]
#[expect(unsafe_code, reason = "LevelDB is reached through its C interface")]
mod leveldb;
#[expect(unsafe_code, reason = "LMDB's promises about its mapped file are the caller's to keep")]
mod lmdb;
mod none;
mod redb;
#[cfg(feature = "rocksdb")]
#[expect(unsafe_code, reason = "RocksDB is reached through its C interface")]
mod rocksdb;
mod umbel;

#[cfg(not(feature = "leveldb"))]
mod leveldb {
    //! LevelDB, where its library is not there.

    use crate::engine::Engine;

    pub const ENGINE: Engine = Engine {
        missing: Some("built without the feature `leveldb`, which needs libleveldb-dev"),
        name: "leveldb",
        ..super::none::ENGINE
    };
}

#[cfg(not(feature = "rocksdb"))]
mod rocksdb {
    //! RocksDB, where its library is not there.

    use crate::engine::Engine;

    pub const ENGINE: Engine = Engine {
        missing: Some("built without the feature `rocksdb`, which needs librocksdb-dev"),
        name: "rocksdb",
        ..super::none::ENGINE
    };
}

/// All of them, ours first.
pub const ALL: [Engine; 7] = [
    umbel::ENGINE,
    lmdb::ENGINE,
    rocksdb::ENGINE,
    leveldb::ENGINE,
    fjall::ENGINE,
    redb::ENGINE,
    none::ENGINE,
];

/// The version of a crate this program was built with.
fn built_with(name: &str) -> String {
    let wanted = format!("name = \"{name}\"\nversion = \"");
    let lock = include_str!("../Cargo.lock");
    let version = lock.split_once(&wanted).and_then(|(_, rest)| rest.split_once('"'));
    version.map_or_else(|| "unknown".to_string(), |(version, _)| version.to_string())
}
