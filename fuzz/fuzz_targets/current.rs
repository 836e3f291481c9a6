//! The pointer `CURRENT`: a store with any bytes in it opens or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_fuzz::structured_input::Parts;
use umbel_fuzz::template_store::{open, template};

/// Flag in the first byte of an input: the remaining bytes are used unchanged.
const RAW: u64 = 1;

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let raw = parts.number::<1>() & RAW == RAW;
    open(&template().with_current(parts.rest(), !raw));
});
