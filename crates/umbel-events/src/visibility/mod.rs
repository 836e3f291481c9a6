//! Visible position, and the callbacks that wait for it to advance.

pub mod visible_position;
pub mod watch_registry;
