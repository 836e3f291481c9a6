//! Visible position, and the wake-ups that wait for it to advance.

pub mod visible_position;
pub mod watch_registry;
