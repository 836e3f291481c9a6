//! The lab: experiments about filter settings, which any user can repeat, and workloads that all
//! measurements share.
//!
//! An [`experiment`] is a table of facts in a file of its own. [`runner`] measures it in rounds.
//! [`measure`] checks each repetition, and the journal of [`results`] keeps it. [`workload`]
//! prepares the input and compares the engines' answers. The result is an outcome, which
//! [`results`] keeps in a file. [`report`] shows an outcome or compares two of them. [`engine`] is
//! the interface of the measured stores.
#![forbid(unsafe_code)]

pub mod command_line;
pub mod engine;
pub mod experiment;
pub mod experiments;
pub mod lab_error;
pub mod measure;
pub mod number_format;
pub mod report;
pub mod results;
pub mod runner;
pub mod workload;
