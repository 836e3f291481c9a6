//! Code that tests and campaigns of several crates share. For tests only.
//!
//! [`existence_script`] has the seeded scripts of an existence filter, which the tests of
//! `umbel-existence` and `umbel-torture` run. [`server_connection`] is the client connection of the
//! tests of the server and the command line, and of the load clients.
#![forbid(unsafe_code)]

pub mod existence_script;
pub mod server_connection;
