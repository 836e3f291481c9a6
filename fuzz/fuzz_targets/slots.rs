//! Decodes any bytes as the objects of a replicated log, and as entries of slots.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    umbel_slots::fuzz_slot(input);
});
