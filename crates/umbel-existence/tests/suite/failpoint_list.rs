//! Bugs to plant: histories that do not notice each of them are worth nothing.

use umbel_sim::Sim;

use super::history::Plant;

/// Calls that somebody might forget.
pub const FORGOTTEN: [(&str, Plant); 4] = [
    ("sync *.journal", |sim: &Sim| sim.ignore_calls("sync *.journal")),
    ("sync *.filter", |sim: &Sim| sim.ignore_calls("sync *.filter")),
    ("sync_dir", |sim: &Sim| sim.ignore_calls("sync_dir")),
    ("sync CHECKPOINT.new", |sim: &Sim| sim.ignore_calls("sync CHECKPOINT.new")),
];

/// Bugs inside the filter.
#[cfg(feature = "canary")]
pub const INSIDE: [umbel_base::canary::Switch; 11] = {
    use umbel_base::canary::Switch;
    [
        Switch::ExistenceInsertsIntoOld,
        Switch::ExistenceStaleFilter,
        Switch::ExistenceJournalBehindFilter,
        Switch::ExistenceForgetsFailedFlush,
        Switch::ExistenceCoversTooMuch,
        Switch::ExistenceUnreadMeansNo,
        Switch::ExistencePageDigestIgnored,
        Switch::ExistenceTrustsFirstAlone,
        Switch::ExistenceHealForgetsInserts,
        Switch::ExistenceWalkEndsEarly,
        Switch::IgnoredChecksum,
    ]
};
