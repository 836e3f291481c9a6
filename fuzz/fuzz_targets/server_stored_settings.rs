//! Groups of consumers, a checkpoint and stopped views as streams keep them, out of any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz_entry_points::stored_settings(input));
