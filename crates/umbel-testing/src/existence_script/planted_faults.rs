//! Bugs to plant: histories that do not notice each of them are worth nothing.

use umbel_sim::Sim;

use crate::existence_script::Plant;

/// Calls that an implementation might omit.
pub const FORGOTTEN: [(&str, Plant); 4] = [
    ("sync *.journal", |sim: &Sim| sim.ignore_calls("sync *.journal")),
    ("sync *.filter", |sim: &Sim| sim.ignore_calls("sync *.filter")),
    ("sync_dir", |sim: &Sim| sim.ignore_calls("sync_dir")),
    ("sync CHECKPOINT.new", |sim: &Sim| sim.ignore_calls("sync CHECKPOINT.new")),
];

/// Bugs inside the filter.
#[cfg(feature = "canary")]
pub const INSIDE: [umbel_base::failpoint::Failpoint; 11] = {
    use umbel_base::failpoint::Failpoint;
    [
        Failpoint::ExistenceInsertsIntoOld,
        Failpoint::ExistenceStaleFilter,
        Failpoint::ExistenceJournalBehindFilter,
        Failpoint::ExistenceForgetsFailedFlush,
        Failpoint::ExistenceCoversTooMuch,
        Failpoint::ExistenceUnreadMeansNo,
        Failpoint::ExistencePageDigestIgnored,
        Failpoint::ExistenceTrustsFirstAlone,
        Failpoint::ExistenceHealForgetsInserts,
        Failpoint::ExistenceWalkEndsEarly,
        Failpoint::IgnoredChecksum,
    ]
};
