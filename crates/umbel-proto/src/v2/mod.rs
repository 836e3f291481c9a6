//! `kurrentdb.protocol.v2`: services of newer clients.

pub mod errors;
pub mod streams;
