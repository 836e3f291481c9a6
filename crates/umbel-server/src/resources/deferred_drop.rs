//! [`DeferredDrop`]: a value with many parts, which neither asynchronous workers nor the appender
//! drop.
//!
//! An append has up to 100,000 events, each with several allocations. Freeing them takes
//! milliseconds, in which a worker serves no other call. So a blocking thread frees them.
//!
//! The quota of a value may be released before its memory is freed. So values of at most
//! [`PARTS_DEFERRED_MAX`] parts wait for a blocking thread. Further ones wait with their quota
//! share if they have one; otherwise they are freed at once.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::Handle;

use crate::protocol::proto_convert::ProposedEvent;
use crate::resources::inbound_quota::QuotaShare;

/// Number of parts up to which a value is dropped where it is.
const PARTS_INLINE_MAX: usize = 1024;

/// Maximum number of parts that wait for a blocking thread without their quota: those of two of the
/// longest appends.
pub const PARTS_DEFERRED_MAX: usize = 200_000;

/// Number of parts that wait for a blocking thread without their quota.
static PARTS_DEFERRED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread is dropping a deferred value, which may contain others.
    static IS_DEFERRED: Cell<bool> = const { Cell::new(false) };
}

#[cfg(test)]
thread_local! {
    /// Number of parts that this thread left to blocking threads.
    static PARTS_LEFT: Cell<usize> = const { Cell::new(0) };
}

/// A value whose parts are counted before it is dropped.
pub trait PartCount: Default + Send + 'static {
    /// Number of parts that are freed one by one.
    fn part_count(&self) -> usize;
}

impl PartCount for Vec<ProposedEvent> {
    fn part_count(&self) -> usize {
        self.len()
    }
}

/// Events of an append.
pub type ProposedEventList = DeferredDrop<Vec<ProposedEvent>>;

/// A value that a blocking thread drops if it has many parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DeferredDrop<T: PartCount>(T);

impl<T: PartCount> DeferredDrop<T> {
    /// Returns the value, which is no longer deferred.
    pub fn into_inner(mut self) -> T {
        std::mem::take(&mut self.0)
    }

    /// Leaves the value to a blocking thread if it has many parts, and releases its quota share.
    /// If too many parts wait already, the share is released after the parts are freed.
    pub fn leave_with(&mut self, share: QuotaShare) {
        self.leave(Some(share));
    }

    fn leave(&mut self, share: Option<QuotaShare>) {
        let parts = self.0.part_count();
        if parts <= PARTS_INLINE_MAX || IS_DEFERRED.get() || std::thread::panicking() {
            return;
        }
        // Threads outside the runtime serve no calls.
        let Ok(runtime) = Handle::try_current() else { return };
        let deferred = DeferredParts::try_add(parts);
        // The quota limits the parts that wait beyond their limit.
        let share = share.filter(|_| deferred.is_none());
        if deferred.is_none() && share.is_none() {
            return;
        }
        #[cfg(test)]
        PARTS_LEFT.set(PARTS_LEFT.get() + parts);
        let value = std::mem::take(&mut self.0);
        // While the runtime ends, the value is dropped here.
        runtime.spawn_blocking(move || {
            IS_DEFERRED.set(true);
            drop(value);
            IS_DEFERRED.set(false);
            drop((deferred, share));
        });
    }
}

impl<T: PartCount> From<T> for DeferredDrop<T> {
    fn from(value: T) -> DeferredDrop<T> {
        DeferredDrop(value)
    }
}

impl<T: PartCount> Deref for DeferredDrop<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: PartCount> DerefMut for DeferredDrop<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: PartCount> Drop for DeferredDrop<T> {
    fn drop(&mut self) {
        self.leave(None);
    }
}

/// Parts that wait for a blocking thread without their quota.
struct DeferredParts(usize);

impl DeferredParts {
    /// Adds parts; `None` if too many wait already.
    fn try_add(parts: usize) -> Option<DeferredParts> {
        let add = |count: usize| Some(count + parts).filter(|sum| *sum <= PARTS_DEFERRED_MAX);
        let added = PARTS_DEFERRED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.ok().map(|_| DeferredParts(parts))
    }
}

