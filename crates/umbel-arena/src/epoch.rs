//! Epochs: memory that a reader may use is freed only after the reader has left.
//!
//! A reader enters by writing the current epoch into a slot of its own, and leaves by clearing the
//! slot. A caller that has unlinked an item raises the epoch and retires the item, with the new
//! epoch as its stamp. The item is freed when every reader's slot is clear or holds that epoch or a
//! later one.
//!
//! INVARIANT: a reader that has found a pointer is in an epoch below the later stamp of the
//! pointer's target. The thread that frees the target sees this:
//!
//! - A reader that read an epoch at or above the stamp sees every write before the unlinking,
//!   and so finds the pointer cleared.
//! - A reader that read a lower epoch writes its slot before it reads the pointer. The unlinking
//!   thread clears the pointer before it reads the slots. All four accesses are sequentially
//!   consistent, so either the reader finds the pointer cleared, or the other thread sees the slot
//!   taken.
//!
//! A reader stays in an epoch only for the duration of a call; longer references are counted.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64 as SystemAtomic, AtomicUsize as SystemSize};
use std::sync::{Mutex as SystemMutex, MutexGuard as SystemGuard};
use std::sync::{OnceLock, TryLockError};
use umbel_base::ignore_poison::IgnorePoison;

use crate::allocation::Allocation;
use crate::atomics::{AtomicU64, Mutex, Ordering, fence, order_fence};

/// Value of an empty slot. Epochs start above it.
const NO_EPOCH: u64 = 0;
/// Number of slots of the first block; each further block has twice as many as the one before.
const FIRST_SLOTS: usize = if cfg!(all(test, loom)) { 2 } else { 64 };
/// Number of further blocks, which give every possible thread a slot.
const FURTHER_SLOT_BLOCKS: usize = 24;

/// Slot of a reading thread, padded so that threads do not share cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct ReaderSlot {
    /// Epoch in which the thread entered.
    epoch: AtomicU64,
    /// Number of pins of the thread; only this thread reads and writes the number.
    pins: AtomicU64,
}

/// Readers, and retired items that wait for them.
pub struct Epochs<G = Allocation> {
    now: AtomicU64,
    first: Box<[ReaderSlot]>,
    further: [OnceLock<Box<[ReaderSlot]>>; FURTHER_SLOT_BLOCKS],
    /// Retired items in the order of their stamps.
    retired: Mutex<VecDeque<RetiredItem<G>>>,
    /// Bytes of all retired items.
    retired_bytes: SystemAtomic,
}

/// Unlinked item that readers possibly still use.
struct RetiredItem<G> {
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
            now: AtomicU64::new(NO_EPOCH + 1),
            first: new_slots(FIRST_SLOTS),
            further: std::array::from_fn(|_| OnceLock::new()),
            retired: Mutex::new(VecDeque::new()),
            retired_bytes: SystemAtomic::new(0),
        }
    }
}

fn new_slots(count: usize) -> Box<[ReaderSlot]> {
    (0..count)
        .map(|_| ReaderSlot { epoch: AtomicU64::new(NO_EPOCH), pins: AtomicU64::new(0) })
        .collect()
}

