//! Modes of a simulated object store: what it promises and what it ignores.

use std::time::Duration;

/// Meaning of the condition of a creation in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConditionMode {
    /// One of several creations takes effect.
    #[default]
    Honoured,
    /// The store overwrites existing objects.
    Ignored,
    /// The store judges the condition when the request begins, and overwrites at its end.
    JudgedAtStart,
    /// The store judges the condition this long before the request takes effect.
    Racing(Duration),
    /// The store knows the condition `If-Match` only, and answers 501.
    OnlyIfMatch,
}

/// Behaviour of a simulated object store that holds for all requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectStoreMode {
    /// Meaning of the condition of a creation.
    pub conditions: ConditionMode,
    /// Age of the state that reads return.
    pub read_lag: Duration,
    /// Age of the state that lists return.
    pub list_lag: Duration,
    /// Whether answers have the store's time.
    pub reports_time: bool,
    /// Whether only creations and writes have the store's time in their answers, as in a directory.
    /// [`Objects::time_micros`](umbel_env::Objects::time_micros) states it then.
    pub times_creations_only: bool,
    /// Whether a read of a range returns the whole object.
    pub ignores_ranges: bool,
    /// Whether deletions succeed without an effect, as in a bucket with object lock.
    pub keeps_deleted: bool,
    /// Whether a read of an absent object is refused (403), as without the right to list.
    pub hides_absence: bool,
    /// Whether the store changes bytes, as a store that recodes compressed objects.
    pub recodes: bool,
    /// Whether lists ignore the prefix.
    pub ignores_prefix: bool,
}

impl Default for ObjectStoreMode {
    fn default() -> ObjectStoreMode {
        ObjectStoreMode {
            conditions: ConditionMode::Honoured,
            read_lag: Duration::ZERO,
            list_lag: Duration::ZERO,
            reports_time: true,
            times_creations_only: false,
            ignores_ranges: false,
            keeps_deleted: false,
            hides_absence: false,
            recodes: false,
            ignores_prefix: false,
        }
    }
}
