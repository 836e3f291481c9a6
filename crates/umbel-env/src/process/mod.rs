//! Identity of this process. A forked child must not use, close or drop a handle that its parent
//! opened.
//!
//! A forked child has a copy of every handle and of every lock in its state, but only the thread
//! that forked. It must not write through a handle of its parent, whose log and files it would
//! overwrite. It must not wait for a lock or a thread, because that may last for ever. It must not
//! clean up state that the parent uses. [`ProcessMark`] distinguishes the two with a load and a
//! compare.
//!
//! - [`ProcessMark`] is the mark of a process.
//! - [`OpenMark`] says whether a handle is open, closed or a forked copy.
//! - [`ProcessOwned`] holds a value that only the process that created it drops.
//! - [`ProcessLocal`] is a static of which every process has its own.

mod fork_detection;
mod process_local;

#[cfg(all(test, feature = "testing", target_os = "linux", not(miri)))]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

pub use process_local::{ProcessLocal, ProcessOwned};

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
        let (word, id) = match fork_detection::word() {
            Some(word) => (word, 0),
            None => (fork_detection::no_word(), std::process::id()),
        };
        ProcessMark { word, generation: fork_detection::generation(word), id }
    }

    /// A mark that rests on the id of the process alone, as where the kernel wipes no page.
    #[cfg(all(test, feature = "testing", target_os = "linux", not(miri)))]
    fn by_id() -> ProcessMark {
        let word = fork_detection::no_word();
        let generation = fork_detection::generation(word);
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

/// State of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenState {
    /// The handle may be used.
    Open,
    /// This process closed the handle.
    Closed,
    /// A process that forked this one opened the handle.
    Forked,
}

/// Whether a handle is open in this process: one load and one compare for both questions.
#[derive(Debug)]
pub struct OpenMark {
    mark: ProcessMark,
    /// The generation of the mark; [`CLOSED`] once the handle was closed.
    generation: AtomicU64,
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
        OpenMark { mark, generation: AtomicU64::new(mark.generation) }
    }

    /// The process that opened it.
    pub fn process(&self) -> ProcessMark {
        self.mark
    }

    /// Whether it may be used.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.mark.word.load(Ordering::Relaxed) == self.generation.load(Ordering::Relaxed)
            || self.state() == OpenState::Open
    }

    /// Whether this process is a child that the one which opened it forked.
    #[inline]
    pub fn is_forked(&self) -> bool {
        !self.mark.is_current()
    }

    /// Current state of the handle.
    #[cold]
    pub fn state(&self) -> OpenState {
        match (self.mark.is_current(), self.generation.load(Ordering::Acquire)) {
            (false, _) => OpenState::Forked,
            (true, CLOSED) => OpenState::Closed,
            (true, _) => OpenState::Open,
        }
    }

    /// Closes it. `false` where it was closed before.
    pub fn close(&self) -> bool {
        self.generation.swap(CLOSED, Ordering::AcqRel) != CLOSED
    }
}
