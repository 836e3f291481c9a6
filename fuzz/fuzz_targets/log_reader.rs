//! Log files: reading any bytes ends, and returns records in order and inside the file, or an
//! error.
#![no_main]

use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use umbel_env::Env;
use umbel_fuzz::log_file;
use umbel_fuzz::memory_env::{Image, MemoryFiles};
use umbel_fuzz::structured_input::Parts;
use umbel_log::{ExpectedEnd, LogKind, LogReader, ReadOutcome, Seal};

const LOG_ID: u64 = 3;
const PATH: &str = "000003.log";
/// Flag in the first byte of an input: the remaining bytes are used unchanged.
const RAW: u64 = 1;

fn read(env: &Env, len: u64, expectation: ExpectedEnd) -> Option<ReadOutcome> {
    let path = Path::new(PATH);
    let mut reader = LogReader::open(env, path, LogKind::WriteAhead, LOG_ID, expectation).ok()?;
    let mut sequence = 0;
    while let Some(record) = reader.next().ok()? {
        assert!(record.sequence >= sequence, "sequence numbers go back");
        assert!(record.offset + record.payload.len() as u64 <= len, "a record out of nowhere");
        sequence = record.sequence;
    }
    Some(reader.outcome())
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let file = match parts.number::<1>() & RAW {
        RAW => parts.rest().to_vec(),
        _ => log_file::assemble(LogKind::WriteAhead, LOG_ID, parts),
    };
    let len = file.len() as u64;
    let env = MemoryFiles::new(&Image::from([(PathBuf::from(PATH), file)])).env();
    let Some(outcome) = read(&env, len, ExpectedEnd::Open) else { return };
    assert!(outcome.end <= len);
    // A log that says it was sealed here must be accepted as sealed here.
    let sealed = Seal { len: outcome.end, checksum: outcome.checksum };
    let again = read(&env, len, ExpectedEnd::Sealed(sealed));
    if outcome.sealed {
        assert_eq!(again.map(|again| again.records), Some(outcome.records));
    }
});
