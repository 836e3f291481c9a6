//! [`LazyFlag`]: caches whether a store has any item of a kind that few stores have.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether a store has any item of a kind that most stores do not have, such as tombstones. The
/// first query examines the store; later additions of items set the flag.
#[derive(Debug, Default)]
pub struct LazyFlag(AtomicU8);

const ABSENT: u8 = 1;
const PRESENT: u8 = 2;

impl LazyFlag {
    /// Records that the store has such an item. REQUIRES: the new item is not visible yet.
    pub fn set_present(&self) {
        self.0.store(PRESENT, Ordering::Release);
    }

    /// Whether the store has a visible item; the first call asks `check`.
    pub fn is_present<E>(&self, check: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
        match self.0.load(Ordering::Acquire) {
            ABSENT => Ok(false),
            PRESENT => Ok(true),
            unknown => {
                let found = if check()? { PRESENT } else { ABSENT };
                // The flag may have been set meanwhile.
                let set = (Ordering::AcqRel, Ordering::Acquire);
                let changed = self.0.compare_exchange(unknown, found, set.0, set.1);
                Ok(changed.map_or_else(|present| present, |_| found) == PRESENT)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addition_during_a_check_is_not_missed() {
        let seldom = LazyFlag::default();
        assert!(!seldom.is_present(|| Ok::<_, ()>(false)).expect("checked"));
        assert!(!seldom.is_present(|| Err("it is present")).expect("known"));
        seldom.set_present();
        assert!(seldom.is_present(|| Err("it is present")).expect("known"));
        let seldom = LazyFlag::default();
        let noted = seldom.is_present(|| {
            seldom.set_present();
            Ok::<_, ()>(false)
        });
        assert!(noted.expect("checked"), "it was added before the result was stored");
        let seldom = LazyFlag::default();
        assert!(seldom.is_present(|| Err("no result")).is_err());
        assert!(seldom.is_present(|| Ok::<_, &str>(true)).expect("checked"));
    }
}
