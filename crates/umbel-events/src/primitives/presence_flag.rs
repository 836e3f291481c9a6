//! [`Seldom`]: whether a store has something that few stores have.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether there is something in a store that most stores do not have; found out when it is first
/// asked for, and noted when it comes.
#[derive(Debug, Default)]
pub struct Seldom(AtomicU8);

const NONE: u8 = 1;
const SOME: u8 = 2;

impl Seldom {
    /// Notes that there is some. REQUIRES: it cannot be seen yet.
    pub fn note(&self) {
        self.0.store(SOME, Ordering::Release);
    }

    /// Whether there is some that can be seen; `look` looks.
    pub fn is_there<E>(&self, look: impl FnOnce() -> Result<bool, E>) -> Result<bool, E> {
        match self.0.load(Ordering::Acquire) {
            NONE => Ok(false),
            SOME => Ok(true),
            unknown => {
                let found = if look()? { SOME } else { NONE };
                // It may have come meanwhile.
                let set = (Ordering::AcqRel, Ordering::Acquire);
                let changed = self.0.compare_exchange(unknown, found, set.0, set.1);
                Ok(changed.map_or_else(|present| present, |_| found) == SOME)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_while_somebody_looks_counts() {
        let seldom = Seldom::default();
        assert!(!seldom.is_there(|| Ok::<_, ()>(false)).expect("looked"));
        assert!(!seldom.is_there(|| Err("it is known")).expect("known"));
        seldom.note();
        assert!(seldom.is_there(|| Err("it is known")).expect("known"));
        let seldom = Seldom::default();
        let noted = seldom.is_there(|| {
            seldom.note();
            Ok::<_, ()>(false)
        });
        assert!(noted.expect("looked"), "it came before the answer was kept");
        let seldom = Seldom::default();
        assert!(seldom.is_there(|| Err("no answer")).is_err());
        assert!(seldom.is_there(|| Ok::<_, &str>(true)).expect("looked"));
    }
}
