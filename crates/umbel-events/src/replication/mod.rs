//! The nodes of a replicated event log, which follow or lead. Experimental.

pub mod deadline_objects;
pub mod leader_status;
pub mod leader_thread;
pub mod node_status;
pub mod replica_node;
pub mod slot_contents;
pub mod slot_leader;
