//! Filters that take part in the comparison: some get hashes, some get keys.

use std::hint::black_box;

use umbel_lab::engine::Result;

use crate::filters::filter_keys::Key;

/// Number of keys that are hashed before a filter is probed for all of them at once.
const BATCH: usize = 256;

/// Filter that takes a hash of 64 bits.
pub trait HashFilter: Sized + 'static {
    /// Name in the table.
    const NAME: &'static str;
    /// Crate of the filter.
    const PACKAGE: &'static str;
    /// Hash function for keys, used if the filter gets keys.
    const HASH: &'static str = "xxh3";

    /// Builds the filter of these hashes, which are distinct.
    fn build(hashes: &[u64]) -> Result<Self>;

    /// Returns the size of the filter in bits, if known.
    fn bits(&self) -> Option<u64>;

    /// Prepared form of the filter that is probed; made once for many probes.
    type Probe<'a>;

    /// Prepares the filter for probes.
    fn probe(&self) -> Self::Probe<'_>;

    /// Whether the filter passes a hash. Always inlined into the probing loop, so that only the
    /// filter's crate decides which functions are called instead of inlined.
    fn contains(probe: &Self::Probe<'_>, hash: u64) -> bool;

    /// Probes all hashes at once. Returns whether the filter can do that.
    fn batch(&self, _hashes: &[u64], _found: &mut [bool]) -> bool {
        false
    }

    /// Hashes a key.
    fn hash(key: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64(key)
    }
}

/// Filter that takes keys and hashes them itself.
pub trait KeyFilter: Sized + 'static {
    /// Name in the table.
    const NAME: &'static str;
    /// Crate of the filter.
    const PACKAGE: &'static str;
    /// Hash function of the filter.
    const HASH: &'static str;

    /// Builds the filter of these keys, which are distinct.
    fn build(keys: &[Key]) -> Result<Self>;

    /// Returns the size of the filter in bits, if known.
    fn bits(&self) -> Option<u64>;

    /// Whether the filter passes `key`.
    fn contains(&self, key: &[u8]) -> bool;
}

