//! The head of a view, and a block of one, out of any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_events::fuzz_view(input));
