//! What takes part: filters that are given hashes, and filters that are given keys.

use std::hint::black_box;

use umbel_lab::engine::Result;

use crate::filters::keys::Key;

/// How many keys are hashed before a filter is asked for all of them at once.
const BATCH: usize = 256;

/// A filter that takes a hash of 64 bits.
pub trait OfHashes: Sized + 'static {
    /// What the table calls it.
    const NAME: &'static str;
    /// The crate it is in.
    const PACKAGE: &'static str;
    /// What hashes keys for it, where keys are given.
    const HASH: &'static str = "xxh3";

    /// The filter of these hashes, none of which comes twice.
    fn build(hashes: &[u64]) -> Result<Self>;

    /// How large it is, where that can be learned.
    fn bits(&self) -> Option<u64>;

    /// What is asked; made once for many hashes.
    type Asked<'a>;

    /// What is asked.
    fn asked(&self) -> Self::Asked<'_>;

    /// Whether it lets a hash through. Always part of the loop that asks, so that what the compiler
    /// makes a call of is the crate's business alone.
    fn contains(asked: &Self::Asked<'_>, hash: u64) -> bool;

    /// Asks for all at once. Whether the filter can do that.
    fn batch(&self, _hashes: &[u64], _found: &mut [bool]) -> bool {
        false
    }

    /// The hash of a key.
    fn hash(key: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64(key)
    }
}

/// A filter that takes keys and hashes them itself.
pub trait OfKeys: Sized + 'static {
    /// What the table calls it.
    const NAME: &'static str;
    /// The crate it is in.
    const PACKAGE: &'static str;
    /// What it hashes keys with.
    const HASH: &'static str;

    /// The filter of these keys, none of which comes twice.
    fn build(keys: &[Key]) -> Result<Self>;

    /// How large it is, where that can be learned.
    fn bits(&self) -> Option<u64>;

    /// Whether it lets `key` through.
    fn contains(&self, key: &[u8]) -> bool;
}

