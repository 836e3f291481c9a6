//! The files of a filter: checkpoint, journal, generations, and their recovery.

pub mod checkpoint;
pub mod directory;
pub mod filter_writer;
pub mod generation_writer;
pub mod journal;
pub mod recovery;
