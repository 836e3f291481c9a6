//! Authentication by password or certificate, authorization of calls, TLS.

pub mod admission;
pub mod authentication;
pub mod authorization;
pub mod tls;
