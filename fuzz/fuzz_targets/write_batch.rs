//! Write-ahead log records: a store with any of them opens or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_fuzz::parts::Parts;
use umbel_fuzz::store::{open, template};

fuzz_target!(|input: &[u8]| open(&template().with_log(Parts::new(input))));
