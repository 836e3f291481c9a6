//! The leader of a replicated event log. Experimental: no server uses it.

pub mod deadline_objects;
pub mod leader_status;
pub mod leader_thread;
pub mod slot_contents;
pub mod slot_leader;
