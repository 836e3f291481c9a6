//! Servers of object stores for checks, each installed by its registry's client, a campaign of
//! backups into them, and the throughput of backups.

pub mod append_load;
pub mod campaign;
pub mod campaign_options;
pub mod campaign_report;
pub mod ceph_cluster;
pub mod measured_run;
pub mod object_server;
pub mod store_kind;
pub mod store_process;
pub mod throughput;
pub mod throughput_report;
