//! Visible position, the gate that permits to advance it, and the wake-ups that wait for that.

pub mod index_gate;
pub mod visible_position;
pub mod watch_registry;
