//! Building of a table file.

pub mod output_file;
pub mod table_builder;
