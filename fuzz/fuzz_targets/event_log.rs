//! The event log: a table of chunks, the frame of an event, points and gaps of a packed chunk out
//! of any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    umbel_events::fuzz_chunk_manifest(input);
    umbel_events::fuzz_frame(input);
    umbel_events::fuzz_scavenged_chunk(input);
});
