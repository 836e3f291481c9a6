//! The headers of encoded filters, their kinds and their errors.

pub mod bloom_header;
pub mod filter_header;
pub mod filter_kind;
pub mod static_filter_header;
