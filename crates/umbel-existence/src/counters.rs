//! How often the filter was asked and how it answered, counted beside the readers.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One for each of so many threads; those beyond share.
const STRIPES: usize = 64;

/// The stripe of the next thread that counts.
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

/// Cache lines of one thread.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    asked: AtomicU64,
    maybe: AtomicU64,
    in_vain: AtomicU64,
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
}

/// Sums of [`Counters`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) denied: u64,
    pub(crate) maybe: u64,
    pub(crate) in_vain: u64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters { stripes: (0..STRIPES).map(|_| Stripe::default()).collect() }
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
        // Not the one or the other: where is written to must not depend on an answer that is still
        // on its way from memory, or everything that is read next waits for it.
        let own = self.own();
        add(&own.asked, 1);
        add(&own.maybe, u64::from(may_contain));
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
        let sum = |counter: fn(&Stripe) -> &AtomicU64| {
            self.stripes.iter().map(|stripe| counter(stripe).load(Ordering::Relaxed)).sum::<u64>()
        };
        let maybe = sum(|stripe| &stripe.maybe);
        Asked {
            denied: sum(|stripe| &stripe.asked).saturating_sub(maybe),
            maybe,
            in_vain: sum(|stripe| &stripe.in_vain),
        }
    }
}
