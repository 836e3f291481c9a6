//! Faults that the scripts must detect, which shows that the scripts can fail.

use umbel_sim::Sim;

use crate::existence_script::Plant;

/// Calls that an implementation might omit.
pub const FORGOTTEN: [(&str, Plant); 4] = [
    ("sync *.journal", |sim: &Sim| sim.ignore_calls("sync *.journal")),
    ("sync *.filter", |sim: &Sim| sim.ignore_calls("sync *.filter")),
    ("sync_dir", |sim: &Sim| sim.ignore_calls("sync_dir")),
    ("sync CHECKPOINT.new", |sim: &Sim| sim.ignore_calls("sync CHECKPOINT.new")),
];

/// Failpoints of the filter, each with the effect of the active failpoint.
pub const FAILPOINTS: [(&str, &str); 11] = [
    (
        "existence-insert-into-old-filter",
        "while the filter grows, a new hash goes only to the old one",
    ),
    (
        "existence-keep-stale-filter-file",
        "a generation names an earlier filter file instead of writing a new one",
    ),
    (
        "existence-start-journal-after-filter",
        "a generation's journal starts when its filter is written, not before",
    ),
    ("existence-forget-failed-flush", "a flush omits the hashes of an earlier failed flush"),
    (
        "existence-cover-unflushed-hashes",
        "a flush leaves hashes in memory that its coverage includes",
    ),
    ("existence-unread-page-is-empty", "a page that was not read yet counts as empty"),
    ("existence-ignore-page-digest", "the digests of pages are not checked"),
    (
        "existence-trust-first-filter-alone",
        "a lookup trusts the first filter where the second one is missing",
    ),
    ("existence-repair-forget-inserts", "a damaged line is rebuilt without concurrent inserts"),
    (
        "existence-end-walk-early",
        "the second filter is used before the walk through the source ends",
    ),
    ("checksum-constant", "every checksum is the same number"),
];
