//! Results as a table for the terminal, as a comparison and as an HTML page.

pub mod compare_results;
pub mod html;
pub mod terminal_table;