/// Keys with which filters are built and probed.
#[derive(Debug, Clone, Copy)]
pub enum FilterItems<'a> {
    /// Hashes of keys.
    Hashes(&'a [u64]),
    /// Keys that the filter hashes.
    Keys(&'a [Key]),
}

impl FilterItems<'_> {
    /// Returns the number of items.
    pub fn len(&self) -> usize {
        match self {
            FilterItems::Hashes(hashes) => hashes.len(),
            FilterItems::Keys(keys) => keys.len(),
        }
    }

    /// Whether the list has no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Filter that is built.
pub trait BuiltFilter {
    /// Returns the size of the filter in bits, if known.
    fn bits(&self) -> Option<u64>;

    /// Counts the items that the filter passes, probed one at a time.
    fn count(&self, items: FilterItems<'_>) -> u64;

    /// Counts like `count`, but each probe depends on the answer to the probe before it.
    fn count_dependent(&self, items: FilterItems<'_>) -> u64;

    /// Counts the items that the filter passes, probed all at once; `None` if the filter cannot do
    /// that.
    fn batch(&self, items: FilterItems<'_>, found: &mut [bool]) -> Option<u64>;
}

/// Filter that takes part in the comparison.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Name in the table.
    pub name: &'static str,
    /// Crate of the filter.
    pub package: &'static str,
    /// Hash function for keys, used if the filter gets keys.
    pub hash: &'static str,
    /// Builds the filter.
    pub build: fn(FilterItems<'_>) -> Result<Box<dyn BuiltFilter>>,
}

impl Candidate {
    /// Returns the candidate of a filter that takes hashes, and gets hashes.
    pub fn of_hashes<F: HashFilter>() -> Candidate {
        Candidate { name: F::NAME, package: F::PACKAGE, hash: "", build: build_of_hashes::<F> }
    }

    /// Returns the candidate of a filter that takes hashes, and gets keys.
    pub fn hashing<F: HashFilter>() -> Candidate {
        Candidate { name: F::NAME, package: F::PACKAGE, hash: F::HASH, build: build_hashing::<F> }
    }

    /// Returns the candidate of a filter that takes keys.
    pub fn of_keys<F: KeyFilter>() -> Candidate {
        Candidate { name: F::NAME, package: F::PACKAGE, hash: F::HASH, build: build_of_keys::<F> }
    }
}

struct BuiltFromHashes<F>(F);
struct BuiltWithHashing<F>(F);
struct BuiltFromKeys<F>(F);

fn build_of_hashes<F: HashFilter>(items: FilterItems<'_>) -> Result<Box<dyn BuiltFilter>> {
    match items {
        FilterItems::Hashes(hashes) => Ok(Box::new(BuiltFromHashes(F::build(hashes)?))),
        FilterItems::Keys(_) => Err("this filter takes hashes".into()),
    }
}

fn build_hashing<F: HashFilter>(items: FilterItems<'_>) -> Result<Box<dyn BuiltFilter>> {
    match items {
        FilterItems::Keys(keys) => {
            let hashes: Vec<u64> = keys.iter().map(|key| F::hash(key)).collect();
            Ok(Box::new(BuiltWithHashing(F::build(&hashes)?)))
        }
        FilterItems::Hashes(_) => Err("this filter takes keys".into()),
    }
}

fn build_of_keys<F: KeyFilter>(items: FilterItems<'_>) -> Result<Box<dyn BuiltFilter>> {
    match items {
        FilterItems::Keys(keys) => Ok(Box::new(BuiltFromKeys(F::build(keys)?))),
        FilterItems::Hashes(_) => Err("this filter takes keys".into()),
    }
}

/// Probes the items one after the other. The place of each item depends on the answer before it, so
/// the processor can load ahead only by guessing.
#[inline(always)]
fn count_dependent_hashes<T>(items: &[T], probe: impl Fn(&T) -> bool) -> u64 {
    let nothing = black_box(0);
    let (mut passed, mut answer) = (0, false);
    for at in 0..items.len() {
        answer = items.get(at + (usize::from(answer) & nothing)).is_some_and(&probe);
        passed += u64::from(answer);
    }
    passed
}

fn count_positives(found: &[bool]) -> u64 {
    black_box(found).iter().filter(|found| **found).count() as u64
}

impl<F: HashFilter> BuiltFilter for BuiltFromHashes<F> {
    fn bits(&self) -> Option<u64> {
        self.0.bits()
    }

    fn count(&self, items: FilterItems<'_>) -> u64 {
        match items {
            FilterItems::Hashes(hashes) => {
                let probe = self.0.probe();
                hashes.iter().filter(|hash| F::contains(&probe, **hash)).count() as u64
            }
            FilterItems::Keys(_) => 0,
        }
    }

    fn count_dependent(&self, items: FilterItems<'_>) -> u64 {
        let probe = self.0.probe();
        match items {
            FilterItems::Hashes(hashes) => {
                count_dependent_hashes(hashes, |hash| F::contains(&probe, *hash))
            }
            FilterItems::Keys(_) => 0,
        }
    }

    fn batch(&self, items: FilterItems<'_>, found: &mut [bool]) -> Option<u64> {
        let FilterItems::Hashes(hashes) = items else { return None };
        self.0.batch(hashes, found).then(|| count_positives(found))
    }
}

impl<F: HashFilter> BuiltFilter for BuiltWithHashing<F> {
    fn bits(&self) -> Option<u64> {
        self.0.bits()
    }

    fn count(&self, items: FilterItems<'_>) -> u64 {
        match items {
            FilterItems::Keys(keys) => {
                let probe = self.0.probe();
                keys.iter().filter(|key| F::contains(&probe, F::hash(*key))).count() as u64
            }
            FilterItems::Hashes(_) => 0,
        }
    }

    fn count_dependent(&self, items: FilterItems<'_>) -> u64 {
        let probe = self.0.probe();
        match items {
            FilterItems::Keys(keys) => {
                count_dependent_hashes(keys, |key| F::contains(&probe, F::hash(key)))
            }
            FilterItems::Hashes(_) => 0,
        }
    }

    fn batch(&self, items: FilterItems<'_>, found: &mut [bool]) -> Option<u64> {
        let FilterItems::Keys(keys) = items else { return None };
        let mut hashes = [0; BATCH];
        for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = F::hash(key);
            }
            if !self.0.batch(&hashes[..keys.len()], found) {
                return None;
            }
        }
        Some(count_positives(found))
    }
}

impl<F: KeyFilter> BuiltFilter for BuiltFromKeys<F> {
    fn bits(&self) -> Option<u64> {
        self.0.bits()
    }

    fn count(&self, items: FilterItems<'_>) -> u64 {
        match items {
            FilterItems::Keys(keys) => {
                keys.iter().filter(|key| self.0.contains(*key)).count() as u64
            }
            FilterItems::Hashes(_) => 0,
        }
    }

    fn count_dependent(&self, items: FilterItems<'_>) -> u64 {
        match items {
            FilterItems::Keys(keys) => count_dependent_hashes(keys, |key| self.0.contains(key)),
            FilterItems::Hashes(_) => 0,
        }
    }

    fn batch(&self, _items: FilterItems<'_>, _found: &mut [bool]) -> Option<u64> {
        None
    }
}
