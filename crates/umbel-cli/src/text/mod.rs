//! Numbers, escaped bytes and suggestions for misspelt names, as text.

pub mod escaping;
pub mod numbers;
pub mod suggestion;