impl<G> Epochs<G> {
    /// Enters the current epoch until the [`EpochGuard`] is dropped. Entering again meanwhile costs
    /// next to nothing, so a batch of reads should enter once around all of them.
    #[inline]
    pub fn pin(&self) -> EpochGuard<'_> {
        let number = NUMBER.get();
        if number != NO_NUMBER {
            return self.pin_at(number, NO_NUMBER);
        }
        self.pin_first()
    }

    /// Enters from a thread that has no number yet. A thread in its teardown cannot return a number
    /// later, so it gets a number for this pin only.
    #[cold]
    fn pin_first(&self) -> EpochGuard<'_> {
        let number = take_number();
        match RETURNED.try_with(|_| ()) {
            Ok(()) => {
                NUMBER.set(number);
                self.pin_at(number, NO_NUMBER)
            }
            Err(_) => self.pin_at(number, number),
        }
    }

    /// Enters with the slot of `number`. REQUIRES: one thread at a time uses the number.
    #[inline]
    fn pin_at(&self, number: usize, lent: usize) -> EpochGuard<'_> {
        let slot = match self.first.get(number) {
            Some(slot) => slot,
            None => self.further_slot(number),
        };
        let pins = slot.pins.load(Ordering::Relaxed);
        slot.pins.store(pins + 1, Ordering::Relaxed);
        if pins == 0 {
            let now = self.now.load(Ordering::Acquire);
            // A swap, not a store: on x86-64 it is the cheaper of the two ways to order the
            // following reads after it.
            slot.epoch.swap(now, Ordering::SeqCst);
            order_fence();
        }
        PINS.set(PINS.get() + 1);
        EpochGuard { slot, number: lent, _stays: std::marker::PhantomData }
    }

    #[cold]
    fn further_slot(&self, number: usize) -> &ReaderSlot {
        let doublings = (number / FIRST_SLOTS + 1).ilog2() as usize;
        let before = FIRST_SLOTS * ((1 << doublings) - 1);
        let count = FIRST_SLOTS << doublings;
        let slots = self.further[doublings - 1].get_or_init(|| new_slots(count));
        // A thread that reads the slots after this one is taken finds its block.
        fence(Ordering::SeqCst);
        &slots[number - before]
    }

    /// Keeps `garbage`, which takes `bytes` bytes, until no reader can use it. Also drops earlier
    /// retired items that no reader can use any more.
    ///
    /// REQUIRES: `garbage` was unlinked before, by a sequentially consistent write.
    pub(crate) fn retire(&self, garbage: G, bytes: u64) {
        self.retired_bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut items = self.retired.lock().ignore_poison();
        let stamp = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        items.push_back(RetiredItem { stamp, bytes, garbage });
        let free = self.take_unreachable(&mut items);
        drop(items);
        drop(free);
    }

    /// Drops retired items that no reader can use any more, as each call of `retire` does. The
    /// function is public for callers that need memory back after readers left.
    pub fn collect(&self) {
        let mut items = self.retired.lock().ignore_poison();
        let free = self.take_unreachable(&mut items);
        drop(items);
        drop(free);
    }

    /// Bytes of retired items that are kept for readers.
    pub fn retired_bytes(&self) -> u64 {
        self.retired_bytes.load(Ordering::Relaxed)
    }

    fn take_unreachable(&self, items: &mut VecDeque<RetiredItem<G>>) -> Vec<G> {
        order_fence();
        // Finds the blocks that were made before the retired items were unlinked.
        fence(Ordering::SeqCst);
        let oldest = self.oldest();
        // A reader that stays long makes a long list, which is not walked in full.
        let count = items.iter().take_while(|retired| retired.stamp <= oldest).count();
        let mut bytes = 0;
        let free = items.drain(..count).map(|retired| {
            bytes += retired.bytes;
            retired.garbage
        });
        let free = free.collect();
        self.retired_bytes.fetch_sub(bytes, Ordering::Relaxed);
        free
    }

    /// Returns the oldest epoch in which a reader is.
    fn oldest(&self) -> u64 {
        let blocks = self.further.iter().filter_map(OnceLock::get);
        let further = blocks.flat_map(|block| block.iter());
        let epochs = self.first.iter().chain(further).map(|slot| slot.epoch.load(Ordering::SeqCst));
        epochs.filter(|&epoch| epoch != NO_EPOCH).min().unwrap_or(u64::MAX)
    }
}

/// Guard of a reader that has entered an epoch. Items that the reader finds stay in memory until
/// the guard is dropped.
#[derive(Debug)]
pub struct EpochGuard<'a> {
    slot: &'a ReaderSlot,
    /// Number to return when the guard is dropped; [`NO_NUMBER`] if the thread keeps its number.
    number: usize,
    /// Keeps the guard in its thread, to which the slot belongs.
    _stays: std::marker::PhantomData<*const ()>,
}

impl Drop for EpochGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Pins may be dropped in any order: the last one clears the slot.
        let pins = self.slot.pins.load(Ordering::Relaxed) - 1;
        self.slot.pins.store(pins, Ordering::Relaxed);
        if pins == 0 {
            self.slot.epoch.store(NO_EPOCH, Ordering::Release);
        }
        PINS.set(PINS.get() - 1);
        if self.number != NO_NUMBER {
            return_number(self.number);
        }
    }
}

/// Numbers that ended threads have returned.
static RETURNED_NUMBERS: SystemMutex<Vec<usize>> = SystemMutex::new(Vec::new());
/// Count of all numbers taken so far.
static NUMBERS: SystemSize = SystemSize::new(0);

/// Value of a thread without a number.
const NO_NUMBER: usize = usize::MAX;

thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NO_NUMBER) };
    /// Number of pins of the thread, in all epochs.
    static PINS: Cell<usize> = const { Cell::new(0) };
    static RETURNED: NumberReturn = const { NumberReturn };
}

