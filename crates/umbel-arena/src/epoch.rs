//! Epochs: what a reader may look at is not freed before the reader has left.
//!
//! A reader enters by writing the present epoch into a seat of its own, and leaves by clearing it.
//! Whoever has unlinked something raises the epoch and keeps it in a limbo, with the new epoch as
//! its stamp, until every seat is clear or holds that epoch or a later one.
//!
//! INVARIANT: a reader that has found a pointer sits on an epoch below the stamp the pointer's
//! target will get, and is seen there by whoever frees it:
//!
//! - A reader that read an epoch at or above the stamp read what was written after the unlinking,
//!   and so finds the pointer gone.
//! - A reader that read a lesser one writes its seat before it reads the pointer; the unlinking
//!   thread clears the pointer before it reads the seats. All four are sequentially consistent, so
//!   either the reader finds the pointer gone or the other sees the seat taken.
//!
//! An epoch never outlives a call: what is to stay longer is counted.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64 as SystemAtomic, AtomicUsize as SystemSize};
use std::sync::{Mutex as SystemMutex, MutexGuard as SystemGuard};
use std::sync::{OnceLock, PoisonError, TryLockError};

use crate::piece::Piece;
use crate::sync::{AtomicU64, Mutex, Ordering, fence, tell_order};

/// What stands in a seat that nobody sits in. Epochs start above.
const CLEAR: u64 = 0;
/// Seats of the first bench; each further bench has twice as many as the one before.
const FIRST_SEATS: usize = if cfg!(all(test, loom)) { 2 } else { 64 };
/// As many benches as give every thread a seat.
const FURTHER_BENCHES: usize = 24;

/// Apart from its neighbours, so that threads do not take lines from each other.
#[derive(Debug)]
#[repr(align(128))]
struct Seat {
    /// The epoch its thread entered in.
    epoch: AtomicU64,
    /// How many pins of its thread there are. The thread alone writes and reads it.
    pins: AtomicU64,
}

/// Readers, and what waits for them.
pub struct Epochs<G = Piece> {
    now: AtomicU64,
    first: Box<[Seat]>,
    further: [OnceLock<Box<[Seat]>>; FURTHER_BENCHES],
    /// What was retired, in the order of the stamps.
    limbo: Mutex<VecDeque<Retired<G>>>,
    /// The bytes of what is in the limbo.
    waiting_bytes: SystemAtomic,
}

/// Something that was unlinked and may still be looked at.
struct Retired<G> {
    stamp: u64,
    bytes: u64,
    garbage: G,
}

impl<G> fmt::Debug for Epochs<G> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Epochs").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<G> Default for Epochs<G> {
    fn default() -> Epochs<G> {
        Epochs {
            now: AtomicU64::new(CLEAR + 1),
            first: bench(FIRST_SEATS),
            further: std::array::from_fn(|_| OnceLock::new()),
            limbo: Mutex::new(VecDeque::new()),
            waiting_bytes: SystemAtomic::new(0),
        }
    }
}

fn bench(seats: usize) -> Box<[Seat]> {
    (0..seats).map(|_| Seat { epoch: AtomicU64::new(CLEAR), pins: AtomicU64::new(0) }).collect()
}

