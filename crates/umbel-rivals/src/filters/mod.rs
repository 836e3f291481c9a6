//! The other comparison: filters of `umbel-filter` beside those of other crates, in one run.
//!
//! Every filter gets the same keys, or the same hashes of them, is asked the same questions in the
//! same order, and is looked at by turns, so that what else the machine does meets all of them.
//! Times are processor time of the thread that asks. Loops are inside each filter's own code, so
//! that calls are inlined as in a program that knows its filter.

pub mod arguments;
pub mod contestant;
pub mod keys;
mod kinds;
pub mod list;
mod others;
mod ours;
pub mod report;
pub mod run;
