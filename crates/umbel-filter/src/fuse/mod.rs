//! The binary fuse filter: an absent key passes with the chance of 2 to the minus fingerprint
//! bits, for an eighth more space than theory demands, or a thirteenth in the four-wise form.
//!
//! Every key has a fingerprint and one slot in each of three (or four) neighbouring segments of a
//! long array. The slots are filled so that those of a key, combined by exclusive or, are its
//! fingerprint. After Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters"
//! (2022). The bytes are described in `docs/formats/filter-fuse.md`.

mod builder;
mod packed;
mod peel;
mod shape;
mod view;

pub use builder::{CannotPeel, FuseBuilder};
pub use shape::FuseArity;
pub use view::FuseView;

/// FORMAT: the number of this kind of filter.
const KIND: u8 = 5;