impl<G> Epochs<G> {
    /// Enters, until the [`Pin`] is dropped. Entering again meanwhile costs next to nothing: a
    /// batch of reads does well to enter once around all of them.
    #[inline]
    pub fn pin(&self) -> Pin<'_> {
        let number = NUMBER.get();
        if number != NONE {
            return self.pin_at(number, NONE);
        }
        self.pin_first()
    }

    /// Enters with a thread that has no number: for good, or, where the thread is being torn down
    /// and could not give one back, for this pin only.
    #[cold]
    fn pin_first(&self) -> Pin<'_> {
        let number = take_number();
        match RETURNED.try_with(|_| ()) {
            Ok(()) => {
                NUMBER.set(number);
                self.pin_at(number, NONE)
            }
            Err(_) => self.pin_at(number, number),
        }
    }

    /// Enters in the seat of a number. REQUIRES: one thread at a time uses the number.
    #[inline]
    fn pin_at(&self, number: usize, lent: usize) -> Pin<'_> {
        let seat = match self.first.get(number) {
            Some(seat) => seat,
            None => self.further_seat(number),
        };
        let pins = seat.pins.load(Ordering::Relaxed);
        seat.pins.store(pins + 1, Ordering::Relaxed);
        if pins == 0 {
            let now = self.now.load(Ordering::Acquire);
            // A swap and not a store: on x86-64 it is the cheaper of the two ways to have the
            // reads that follow come after it.
            seat.epoch.swap(now, Ordering::SeqCst);
            tell_order();
        }
        PINS.set(PINS.get() + 1);
        Pin { seat, lent, _stays: std::marker::PhantomData }
    }

    #[cold]
    fn further_seat(&self, number: usize) -> &Seat {
        let doublings = (number / FIRST_SEATS + 1).ilog2() as usize;
        let before = FIRST_SEATS * ((1 << doublings) - 1);
        let seats = FIRST_SEATS << doublings;
        let bench = self.further[doublings - 1].get_or_init(|| bench(seats));
        // Whoever looks at the seats after this one is taken finds the bench it stands in.
        fence(Ordering::SeqCst);
        &bench[number - before]
    }

    /// Keeps `garbage`, which takes so many bytes, until nobody can look at it any more, and drops
    /// what has come so far.
    ///
    /// REQUIRES: it was unlinked before, by a sequentially consistent write.
    pub(crate) fn retire(&self, garbage: G, bytes: u64) {
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut limbo = self.limbo.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        limbo.push_back(Retired { stamp, bytes, garbage });
        let free = self.take_free(&mut limbo);
        drop(limbo);
        drop(free);
    }

    /// Drops what nobody can look at any more. Called by every retiring; by itself it is for
    /// whoever wants memory back after readers have left.
    pub fn collect(&self) {
        let mut limbo = self.limbo.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.take_free(&mut limbo);
        drop(limbo);
        drop(free);
    }

    /// The bytes of what was retired and is still kept, for readers who may look at it.
    pub fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    fn take_free(&self, limbo: &mut VecDeque<Retired<G>>) -> Vec<G> {
        tell_order();
        // Benches that were made before what is in the limbo was unlinked are found.
        fence(Ordering::SeqCst);
        let oldest = self.oldest();
        // Where a reader sits for long the limbo is long: it is not to be walked for nothing.
        let count = limbo.iter().take_while(|retired| retired.stamp <= oldest).count();
        let mut bytes = 0;
        let free = limbo.drain(..count).map(|retired| {
            bytes += retired.bytes;
            retired.garbage
        });
        let free = free.collect();
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        free
    }

    /// The least epoch that somebody sits in.
    fn oldest(&self) -> u64 {
        let benches = self.further.iter().filter_map(OnceLock::get);
        let further = benches.flat_map(|bench| bench.iter());
        let epochs = self.first.iter().chain(further).map(|seat| seat.epoch.load(Ordering::SeqCst));
        epochs.filter(|&epoch| epoch != CLEAR).min().unwrap_or(u64::MAX)
    }
}

/// Somebody who has entered. What was found since then stays until this is dropped.
#[derive(Debug)]
pub struct Pin<'a> {
    seat: &'a Seat,
    /// The number to be given back with the pin; [`NONE`] where the thread keeps it.
    lent: usize,
    /// A seat belongs to a thread: this must not wander to another.
    _stays: std::marker::PhantomData<*const ()>,
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        // Pins may go in any order: the last one clears the seat.
        let pins = self.seat.pins.load(Ordering::Relaxed) - 1;
        self.seat.pins.store(pins, Ordering::Relaxed);
        if pins == 0 {
            self.seat.epoch.store(CLEAR, Ordering::Release);
        }
        PINS.set(PINS.get() - 1);
        if self.lent != NONE {
            give_back(self.lent);
        }
    }
}

