//! Fork detection by a page whose first word holds the generation of the running process.
//!
//! In a forked child Linux replaces the page by zeros (`MADV_WIPEONFORK`, since 4.14), for every
//! kind of fork. A child that shares its parent's memory shares the page. Without such a page, the
//! process id is used instead.
//!
//! INVARIANT: a process and its forked descendants have different generations: a child starts with
//! the last generation of its parent, and takes the next.

#![cfg_attr(
    all(target_os = "linux", not(miri)),
    expect(unsafe_code, reason = "memory that the kernel changes when the process forks")
)]

use std::sync::atomic::{AtomicU64, Ordering};

/// The last generation that was given.
static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);
/// Word used if there is no page: it is always 0, which is no generation.
static NO_WORD: AtomicU64 = AtomicU64::new(0);

/// Returns the word that is used if there is no page.
pub(crate) fn no_word() -> &'static AtomicU64 {
    &NO_WORD
}

/// Returns the generation of this process, and assigns one if it has none yet. If `word` is
/// [`no_word`], returns the first generation.
pub(crate) fn generation(word: &'static AtomicU64) -> u64 {
    if std::ptr::eq(word, no_word()) {
        return 1;
    }
    match word.load(Ordering::Acquire) {
        0 => {
            let next = LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
            let taken = word.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire);
            taken.map_or_else(|other| other, |_| next)
        }
        known => known,
    }
}

/// Returns the word that holds the generation; `None` if the kernel or the platform has no such
/// pages.
///
/// Takes no lock, since a child can be forked at any moment of the call.
#[cfg(all(target_os = "linux", not(miri)))]
pub(crate) fn word() -> Option<&'static AtomicU64> {
    use std::sync::atomic::AtomicPtr;

    /// Pointer to the word, or to [`NO_WORD`]; null before the first call.
    static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

    let mut known = WORD.load(Ordering::Acquire);
    if known.is_null() {
        let nothing = std::ptr::from_ref(no_word()).cast_mut();
        let made = wiped_page().unwrap_or(nothing);
        // One that another thread made a moment earlier counts; a page too many does no harm.
        let null = std::ptr::null_mut();
        known = match WORD.compare_exchange(null, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(other) => other,
        };
    }
    // SAFETY: not null any more, so it points to `NO_WORD` or to the start of a page of
    // `wiped_page`, which is never unmapped. It is aligned, initialised with zeros, and changed
    // through atomics only. The kernel changes it only in a forked child, before that runs.
    let word = unsafe { &*known };
    (!std::ptr::eq(word, no_word())).then_some(word)
}

/// This platform has no pages that a fork wipes.
#[cfg(not(all(target_os = "linux", not(miri))))]
pub(crate) fn word() -> Option<&'static AtomicU64> {
    None
}

/// Allocates a page of zeros that is zero again in a forked child; `None` if the kernel cannot do
/// this.
#[cfg(all(target_os = "linux", not(miri)))]
fn wiped_page() -> Option<*mut AtomicU64> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    // The kernel rounds up to a page.
    let bytes = size_of::<AtomicU64>();
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: no address is requested, so nothing that is mapped is replaced.
    let page = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
    let page = page.ok()?;
    // SAFETY: the advice is about the whole page that was mapped above, which is not shared yet.
    let advised = unsafe { madvise(page, bytes, Advice::LinuxWipeOnFork) };
    if advised.is_err() {
        // SAFETY: as above; nothing points into it.
        let _ = unsafe { munmap(page, bytes) };
        return None;
    }
    Some(page.cast())
}
