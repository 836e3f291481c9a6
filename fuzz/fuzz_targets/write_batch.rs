//! Write-ahead log records: a store whose WAL has any such records opens or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_fuzz::structured_input::Parts;
use umbel_fuzz::template_store::{open, template};

fuzz_target!(|input: &[u8]| open(&template().with_log(Parts::new(input))));
