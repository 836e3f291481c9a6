//! [`Wakeup`]: wakes a thread, a task or a callback, once.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use crate::primitives::panic_guard::catch_panic;

/// Wakes its waiters: threads, one task, or a callback.
///
/// A wake-up stays woken, so a wait that begins later returns at once. A waiter misses no event if
/// it first registers the wake-up, then looks for events, and waits only if it found none.
#[derive(Default)]
pub struct Wakeup {
    is_woken: AtomicBool,
    waiters: Mutex<Waiters>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiters {
    /// Whether a thread may wait. If no thread may wait, a wake-up makes no system call.
    has_thread: bool,
    task: Option<Waker>,
    callback: Option<Callback>,
}

/// Callback with the position of an event.
type Callback = Box<dyn FnOnce(u64) + Send>;

impl Wakeup {
    /// Creates a wake-up that calls `callback`. A panic of the callback does not propagate.
    pub(crate) fn with_callback(callback: impl FnOnce(u64) + Send + 'static) -> Arc<Wakeup> {
        let callback: Option<Callback> = Some(Box::new(callback));
        let waiters = Mutex::new(Waiters { callback, ..Waiters::default() });
        Arc::new(Wakeup { waiters, ..Wakeup::default() })
    }

    /// Whether the wake-up was woken.
    pub fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::Acquire)
    }

    /// Waits on the calling thread, at most for `timeout`. Returns whether the wake-up was woken.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut waiters = self.waiters.lock().ignore_poison();
        waiters.has_thread = true;
        drop(self.changed.wait_timeout_while(waiters, timeout, |_| !self.is_woken()));
        self.is_woken()
    }

    /// Whether a thread waits, or has waited since the last wake-up.
    #[cfg(test)]
    pub(crate) fn has_waiter(&self) -> bool {
        self.waiters.lock().ignore_poison().has_thread
    }

    /// Returns whether the wake-up was woken; if not, the polling task is woken later. Only the
    /// last task that polls is woken.
    pub fn poll_wait(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut waiters = self.waiters.lock().ignore_poison();
        if self.is_woken() {
            return Poll::Ready(());
        }
        let before = waiters.task.replace(context.waker().clone());
        // Dropping a waker may run code of its runtime.
        drop(waiters);
        drop(before);
        Poll::Pending
    }

    /// Wakes the waiters; a callback gets `position`, the position of an event.
    ///
    /// REQUIRES: the caller holds no lock of the store, since a callback may drop the store's last
    /// handle.
    pub(crate) fn wake_at(&self, position: u64) {
        let mut waiters = self.waiters.lock().ignore_poison();
        self.is_woken.store(true, Ordering::Release);
        let Waiters { has_thread, task, callback } = std::mem::take(&mut *waiters);
        drop(waiters);
        if has_thread {
            self.changed.notify_all();
        }
        if let Some(task) = task {
            catch_panic(|| task.wake());
        }
        if let Some(callback) = callback {
            catch_panic(|| callback(position));
        }
    }

    /// Wakes the waiters for a reason other than a new event.
    pub(crate) fn wake(&self) {
        self.wake_at(0);
    }

    /// Makes a used wake-up waitable again. REQUIRES: nothing waits, and the caller registers the
    /// wake-up after the reset.
    pub(crate) fn reset(&self) {
        self.is_woken.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Wakeup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeup").field("is_woken", &self.is_woken()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use umbel_env::Env;

    use super::*;

    #[derive(Default)]
    struct WakeCounter(AtomicUsize);

    impl Wake for WakeCounter {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn thread_waits_until_it_is_woken_or_time_is_over() {
        let wakeup = Arc::new(Wakeup::default());
        assert!(!wakeup.wait(Duration::from_millis(1)));
        let waking = Arc::clone(&wakeup);
        let thread = Env::system().threads.spawn("wake", Box::new(move || waking.wake()));
        assert!(wakeup.wait(Duration::from_secs(60)));
        assert!(wakeup.wait(Duration::ZERO), "it stays woken");
        assert!(thread.expect("a thread").join());
        wakeup.reset();
        assert!(!wakeup.wait(Duration::from_millis(1)));
    }

    #[test]
    fn task_is_woken_once_and_callback_gets_the_position() {
        let (wakeup, counter) = (Wakeup::default(), Arc::new(WakeCounter::default()));
        let waker = Waker::from(Arc::clone(&counter));
        let mut context = Context::from_waker(&waker);
        assert!(wakeup.poll_wait(&mut context).is_pending());
        assert!(wakeup.poll_wait(&mut context).is_pending());
        wakeup.wake_at(3);
        wakeup.wake_at(4);
        assert!(wakeup.poll_wait(&mut context).is_ready());
        assert_eq!(counter.0.load(Ordering::SeqCst), 1);
        let (sender, called) = std::sync::mpsc::channel();
        let calling = Wakeup::with_callback(move |at| sender.send(at).expect("the receiver"));
        calling.wake_at(7);
        calling.wake_at(8);
        assert_eq!(called.try_iter().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn panicking_callback_does_not_reach_the_waking_thread() {
        let wakeup = Wakeup::with_callback(|_| panic!("a callback of the test"));
        wakeup.wake();
        assert!(wakeup.is_woken());
    }
}
