//! Standard input, standard output and progress on standard error.

pub mod input;
pub mod line_reader;
pub mod output;
pub mod progress;
pub mod temporary_directory;

#[cfg(unix)]
pub mod file_size_signal;
