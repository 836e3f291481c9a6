//! The event log: a table of chunks and the frame of an event out of any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    umbel_events::fuzz_chunk_table(input);
    umbel_events::fuzz_frame(input);
});
