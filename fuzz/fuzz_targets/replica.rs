//! Decodes any bytes as the record of the last applied slot of a replica.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| umbel_events::fuzz_replica(body));
