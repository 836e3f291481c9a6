//! How often the filter was asked and how it answered, counted beside the readers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One for each of so many threads; those beyond share.
const STRIPES: usize = 64;

/// The stripe of the next thread that counts.
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

/// Cache lines of one thread, or of one who asks again and again.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    asked: AtomicU64,
    maybe: AtomicU64,
    in_vain: AtomicU64,
}

impl Stripe {
    /// Counts one answer.
    #[inline(always)]
    fn note(&self, may_contain: bool) {
        // Not the one or the other: where is written to must not depend on an answer that is still
        // on its way from memory, or everything that is read next waits for it.
        add(&self.asked, 1);
        add(&self.maybe, u64::from(may_contain));
    }

    fn read(&self) -> Asked {
        let maybe = self.maybe.load(Ordering::Relaxed);
        Asked {
            denied: self.asked.load(Ordering::Relaxed).saturating_sub(maybe),
            maybe,
            in_vain: self.in_vain.load(Ordering::Relaxed),
        }
    }
}

/// Counts for one who asks again and again, who need not look up each time where.
#[derive(Debug)]
pub(crate) struct OwnCounters(Arc<Stripe>);

impl OwnCounters {
    /// Counts one answer.
    #[inline(always)]
    pub(crate) fn note(&mut self, may_contain: bool) {
        self.0.note(may_contain);
    }
}

/// Those who count for themselves.
#[derive(Debug, Default)]
struct Owners {
    stripes: Vec<Arc<Stripe>>,
    /// What those counted who are gone.
    gone: Asked,
}

impl Owners {
    fn forget_gone(&mut self) {
        let gone = &mut self.gone;
        self.stripes.retain(|stripe| {
            let is_there = Arc::strong_count(stripe) > 1;
            if !is_there {
                gone.add(stripe.read());
            }
            is_there
        });
    }
}

/// How often the filter was asked and how it answered.
///
/// A thread adds to a stripe of its own without a locked instruction, which would keep a reader
/// from fetching the next line before this one has come. Where threads share a stripe, because
/// there were more than 64, two that count at the same moment may count once: the numbers are for
/// rates.
#[derive(Debug)]
pub(crate) struct Counters {
    stripes: Vec<Stripe>,
    owners: Mutex<Owners>,
}

/// Sums of [`Counters`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) denied: u64,
    pub(crate) maybe: u64,
    pub(crate) in_vain: u64,
}

impl Asked {
    fn add(&mut self, more: Asked) {
        self.denied += more.denied;
        self.maybe += more.maybe;
        self.in_vain += more.in_vain;
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            owners: Mutex::default(),
        }
    }

    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For one who asks again and again.
    pub(crate) fn own_counters(&self) -> OwnCounters {
        let stripe = Arc::<Stripe>::default();
        let mut owners = self.owners();
        owners.forget_gone();
        owners.stripes.push(Arc::clone(&stripe));
        OwnCounters(stripe)
    }

    #[inline]
    fn own(&self) -> &Stripe {
        // A thread that is ending counts with the first.
        let stripe = STRIPE.try_with(|stripe| *stripe).unwrap_or(0);
        &self.stripes[stripe % STRIPES]
    }

    /// Counts one answer.
    #[inline]
    pub(crate) fn note(&self, may_contain: bool) {
        self.own().note(may_contain);
    }

    /// Counts answers.
    pub(crate) fn note_all(&self, answers: &[bool]) {
        let maybe = answers.iter().filter(|answer| **answer).count() as u64;
        let own = self.own();
        add(&own.asked, answers.len() as u64);
        add(&own.maybe, maybe);
    }

    /// Counts one "maybe" that was in vain.
    pub(crate) fn note_in_vain(&self) {
        add(&self.own().in_vain, 1);
    }

    /// The sums so far.
    pub(crate) fn asked(&self) -> Asked {
        let owners = self.owners();
        let mut sum = owners.gone;
        let stripes = self.stripes.iter().chain(owners.stripes.iter().map(|stripe| &**stripe));
        stripes.for_each(|stripe| sum.add(stripe.read()));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_owners_counted_stays_when_they_are_gone() {
        let counters = Counters::new();
        counters.note(true);
        for _ in 0..100 {
            let mut own = counters.own_counters();
            own.note(false);
            own.note(true);
            assert!(counters.owners().stripes.len() <= 2, "they are forgotten");
        }
        assert_eq!(counters.asked(), Asked { denied: 100, maybe: 101, in_vain: 0 });
    }
}
