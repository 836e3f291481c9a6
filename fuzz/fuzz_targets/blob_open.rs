//! Blob files: reading and verifying a file that opens have the same outcome, and a read value
//! matches its pointer.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use umbel_blob::{BlobReader, file_bytes};
use umbel_env::File;
use umbel_fuzz::blob_file::{FILE_ID, assemble};
use umbel_fuzz::memory_env::MemoryFile;
use umbel_fuzz::structured_input::Parts;

/// Flag in the first byte of an input: the remaining bytes are used unchanged.
const RAW: u64 = 1;

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let raw = parts.number::<1>() & RAW == RAW;
    let bytes = if raw { parts.rest().to_vec() } else { assemble(parts) };
    let file = || MemoryFile::alone("/000007.blob", bytes.clone()) as Arc<dyn File>;
    let Ok(blob) = BlobReader::open_standalone(file(), FILE_ID) else { return };
    let pointer = *blob.pointer();
    assert_eq!(bytes.len() as u64, file_bytes(pointer.value_bytes));
    let (value, verified) = (blob.value(), blob.verify());
    assert_eq!(value.is_ok(), verified.is_ok());
    let Ok(value) = value else { return };
    assert_eq!(value.len() as u64, pointer.value_bytes);
    assert!(umbel_blob::read(file(), &pointer).is_ok_and(|again| again == value));
    // There is one file for each value and id.
    let again = MemoryFile::alone("/again.blob", Vec::new());
    let written = umbel_blob::write(&*again, FILE_ID, &value).expect("memory is never full");
    assert_eq!(written, pointer);
    assert!(again.bytes() == bytes);
});
