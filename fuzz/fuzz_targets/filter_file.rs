//! Filter files: any bytes are read, and probes of the result do not panic. A file
//! around any bytes is read back or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::{FilterFile, FilterFileError, HashKind};

fuzz_target!(|input: &[u8]| {
    read(input);
    match FilterFile::encode(HashKind::Keyed, [7; 16], input) {
        Ok(around) => {
            let file = FilterFile::parse(&around).expect("what was written is read");
            assert_eq!(file.filter_bytes(), input);
            read(&around);
        }
        Err(FilterFileError::Filter(_) | FilterFileError::HashMismatch { .. }) => {}
        Err(error) => panic!("{error}"),
    }
});

fn read(bytes: &[u8]) {
    if let Ok(file) = FilterFile::parse(bytes) {
        for key in [&b""[..], b"a", &[0; 300], bytes] {
            let hash = file.hasher().hash(key);
            assert_eq!(file.may_contain(key), file.view().contains(hash));
        }
    }
}
