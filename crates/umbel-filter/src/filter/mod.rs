//! A filter of any kind: view, owned filter, file, union, intersection and folding.

pub mod combined_filters;
pub mod counting_bloom;
pub mod filter_file;
pub mod filter_view;
pub mod owned_filter;
pub mod static_filter_views;
