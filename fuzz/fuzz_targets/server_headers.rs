//! Decodes any bytes as headers of a request and as the query string of a console page.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz_entry_points::headers(input));
