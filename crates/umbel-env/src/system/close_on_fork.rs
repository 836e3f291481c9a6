//! Descriptors of locks, which a forked child closes at once.
//!
//! `flock` locks an open file, which a child shares. A child that lives longer than its parent
//! would keep the store locked. A handler of the C library closes the descriptors in the child. No
//! code in the child uses or closes these descriptors again, because the child leaks its parent's
//! lock. So their numbers are free for other files. A child forked without the C library keeps the
//! descriptors until it ends or starts another program.
//!
//! The handler runs before `fork` returns in the child, where only calls are allowed that a signal
//! handler may make. The handler only reads atomics, and calls `fstat` and `close`.

#![expect(unsafe_code, reason = "a fork handler, and a list that it walks without a lock")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

/// Value for the descriptor of an unused entry.
const FREE: i32 = -1;
/// Value for the descriptor of an entry that is being written.
const TAKEN: i32 = -2;

/// The first entry of the list. Entries are never freed, but reused.
static FIRST_ENTRY: AtomicPtr<ForkEntry> = AtomicPtr::new(std::ptr::null_mut());

/// A descriptor to close in a child, with the identity of its file. A child that was forked without
/// the handler can have another file under the number when it forks again.
#[derive(Debug)]
pub(super) struct ForkEntry {
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// The next entry; set before the entry can be found, and never changed.
    next: AtomicPtr<ForkEntry>,
}

/// Makes children that are forked from now on close their copy of the descriptor of `file`.
pub(super) fn close_in_children(file: &File) -> &'static ForkEntry {
    handle_forks();
    let entry = free_entry();
    let known = file.metadata().map_or((0, 0), |known| (known.dev(), known.ino()));
    entry.device.store(known.0, Ordering::Relaxed);
    entry.inode.store(known.1, Ordering::Relaxed);
    entry.descriptor.store(file.as_raw_fd(), Ordering::Release);
    entry
}

impl ForkEntry {
    /// Unregisters the descriptor, so that children do not close it any more. REQUIRES: the
    /// descriptor is not closed yet.
    pub(super) fn unregister(&self) {
        self.descriptor.store(FREE, Ordering::Release);
    }

    /// Closes a child's copy of the descriptor.
    /// REQUIRES: this process is a forked child, and no other code has run in it.
    #[cfg_attr(
        target_os = "linux",
        expect(clippy::unnecessary_cast, reason = "smaller numbers on other platforms")
    )]
    fn close(&self) {
        let descriptor = self.descriptor.swap(FREE, Ordering::AcqRel);
        if descriptor < 0 {
            return;
        }
        let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: `fstat` fails or fills its buffer, which is read only where it succeeded.
        // Closing a number is sound where no other code owns it. It stands for the registered
        // file, whose owner in this process is leaked (`ProcessOwned`) and never closes it.
        unsafe {
            if libc::fstat(descriptor, found.as_mut_ptr()) != 0 {
                return;
            }
            let found = found.assume_init();
            let entered = (self.device.load(Ordering::Relaxed), self.inode.load(Ordering::Relaxed));
            if (found.st_dev as u64, found.st_ino as u64) == entered {
                libc::close(descriptor);
            }
        }
    }
}

/// Returns all entries.
fn entries() -> impl Iterator<Item = &'static ForkEntry> {
    // SAFETY: a pointer in the list is null or was leaked by `free_entry`, and lives for ever.
    let at = |pointer: &AtomicPtr<ForkEntry>| unsafe { pointer.load(Ordering::Acquire).as_ref() };
    std::iter::successors(at(&FIRST_ENTRY), move |entry| at(&entry.next))
}

fn free_entry() -> &'static ForkEntry {
    let take = |entry: &&'static ForkEntry| {
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        entry.descriptor.compare_exchange(FREE, TAKEN, order.0, order.1).is_ok()
    };
    if let Some(entry) = entries().find(take) {
        return entry;
    }
    let entry: &'static ForkEntry = Box::leak(Box::new(ForkEntry {
        descriptor: AtomicI32::new(TAKEN),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
        next: AtomicPtr::new(std::ptr::null_mut()),
    }));
    let mut first = FIRST_ENTRY.load(Ordering::Acquire);
    loop {
        entry.next.store(first, Ordering::Release);
        let new = std::ptr::from_ref(entry).cast_mut();
        match FIRST_ENTRY.compare_exchange(first, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return entry,
            Err(other) => first = other,
        }
    }
}

/// Registers the fork handler on the first call.
fn handle_forks() {
    static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

    extern "C" fn in_the_child() {
        entries().for_each(ForkEntry::close);
    }

    if !IS_REGISTERED.swap(true, Ordering::AcqRel) {
        // SAFETY: the handler makes only calls that are allowed after a fork of a process with
        // several threads, and lives as long as the program. Where it is not registered, for want
        // of memory, children keep the descriptors until they end.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    }
}
