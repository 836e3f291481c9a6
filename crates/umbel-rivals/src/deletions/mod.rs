//! Comparison of the disk space that engines free after deletes: in idle time, and under steady
//! writes that delete as much as they put.

pub mod deletion_arguments;
pub mod deletion_kind;
pub mod deletion_report;
pub mod deletion_run;
