//! The comparison of key-value engines: phases, populations, runs, memory and reports.

pub mod key_population;
pub mod kv_arguments;
pub mod kv_report;
pub mod kv_results;
pub mod kv_run;
pub mod memory_peak;
pub mod phase;
pub mod phase_runner;
pub mod read_while_writing;
