//! Campaigns against the server: concurrent clients, right and wrong calls.

pub mod calls;
pub mod concurrent_clients;
