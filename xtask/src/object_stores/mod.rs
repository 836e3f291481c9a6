//! Servers of object stores for checks, each installed by its registry's client, and a campaign of
//! backups into them.

pub mod campaign;
pub mod campaign_report;
pub mod object_server;
pub mod store_process;
