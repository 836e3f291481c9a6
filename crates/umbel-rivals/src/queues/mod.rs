//! Comparison of engines as queues and time series, whose elements are deleted soon after they were
//! put. Each pop passes the tombstones of all elements deleted before, unless the engine avoids
//! that.

pub mod queue_arguments;
pub mod queue_report;
pub mod queue_run;
pub mod workload;
