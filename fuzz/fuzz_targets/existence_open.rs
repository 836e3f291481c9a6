//! The files of an existence filter: any bytes open or are refused, and the filter never excludes
//! later inserts, even after the next open.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use umbel_base::Error;
use umbel_existence::{ExistenceFilter, ExistenceOptions, ExistenceSize, HashSource, StepProgress};
use umbel_fuzz::existence_files::{FOLDER, WHOSE, assemble, with_raw};
use umbel_fuzz::memory_env::{Image, MemoryFiles};
use umbel_fuzz::structured_input::Parts;

const KEYS: std::ops::Range<u64> = 0..50;
/// Number of background steps after which even the largest filter of an input has no work left.
const STEPS_MAX: usize = 10_000;

fn hash(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
}

struct Keys;

impl HashSource for Keys {
    fn hashes(
        &self,
        _after: Option<&[u8]>,
        _most: usize,
        output: &mut Vec<u64>,
    ) -> umbel_base::Result<Option<Vec<u8>>> {
        output.extend(KEYS.map(hash));
        Ok(None)
    }
}

fn options() -> ExistenceOptions {
    ExistenceOptions {
        size: ExistenceSize::Fixed { bytes: 4096 },
        store: WHOSE.0,
        hash: WHOSE.1,
        step_bytes: 4096,
        covered_min: 0,
        covered_max: u64::MAX,
    }
}

fn assert_there(filter: &ExistenceFilter) {
    assert!(KEYS.map(hash).all(|hash| filter.may_contain(hash)));
}

fn live(image: &Image) {
    let files = MemoryFiles::new(image);
    let (env, folder) = (files.env(), Path::new(FOLDER));
    let filter = match ExistenceFilter::open(&env, folder, options()) {
        Ok(filter) => filter,
        Err(Error::Invalid(_)) => return,
        Err(error) => panic!("damage is no error: {error}"),
    };
    let position = filter.covered().saturating_add(1);
    KEYS.map(hash).for_each(|hash| filter.insert(hash));
    assert_there(&filter);
    let is_over = |_: &usize| filter.step(&Keys).expect("memory is no disk") == StepProgress::Idle;
    assert!((0..STEPS_MAX).find(is_over).is_some(), "the steps do not end");
    assert_there(&filter);
    assert_eq!(filter.stats().damaged_lines, 0);
    filter.flush(position).expect("memory is never full");
    let again = ExistenceFilter::open(&env, folder, options()).expect("it was just written");
    assert_eq!((again.covered(), again.stats().lost), (position, None));
    assert_there(&again);
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    match parts.number::<1>() {
        0 => live(&assemble(parts)),
        mode => live(&with_raw((mode - 1) as u8, parts.rest())),
    }
});
