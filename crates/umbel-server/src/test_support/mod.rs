//! Services without a connection and malformed requests, for tests.

mod decoder_equivalence_tests;
mod deferred_drop_tests;
#[cfg(feature = "failpoints")]
pub mod failpoint_list;
mod malformed_kv_request_tests;
mod malformed_request_tests;

pub mod malformed_client;
pub mod test_service;
