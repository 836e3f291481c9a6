//! Counts of probes and their answers, kept per thread.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

/// Number of stripes of counters. Each of the first threads has its own stripe; further threads
/// share stripes.
const STRIPES: usize = 64;

/// The stripe of the next thread that counts.
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static STRIPE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
}

/// Counters of one thread or one reader, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    probes: AtomicU64,
    maybe: AtomicU64,
    false_positives: AtomicU64,
}

impl Stripe {
    /// Counts one answer.
    #[inline(always)]
    fn note(&self, may_contain: bool) {
        // Branch-free: the address of a write must not depend on an answer that is still
        // in flight from memory, or every later read waits for it.
        add(&self.probes, 1);
        add(&self.maybe, u64::from(may_contain));
    }

    fn read(&self) -> ProbeCounts {
        let maybe = self.maybe.load(Ordering::Relaxed);
        ProbeCounts {
            denied: self.probes.load(Ordering::Relaxed).saturating_sub(maybe),
            maybe,
            false_positives: self.false_positives.load(Ordering::Relaxed),
        }
    }
}

/// Counters of one [`ExistenceReader`](crate::ExistenceReader), which need no lookup of the
/// thread's stripe.
#[derive(Debug)]
pub(crate) struct ReaderCounters(Arc<Stripe>);

impl ReaderCounters {
    /// Counts one answer.
    #[inline(always)]
    pub(crate) fn note(&mut self, may_contain: bool) {
        self.0.note(may_contain);
    }
}

/// Counters of all readers.
#[derive(Debug, Default)]
struct ReaderStripes {
    stripes: Vec<Arc<Stripe>>,
    /// Counts of dropped readers.
    dropped_readers: ProbeCounts,
}

impl ReaderStripes {
    fn merge_dropped(&mut self) {
        let dropped = &mut self.dropped_readers;
        self.stripes.retain(|stripe| {
            let is_there = Arc::strong_count(stripe) > 1;
            if !is_there {
                dropped.add(stripe.read());
            }
            is_there
        });
    }
}

/// Number of probes of a filter, by answer.
///
/// A thread adds to its stripe without a locked instruction, which would delay the fetch of the
/// next probe's line. With more than 64 threads, some share a stripe, and two concurrent counts can
/// count once. So the numbers are exact enough for rates only.
#[derive(Debug)]
pub(crate) struct ProbeCounters {
    stripes: Vec<Stripe>,
    owners: Mutex<ReaderStripes>,
}

/// Sums of [`ProbeCounters`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ProbeCounts {
    pub(crate) denied: u64,
    pub(crate) maybe: u64,
    pub(crate) false_positives: u64,
}

impl ProbeCounts {
    fn add(&mut self, more: ProbeCounts) {
        self.denied += more.denied;
        self.maybe += more.maybe;
        self.false_positives += more.false_positives;
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

impl ProbeCounters {
    pub(crate) fn new() -> ProbeCounters {
        ProbeCounters {
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            owners: Mutex::default(),
        }
    }

    fn owners(&self) -> MutexGuard<'_, ReaderStripes> {
        self.owners.lock().ignore_poison()
    }

    /// Creates the counters of one reader.
    pub(crate) fn reader_counters(&self) -> ReaderCounters {
        let stripe = Arc::<Stripe>::default();
        let mut owners = self.owners();
        owners.merge_dropped();
        owners.stripes.push(Arc::clone(&stripe));
        ReaderCounters(stripe)
    }

    #[inline]
    fn thread_stripe(&self) -> &Stripe {
        // A thread that is ending counts with the first.
        let stripe = STRIPE.try_with(|stripe| *stripe).unwrap_or(0);
        &self.stripes[stripe % STRIPES]
    }

    /// Counts one answer.
    #[inline]
    pub(crate) fn note(&self, may_contain: bool) {
        self.thread_stripe().note(may_contain);
    }

    /// Counts many answers.
    pub(crate) fn note_all(&self, answers: &[bool]) {
        let maybe = answers.iter().filter(|answer| **answer).count() as u64;
        let own = self.thread_stripe();
        add(&own.probes, answers.len() as u64);
        add(&own.maybe, maybe);
    }

    /// Counts one "maybe" that was a false positive.
    pub(crate) fn note_false_positive(&self) {
        add(&self.thread_stripe().false_positives, 1);
    }

    /// Returns the sums of all stripes and readers.
    pub(crate) fn totals(&self) -> ProbeCounts {
        let owners = self.owners();
        let mut sum = owners.dropped_readers;
        let stripes = self.stripes.iter().chain(owners.stripes.iter().map(|stripe| &**stripe));
        stripes.for_each(|stripe| sum.add(stripe.read()));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_survive_their_threads() {
        let counters = ProbeCounters::new();
        counters.note(true);
        for _ in 0..100 {
            let mut own = counters.reader_counters();
            own.note(false);
            own.note(true);
            assert!(counters.owners().stripes.len() <= 2, "they are forgotten");
        }
        assert_eq!(counters.totals(), ProbeCounts { denied: 100, maybe: 101, false_positives: 0 });
    }
}
