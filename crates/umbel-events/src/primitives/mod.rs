//! Locks, signals and maps that do not depend on events.

pub mod background_signal;
pub mod exclusive_task;
pub mod json_keys;
pub mod lazy_flag;
pub mod panic_guard;
pub mod prehashed_map;
pub mod store_clock;
pub mod wakeup;
