//! Benchmarks of LevelDB's and RocksDB's db_bench that Umbel does not have, and alternatives to
//! them.

/// Name of each unsupported benchmark, and the end of a sentence with the reason and the nearest
/// alternative.
const UNSUPPORTED: &[(&[&str], &str)] = &[
    (
        &["snappycomp", "snappyuncomp"],
        "measures Snappy, which Umbel does not have; run fillseq,compact,readseq with \
         --compression=lz4 to measure compression",
    ),
    (
        &["zstdcomp", "zstduncomp", "compress", "uncompress"],
        "measures compression without a store, which Umbel does not do; run \
         fillseq,compact,readseq with --compression=zstd (or lz4)",
    ),
    (
        &["xxhash", "xxhash64"],
        "measures a checksum that Umbel does not have; run xxh3, the checksum of Umbel's files",
    ),
    (
        &["mergerandom", "readrandommergerandom", "readwhilemerging", "seekrandomwhilemerging"],
        "measures merge operands, which Umbel does not have; run updaterandom or readwhilewriting",
    ),
    (&["seekordered"], "is not a benchmark of Umbel; run seekrandom or readseq"),
    (
        &["randomtransaction", "randomreplacekeys"],
        "measures transactions, which Umbel does not have; run updaterandom",
    ),
    (&["backup", "restore"], "copies a store; use `umbel checkpoint`"),
    (
        &["heapprofile", "sstables", "memstats"],
        "prints internals of RocksDB; run stats or levelstats",
    ),
    (&["compact0", "compact1"], "compacts one level; run compact, which compacts all levels"),
];

/// Reason why Umbel has no benchmark of this name; `None` if no other engine has one either.
pub fn reason(name: &str) -> Option<&'static str> {
    let known = UNSUPPORTED.iter().find(|(names, _)| names.contains(&name));
    known.map(|(_, reason)| *reason)
}
