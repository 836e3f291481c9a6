//! Compaction: which tables are merged, what of them is kept, how it is run, and how fast writers
//! may go meanwhile.

pub mod last;
pub mod older;
pub mod pick;
pub mod pressure;
pub mod stream;
