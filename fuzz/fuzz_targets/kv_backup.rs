//! Decodes any bytes as the objects of a backup of a key-value store in an object store.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    umbel::fuzz_object_backup(input);
});
