//! The bytes of a call of batches, with messages over the limit among them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz_entry_points::batches(input));
