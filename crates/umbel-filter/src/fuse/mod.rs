//! The binary fuse filter: an absent key passes with a probability of 2 to the minus fingerprint
//! bits. The filter takes an eighth more space than the theoretical minimum, or a thirteenth more
//! with four slots a key.
//!
//! Every key has a fingerprint and one slot in each of three (or four) adjacent segments of a long
//! array. The slots are filled so that the slots of a key, combined by exclusive or, are its
//! fingerprint. After Graf and Lemire, "Binary Fuse Filters: Fast and Smaller Than Xor Filters"
//! (2022). The bytes are described in `docs/formats/filter-fuse.md`.

mod fingerprint_packing;
mod fuse_builder;
mod fuse_view;
mod peeling;
mod slot_layout;

pub use fuse_builder::{FuseBuilder, PeelingError};
pub use fuse_view::FuseView;
pub use slot_layout::FuseArity;

/// FORMAT: the number of this kind of filter.
const KIND: u8 = 5;