/// Returns the thread's number at the end of the thread.
struct NumberReturn;

impl Drop for NumberReturn {
    fn drop(&mut self) {
        let number = NUMBER.replace(NO_NUMBER);
        // A pin that outlives this value keeps its slot.
        if number != NO_NUMBER && PINS.get() == 0 {
            return_number(number);
        }
    }
}

/// Maximum number of attempts to lock the returned numbers. The lock is held for a few
/// instructions, but forever in a child that was forked meanwhile.
const TRIES_MAX: usize = 1 << 16;

/// Locks the returned numbers; returns `None` if the lock is held forever.
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

fn return_number(number: usize) {
    if let Some(mut numbers) = returned_numbers() {
        numbers.push(number);
    }
}

/// Takes a number that no other thread has. Numbers stay small if few threads exist at the same
/// time.
fn take_number() -> usize {
    let returned = returned_numbers().and_then(|mut numbers| numbers.pop());
    returned.unwrap_or_else(|| NUMBERS.fetch_add(1, Ordering::Relaxed))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn garbage_waits_for_earlier_readers() {
        let epochs = Epochs::<Arc<()>>::default();
        let watched = Arc::new(());
        let outer = epochs.pin();
        let inner = epochs.pin();
        epochs.retire(Arc::clone(&watched), 7);
        assert_eq!(epochs.retired_bytes(), 7);
        drop(outer);
        epochs.collect();
        assert_eq!(Arc::strong_count(&watched), 2, "the other one still sits");
        drop(inner);
        let later = epochs.pin();
        epochs.collect();
        assert_eq!(Arc::strong_count(&watched), 1, "a later reader does not hold it");
        assert_eq!(epochs.retired_bytes(), 0);
        drop(later);
    }

    #[test]
    fn every_thread_number_has_its_own_slot() {
        let epochs = Epochs::<()>::default();
        let numbers = (0..1000).chain([FIRST_SLOTS * 1023 - 1, FIRST_SLOTS * 1023]);
        let mut pins = Vec::new();
        for number in numbers {
            let pin = epochs.pin_at(number, NO_NUMBER);
            assert_eq!(pin.slot.pins.load(Ordering::Relaxed), 1, "slot {number} was taken");
            pins.push(pin);
        }
        assert_eq!(epochs.oldest(), 1);
    }

    /// Story: a process forked while a thread returned its number. In the child the first read of a
    /// new thread waited forever.
    #[test]
    fn held_lock_blocks_no_reader() {
        let held = RETURNED_NUMBERS.lock().ignore_poison();
        std::thread::scope(|scope| {
            let read = || drop(Epochs::<()>::default().pin());
            scope.spawn(read).join().unwrap();
        });
        drop(held);
    }

    #[test]
    fn ended_threads_return_their_number() {
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

/// Story: each thread that read during its teardown kept a slot forever. Each later call of
/// `retire` visited all these slots.
#[cfg(all(test, not(loom)))]
#[test]
fn read_during_thread_teardown_keeps_no_slot() {
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
            // The first used value is torn down last.
            READS.with(|reads| *reads.borrow_mut() = Some(Reads(std::sync::Arc::clone(&epochs))));
            drop(epochs.pin());
        };
        // A scope waits for the closure only; a join waits for the teardown as well.
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

    /// An item whose drop is a write and whose use is a read, so that loom fails if they race.
    struct Watched(Arc<UnsafeCell<bool>>);

    impl Drop for Watched {
        fn drop(&mut self) {
            self.0.with_mut(|freed| {
                // SAFETY: loom checks that no other thread is at the cell.
                unsafe { *freed = true }
            });
        }
    }

    struct World {
        epochs: Epochs<Watched>,
        /// 1 while the item is linked, 0 after it is unlinked.
        slot: AtomicU64,
        target: Arc<UnsafeCell<bool>>,
    }

    fn world() -> Arc<World> {
        let target = Arc::new(UnsafeCell::new(false));
        Arc::new(World { epochs: Epochs::default(), slot: AtomicU64::new(1), target })
    }

    fn read(world: &World, number: usize) {
        let pin = world.epochs.pin_at(number, NO_NUMBER);
        if world.slot.load(Ordering::SeqCst) == 1 {
            world.target.with(|freed| {
                // SAFETY: loom checks that no thread writes meanwhile.
                assert!(unsafe { !*freed }, "a reader found freed memory");
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
    fn reused_slot_protects_its_reader() {
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
