//! Hostile and broken clients. Each attack gets a response or is ended, other clients are served
//! meanwhile, and neither memory nor tasks leak. The attacks run one at a time.

mod floods;
mod malformed_messages;
mod memory_amplification;
mod raw_connection;
mod slow_clients;
mod target_server;
mod truncated_requests;
