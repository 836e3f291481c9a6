//! Authentication by password or certificate, authorization of calls, TLS.

pub mod authorization;
pub mod basic_authentication;
pub mod call_admission;
pub mod client_certificate_verifier;
pub mod login_queue;
pub mod password_threads;
pub mod tls;
pub mod x509_certificate;
