//! Decodes any bytes as the manifest of a backup of an event store.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    umbel_events::fuzz_backup_manifest(input);
});
