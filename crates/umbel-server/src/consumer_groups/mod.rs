//! State of persistent subscriptions: settings, checkpoints, dispatch to consumers.

pub mod ack_times;
pub mod checkpoint_store;
pub mod dispatcher;
pub mod group_command;
pub mod group_config;
pub mod group_config_log;
pub mod group_reading;
pub mod group_registry;
pub mod group_stats;
pub mod parked_stream;
pub mod rate_meter;