/// What filters are made of and asked for.
#[derive(Debug, Clone, Copy)]
pub enum Items<'a> {
    /// Hashes.
    Hashes(&'a [u64]),
    /// Keys, to be hashed.
    Keys(&'a [Key]),
}

impl Items<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Items::Hashes(hashes) => hashes.len(),
            Items::Keys(keys) => keys.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A filter that is built.
pub trait Built {
    /// How large it is, where that can be learned.
    fn bits(&self) -> Option<u64>;

    /// How many of these it lets through, asked one by one.
    fn count(&self, items: Items<'_>) -> u64;

    /// As `count`, but no question is known before the answer to the one before it is.
    fn count_in_turn(&self, items: Items<'_>) -> u64;

    /// How many it lets through, asked for all at once; `None` where it cannot do that.
    fn batch(&self, items: Items<'_>, found: &mut [bool]) -> Option<u64>;
}

/// One that takes part.
#[derive(Debug, Clone, Copy)]
pub struct Contestant {
    /// What the table calls it.
    pub name: &'static str,
    /// The crate it is in.
    pub package: &'static str,
    /// What hashes keys, where keys are given.
    pub hash: &'static str,
    /// Builds it.
    pub build: fn(Items<'_>) -> Result<Box<dyn Built>>,
}

impl Contestant {
    /// A filter that takes hashes, to be given hashes.
    pub fn of_hashes<F: OfHashes>() -> Contestant {
        Contestant { name: F::NAME, package: F::PACKAGE, hash: "", build: build_of_hashes::<F> }
    }

    /// A filter that takes hashes, to be given keys.
    pub fn hashing<F: OfHashes>() -> Contestant {
        Contestant { name: F::NAME, package: F::PACKAGE, hash: F::HASH, build: build_hashing::<F> }
    }

    /// A filter that takes keys.
    pub fn of_keys<F: OfKeys>() -> Contestant {
        Contestant { name: F::NAME, package: F::PACKAGE, hash: F::HASH, build: build_of_keys::<F> }
    }
}

struct Hashes<F>(F);
struct Hashing<F>(F);
struct Keys<F>(F);

fn build_of_hashes<F: OfHashes>(items: Items<'_>) -> Result<Box<dyn Built>> {
    match items {
        Items::Hashes(hashes) => Ok(Box::new(Hashes(F::build(hashes)?))),
        Items::Keys(_) => Err("this filter takes hashes".into()),
    }
}

fn build_hashing<F: OfHashes>(items: Items<'_>) -> Result<Box<dyn Built>> {
    match items {
        Items::Keys(keys) => {
            let hashes: Vec<u64> = keys.iter().map(|key| F::hash(key)).collect();
            Ok(Box::new(Hashing(F::build(&hashes)?)))
        }
        Items::Hashes(_) => Err("this filter takes keys".into()),
    }
}

fn build_of_keys<F: OfKeys>(items: Items<'_>) -> Result<Box<dyn Built>> {
    match items {
        Items::Keys(keys) => Ok(Box::new(Keys(F::build(keys)?))),
        Items::Hashes(_) => Err("this filter takes keys".into()),
    }
}

/// Asks for one after the other: where each stands depends on the answer before, so that no memory
/// is waited for ahead but by a guess.
#[inline(always)]
fn in_turn<T>(items: &[T], ask: impl Fn(&T) -> bool) -> u64 {
    let nothing = black_box(0);
    let (mut passed, mut answer) = (0, false);
    for at in 0..items.len() {
        answer = items.get(at + (usize::from(answer) & nothing)).is_some_and(&ask);
        passed += u64::from(answer);
    }
    passed
}

fn passed(found: &[bool]) -> u64 {
    black_box(found).iter().filter(|found| **found).count() as u64
}

impl<F: OfHashes> Built for Hashes<F> {
    fn bits(&self) -> Option<u64> {
        self.0.bits()
    }

    fn count(&self, items: Items<'_>) -> u64 {
        match items {
            Items::Hashes(hashes) => {
                let asked = self.0.asked();
                hashes.iter().filter(|hash| F::contains(&asked, **hash)).count() as u64
            }
            Items::Keys(_) => 0,
        }
    }

    fn count_in_turn(&self, items: Items<'_>) -> u64 {
        let asked = self.0.asked();
        match items {
            Items::Hashes(hashes) => in_turn(hashes, |hash| F::contains(&asked, *hash)),
            Items::Keys(_) => 0,
        }
    }

    fn batch(&self, items: Items<'_>, found: &mut [bool]) -> Option<u64> {
        let Items::Hashes(hashes) = items else { return None };
        self.0.batch(hashes, found).then(|| passed(found))
    }
}

impl<F: OfHashes> Built for Hashing<F> {
    fn bits(&self) -> Option<u64> {
        self.0.bits()
    }

    fn count(&self, items: Items<'_>) -> u64 {
        match items {
            Items::Keys(keys) => {
                let asked = self.0.asked();
                keys.iter().filter(|key| F::contains(&asked, F::hash(*key))).count() as u64
            }
            Items::Hashes(_) => 0,
        }
    }

    fn count_in_turn(&self, items: Items<'_>) -> u64 {
        let asked = self.0.asked();
        match items {
            Items::Keys(keys) => in_turn(keys, |key| F::contains(&asked, F::hash(key))),
            Items::Hashes(_) => 0,
        }
    }

    fn batch(&self, items: Items<'_>, found: &mut [bool]) -> Option<u64> {
        let Items::Keys(keys) = items else { return None };
        let mut hashes = [0; BATCH];
        for (keys, found) in keys.chunks(BATCH).zip(found.chunks_mut(BATCH)) {
            for (hash, key) in hashes.iter_mut().zip(keys) {
                *hash = F::hash(key);
            }
            if !self.0.batch(&hashes[..keys.len()], found) {
                return None;
            }
        }
        Some(passed(found))
    }
}

impl<F: OfKeys> Built for Keys<F> {
    fn bits(&self) -> Option<u64> {
        self.0.bits()
    }

    fn count(&self, items: Items<'_>) -> u64 {
        match items {
            Items::Keys(keys) => keys.iter().filter(|key| self.0.contains(*key)).count() as u64,
            Items::Hashes(_) => 0,
        }
    }

    fn count_in_turn(&self, items: Items<'_>) -> u64 {
        match items {
            Items::Keys(keys) => in_turn(keys, |key| self.0.contains(key)),
            Items::Hashes(_) => 0,
        }
    }

    fn batch(&self, _items: Items<'_>, _found: &mut [bool]) -> Option<u64> {
        None
    }
}
