//! The manifest of a backup of an event store out of any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    umbel_events::fuzz_backup_manifest(input);
});
