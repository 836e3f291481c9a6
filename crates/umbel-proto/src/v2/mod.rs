//! `kurrentdb.protocol.v2`: what newer clients call beside the services of the first protocol.

pub mod errors;
pub mod streams;
