//! Salvages a chunk of an event log in which any bytes are overwritten.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    umbel_events::fuzz_repair(input);
});
