//! Building of a filter of any kind: options, size, plan and builder.

pub mod build_error;
pub mod filter_builder;
pub mod filter_options;
pub mod filter_plan;
pub mod filter_size;
pub mod static_filter_plan;
