//! Campaigns against the server: concurrent clients, valid and invalid calls.

pub mod calls;
pub mod concurrent_clients;
