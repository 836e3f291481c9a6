//! Which process this is: what a process opened is not to be used, closed or dropped by a child
//! that it forked.
//!
//! A forked child has a copy of every handle, of every lock as it stood, and of no thread but the
//! one that forked. So it must neither write through a handle of its parent, whose log and files it
//! would write over, nor wait for a lock or a thread, which may be for ever, nor clean up what the
//! parent still uses. [`ProcessMark`] tells the two apart for the price of a load and a compare.
//!
//! - [`ProcessMark`] is the mark of a process.
//! - [`OpenMark`] says of a handle whether it is open, was closed, or is a forked copy.
//! - [`ProcessBound`] holds a value that only the process that made it drops.
//! - [`PerProcess`] is a static that every process has of its own.

mod bound;
mod page;
#[cfg(all(test, feature = "testing", target_os = "linux", not(miri)))]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

pub use bound::{PerProcess, ProcessBound};

/// The mark of a process. A copy of it in a forked child is the mark of the parent.
///
/// A child that shares its parent's memory (`vfork`, `posix_spawn`) counts as the parent.
#[derive(Clone, Copy)]
pub struct ProcessMark {
    /// Holds the generation of the running process; 0 in a child that has no mark yet.
    word: &'static AtomicU64,
    generation: u64,
    /// The process, where the word says nothing; 0 where it does.
    id: u32,
}

impl ProcessMark {
    /// The mark of this process.
    pub fn current() -> ProcessMark {
        let (word, id) = match page::word() {
            Some(word) => (word, 0),
            None => (page::no_word(), std::process::id()),
        };
        ProcessMark { word, generation: page::generation(word), id }
    }

    /// A mark that rests on the id of the process alone, as where the kernel wipes no page.
    #[cfg(all(test, feature = "testing", target_os = "linux", not(miri)))]
    fn by_id() -> ProcessMark {
        let word = page::no_word();
        let generation = page::generation(word);
        ProcessMark { word, generation, id: std::process::id() }
    }

    /// Whether this process is the one that the mark was taken in: `false` in a forked child.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.word.load(Ordering::Relaxed) == self.generation || self.is_current_by_id()
    }

    #[cold]
    fn is_current_by_id(&self) -> bool {
        self.id != 0 && self.id == std::process::id()
    }
}

impl fmt::Debug for ProcessMark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ProcessMark").field(&self.generation).finish()
    }
}

/// What a handle is at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenState {
    /// It may be used.
    Open,
    /// It was closed, by this process.
    Closed,
    /// It was opened by a process that forked this one.
    Forked,
}

/// Whether a handle is open in this process: one load and one compare for both questions.
#[derive(Debug)]
pub struct OpenMark {
    mark: ProcessMark,
    /// The generation of the mark; [`CLOSED`] once the handle was closed.
    open_as: AtomicU64,
}

/// A generation that no process has.
const CLOSED: u64 = u64::MAX;

impl Default for OpenMark {
    fn default() -> OpenMark {
        OpenMark::new()
    }
}

impl OpenMark {
    /// An open handle of this process.
    pub fn new() -> OpenMark {
        let mark = ProcessMark::current();
        OpenMark { mark, open_as: AtomicU64::new(mark.generation) }
    }

    /// The process that opened it.
    pub fn process(&self) -> ProcessMark {
        self.mark
    }

    /// Whether it may be used.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.mark.word.load(Ordering::Relaxed) == self.open_as.load(Ordering::Relaxed)
            || self.state() == OpenState::Open
    }

    /// Whether this process is a child that the one which opened it forked.
    #[inline]
    pub fn is_forked(&self) -> bool {
        !self.mark.is_current()
    }

    /// Why it may or may not be used.
    #[cold]
    pub fn state(&self) -> OpenState {
        match (self.mark.is_current(), self.open_as.load(Ordering::Acquire)) {
            (false, _) => OpenState::Forked,
            (true, CLOSED) => OpenState::Closed,
            (true, _) => OpenState::Open,
        }
    }

    /// Closes it. `false` where it was closed before.
    pub fn close(&self) -> bool {
        self.open_as.swap(CLOSED, Ordering::AcqRel) != CLOSED
    }
}
