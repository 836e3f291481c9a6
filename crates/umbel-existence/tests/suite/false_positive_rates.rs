//! False-positive rate of the filter: as theory says, at its load and far beyond it.

use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::{Error, Result};
use umbel_existence::{
    ExistenceFilter, ExistenceOptions, ExistenceSize, HashSource, false_positive_rate,
};

use super::fixture::{insert, machine, open, small};
use umbel_testing::existence_script::memory_hash_source::{Keys, hash_of, settle};

/// A source of the keys with the numbers below a bound, in their order; the cursor is a number.
#[derive(Debug, Default)]
struct Numbered {
    /// The bound.
    count: AtomicU64,
}

impl HashSource for Numbered {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let start = after.map_or(Ok(0), |bytes| bytes.try_into().map(u64::from_le_bytes));
        let start = start.map_err(|_| Error::invalid("no cursor of this source"))?;
        let count = self.count.load(Ordering::Acquire);
        let end = count.min(start + most as u64);
        output.extend((start..end).map(hash_of));
        Ok((end < count).then(|| end.to_le_bytes().to_vec()))
    }
}

/// Share of absent keys that pass, measured with this number of probes.
fn measured(filter: &ExistenceFilter, queries: u64) -> f64 {
    let absent = (1 << 40)..(1 << 40) + queries;
    let passed = absent.filter(|number| filter.may_contain(hash_of(*number))).count();
    passed as f64 / queries as f64
}

#[test]
fn a_filter_of_a_fixed_size_saturates_as_theory_says() {
    let options = ExistenceOptions { size: ExistenceSize::Fixed { bytes: 256 * 1024 }, ..small() };
    let filter = open(&machine(), options).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    let (lines, design) = (4096, filter.stats().designed_items);
    assert_eq!(design, lines * 60);
    let mut inserted = 0;
    for times in [1, 2, 4, 8] {
        insert(&filter, inserted..design * times);
        inserted = design * times;
        let theory = false_positive_rate(inserted, lines, 5);
        let found = measured(&filter, 400_000);
        let estimated = filter.stats().estimated_rate;
        println!("{times} x: theory {theory:.5}, measured {found:.5}, estimated {estimated:.5}");
        assert!((found / theory - 1.0).abs() < 0.05, "{times} x: {found} for {theory}");
        assert!((estimated / theory - 1.0).abs() < 0.05, "{times} x: {estimated} for {theory}");
    }
    let stats = filter.stats();
    assert_eq!((stats.growths, stats.rebuilds, stats.damaged_lines), (0, 1, 0));
    settle(&filter, &Keys::default()).unwrap();
    // A filled line is not damaged, and stays so over a restart.
    assert_eq!(filter.stats().rebuilds, 1);
}

#[test]
fn growing_filter_keeps_its_rate_up_to_100_times_its_size() {
    const FIRST: u64 = 1 << 14;
    let options = ExistenceOptions {
        size: ExistenceSize::Growing { first_keys: FIRST },
        step_bytes: 1 << 20,
        ..small()
    };
    let filter = open(&machine(), options).unwrap();
    settle(&filter, &Keys::default()).unwrap();
    let source = Numbered::default();
    let (mut worst, mut worst_estimated) = (0.0f64, 0.0f64);
    for thousand in 1..=FIRST * 100 / 1000 {
        let (start, end) = ((thousand - 1) * 1000, thousand * 1000);
        source.count.store(end, Ordering::Release);
        insert(&filter, start..end);
        for _ in 0..6 {
            filter.step(&source).unwrap();
        }
        if thousand % 20 == 0 {
            filter.flush(end).unwrap();
            worst_estimated = worst_estimated.max(filter.stats().estimated_rate);
        }
        if thousand % 100 == 0 {
            worst = worst.max(measured(&filter, 50_000));
        }
    }
    let stats = filter.stats();
    println!("worst measured {worst:.5}, estimated {worst_estimated:.5}: {stats:?}");
    assert!(stats.growths >= 6, "{stats:?}");
    // 10 bits a key in lines of 480: the design, whatever the size.
    let designed = false_positive_rate(48 << 20, 1 << 20, 6);
    assert!((0.008..0.013).contains(&designed), "{designed}");
    assert!(worst_estimated < designed * 1.2, "{worst_estimated} for {designed}");
    assert!(worst < designed * 1.2, "{worst} for {designed}");
}
