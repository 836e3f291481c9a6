//! Comparison of engines as queues and time series, whose elements are deleted soon after they were
//! put. Each pop passes the place of every element deleted before, unless the engine avoids that.

pub mod queue_arguments;
pub mod queue_report;
pub mod queue_run;
pub mod workload;
