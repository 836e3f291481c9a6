//! Decodes any bytes as a request of the HTTP API.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz_entry_points::http_requests(input));
