//! Authentication by password or certificate, authorization of calls, TLS.

pub mod authorization;
pub mod basic_authentication;
pub mod caller_role_check;
pub mod tls;
