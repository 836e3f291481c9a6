//! Decodes any bytes as a chunk manifest, as the frame of an event, and as the position map and
//! removed runs of a scavenged chunk.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    umbel_events::fuzz_chunk_manifest(input);
    umbel_events::fuzz_frame(input);
    umbel_events::fuzz_scavenged_chunk(input);
});