impl Drop for DeferredParts {
    fn drop(&mut self) {
        PARTS_DEFERRED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Number of parts that wait for a blocking thread without their quota.
#[cfg(test)]
pub fn parts_deferred() -> usize {
    PARTS_DEFERRED.load(Ordering::Relaxed)
}

/// Returns the number of parts that the work leaves to blocking threads.
#[cfg(test)]
pub fn count_parts_left(work: impl FnOnce()) -> usize {
    let before = PARTS_LEFT.get();
    work();
    PARTS_LEFT.get() - before
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use super::*;

    /// A part that sends the thread that drops it.
    struct ReportedPart(mpsc::Sender<ThreadId>);

    impl Drop for ReportedPart {
        fn drop(&mut self) {
            let _ = self.0.send(thread::current().id());
        }
    }

    #[derive(Default)]
    struct ReportedParts(Vec<ReportedPart>, DeferredDrop<InnerParts>);

    #[derive(Default)]
    struct InnerParts(Vec<ReportedPart>);

    impl PartCount for ReportedParts {
        fn part_count(&self) -> usize {
            self.0.len() + self.1.0.0.len()
        }
    }

    impl PartCount for InnerParts {
        fn part_count(&self) -> usize {
            self.0.len()
        }
    }

    /// Creates a value with these parts, and with others in a value of its own.
    fn value(
        parts: usize,
        inner: usize,
    ) -> (DeferredDrop<ReportedParts>, mpsc::Receiver<ThreadId>) {
        let (sender, dropped) = mpsc::channel();
        let list = |count: usize| (0..count).map(|_| ReportedPart(sender.clone())).collect();
        let inner = DeferredDrop::from(InnerParts(list(inner)));
        (ReportedParts(list(parts), inner).into(), dropped)
    }

    /// Story: the events of a refused append were freed on the worker of its call.
    #[test]
    fn many_parts_are_dropped_by_one_blocking_thread() {
        let own = thread::current().id();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let few = value(PARTS_INLINE_MAX, 0);
            assert_eq!(count_parts_left(|| drop(few.0)), 0);
            assert!(few.1.try_iter().all(|thread| thread == own));
            let many = value(10, PARTS_INLINE_MAX * 2);
            let count = 10 + PARTS_INLINE_MAX * 2;
            assert_eq!(count_parts_left(|| drop(many.0)), count);
            let threads: Vec<ThreadId> = many.1.iter().collect();
            assert_eq!(threads.len(), count);
            assert!(threads.iter().all(|thread| *thread == threads[0] && *thread != own));
            // A value that was taken out is the caller's.
            let (taken, _dropped) = value(0, PARTS_INLINE_MAX * 2);
            let ReportedParts(_, inner) = taken.into_inner();
            assert_eq!(inner.into_inner().0.len(), PARTS_INLINE_MAX * 2);
        });
        // A thread without a runtime drops all parts itself.
        let many = value(PARTS_INLINE_MAX * 2, 0);
        drop(many.0);
        assert!(many.1.iter().all(|thread| thread == own));
    }

    /// The quota of values is released before their memory, so what waits is limited.
    #[test]
    fn parts_that_wait_are_limited() {
        let own = thread::current().id();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.max_blocking_threads(1).build().unwrap().block_on(async {
            let (release, released) = mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let (too_many, dropped) = value(PARTS_DEFERRED_MAX + 1, 0);
            drop(too_many);
            assert!(dropped.try_iter().all(|thread| thread == own));
            let (waiting, later) = value(PARTS_DEFERRED_MAX / 2, 0);
            drop(waiting);
            assert!(later.try_recv().is_err(), "the only thread is busy");
            release.send(()).unwrap();
            busy.await.unwrap().unwrap();
            assert_eq!(later.iter().count(), PARTS_DEFERRED_MAX / 2);
        });
    }
}