/// Numbers of threads that have ended.
static RETURNED_NUMBERS: SystemMutex<Vec<usize>> = SystemMutex::new(Vec::new());
/// How many numbers there are.
static NUMBERS: SystemSize = SystemSize::new(0);

/// A thread without a number.
const NONE: usize = usize::MAX;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NONE) };
    /// How many pins the thread holds, in all epochs.
    static PINS: Cell<usize> = const { Cell::new(0) };
    static RETURNED: Returned = const { Returned };
}

/// Gives the thread's number back when it ends.
struct Returned;

impl Drop for Returned {
    fn drop(&mut self) {
        let number = NUMBER.replace(NONE);
        // A pin that somebody keeps where it outlives this sits in the number's seat for good.
        if number != NONE && PINS.get() == 0 {
            give_back(number);
        }
    }
}

/// How often a thread tries to get at the numbers that were given back: they are held for some
/// instructions at a time, but for ever in a child that was forked meanwhile.
const TRIES_MAX: usize = 1 << 16;

/// The numbers that were given back; `None` where they are held for ever.
fn returned_numbers() -> Option<SystemGuard<'static, Vec<usize>>> {
    for _ in 0..TRIES_MAX {
        match RETURNED_NUMBERS.try_lock() {
            Ok(numbers) => return Some(numbers),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

fn give_back(number: usize) {
    if let Some(mut numbers) = returned_numbers() {
        numbers.push(number);
    }
}

/// A number that nobody else has, small as long as few live at once.
fn take_number() -> usize {
    let returned = returned_numbers().and_then(|mut numbers| numbers.pop());
    returned.unwrap_or_else(|| NUMBERS.fetch_add(1, Ordering::Relaxed))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn garbage_waits_for_whoever_was_there_before_it() {
        let epochs = Epochs::<Arc<()>>::default();
        let watched = Arc::new(());
        let outer = epochs.pin();
        let inner = epochs.pin();
        epochs.retire(Arc::clone(&watched), 7);
        assert_eq!(epochs.waiting_bytes(), 7);
        drop(outer);
        epochs.collect();
        assert_eq!(Arc::strong_count(&watched), 2, "the other one still sits");
        drop(inner);
        let later = epochs.pin();
        epochs.collect();
        assert_eq!(Arc::strong_count(&watched), 1, "who came later does not hold it");
        assert_eq!(epochs.waiting_bytes(), 0);
        drop(later);
    }

    #[test]
    fn every_number_has_a_seat_of_its_own() {
        let epochs = Epochs::<()>::default();
        let numbers = (0..1000).chain([FIRST_SEATS * 1023 - 1, FIRST_SEATS * 1023]);
        let mut pins = Vec::new();
        for number in numbers {
            let pin = epochs.pin_at(number, NONE);
            assert_eq!(pin.seat.pins.load(Ordering::Relaxed), 1, "seat {number} was taken");
            pins.push(pin);
        }
        assert_eq!(epochs.oldest(), 1);
    }

    /// A process forked while a thread gave its number back: in the child the first read of a new
    /// thread waited for ever.
    #[test]
    fn a_lock_that_is_held_for_ever_keeps_no_thread_from_reading() {
        let held = RETURNED_NUMBERS.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::scope(|scope| {
            let read = || drop(Epochs::<()>::default().pin());
            scope.spawn(read).join().unwrap();
        });
        drop(held);
    }

    #[test]
    fn threads_that_end_give_their_number_back() {
        let mut numbers = Vec::new();
        for _ in 0..20 {
            let number = std::thread::scope(|scope| {
                let read = || {
                    drop(Epochs::<()>::default().pin());
                    NUMBER.get()
                };
                scope.spawn(read).join()
            });
            numbers.push(number.unwrap());
        }
        numbers.sort_unstable();
        numbers.dedup();
        assert!(numbers.len() < 20, "a new number for every thread");
        let epochs = Epochs::<()>::default();
        drop(epochs.pin());
        let own = NUMBER.get();
        drop(epochs.pin());
        assert_eq!(NUMBER.get(), own);
    }
}

/// A thread that reads while it is being torn down took a seat for good: each further retiring
/// looked at all of them.
#[cfg(all(test, not(loom)))]
#[test]
fn reading_while_a_thread_is_torn_down_takes_no_seat_for_good() {
    struct Reads(std::sync::Arc<Epochs<()>>);
    impl Drop for Reads {
        fn drop(&mut self) {
            drop((self.0.pin(), self.0.pin()));
        }
    }
    use std::cell::RefCell;
    thread_local!(static READS: RefCell<Option<Reads>> = const { RefCell::new(None) });
    let epochs = std::sync::Arc::new(Epochs::<()>::default());
    for _ in 0..200 {
        let epochs = std::sync::Arc::clone(&epochs);
        let read = move || {
            // Torn down last what was first used.
            READS.with(|reads| *reads.borrow_mut() = Some(Reads(std::sync::Arc::clone(&epochs))));
            drop(epochs.pin());
        };
        // A scope waits for the closure only; joining waits for what is torn down as well.
        std::thread::scope(|scope| scope.spawn(read).join()).unwrap();
    }
    let numbers = NUMBERS.load(Ordering::Relaxed);
    assert!(numbers < 100, "{numbers} numbers");
}

/// `RUSTFLAGS="--cfg loom" cargo test -p umbel-arena --release --lib`
#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    /// Dropping it is a write, looking at it a read: loom fails where they race.
    struct Watched(Arc<UnsafeCell<bool>>);

    impl Drop for Watched {
        fn drop(&mut self) {
            self.0.with_mut(|freed| {
                // SAFETY: loom checks that nobody else is at the cell.
                unsafe { *freed = true }
            });
        }
    }

    struct World {
        epochs: Epochs<Watched>,
        /// 1 while the pointer stands, 0 once it is unlinked.
        slot: AtomicU64,
        target: Arc<UnsafeCell<bool>>,
    }

    fn world() -> Arc<World> {
        let target = Arc::new(UnsafeCell::new(false));
        Arc::new(World { epochs: Epochs::default(), slot: AtomicU64::new(1), target })
    }

    fn read(world: &World, number: usize) {
        let pin = world.epochs.pin_at(number, NONE);
        if world.slot.load(Ordering::SeqCst) == 1 {
            world.target.with(|freed| {
                // SAFETY: loom checks that nobody writes meanwhile.
                assert!(unsafe { !*freed }, "a reader found what was freed");
            });
        }
        drop(pin);
    }

    fn unlink(world: &World) {
        if world.slot.swap(0, Ordering::SeqCst) == 1 {
            world.epochs.retire(Watched(Arc::clone(&world.target)), 1);
        }
    }

    fn model(work: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(work);
    }

    #[test]
    fn nothing_is_freed_under_a_reader() {
        model(|| {
            let world = world();
            let readers: Vec<_> = (0..2)
                .map(|number| {
                    let world = Arc::clone(&world);
                    loom::thread::spawn(move || read(&world, number))
                })
                .collect();
            unlink(&world);
            world.epochs.collect();
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    }

    #[test]
    fn a_seat_that_is_taken_again_protects_again() {
        model(|| {
            let world = world();
            let reader = {
                let world = Arc::clone(&world);
                loom::thread::spawn(move || {
                    read(&world, 0);
                    read(&world, 0);
                })
            };
            unlink(&world);
            world.epochs.collect();
            reader.join().unwrap();
        });
    }
}
