//! Identity of this process. A forked child must not use, close or drop a handle that its parent
//! opened.
//!
//! A forked child has a copy of every handle and of every lock in its state, but only the thread
//! that forked. The child must not write through a handle of its parent, since it would overwrite
//! the parent's files. The child must not wait for a lock or a thread, because the wait can last
//! forever. The child must not clean up state that the parent uses. [`ProcessMark`] distinguishes
//! parent and child with one load and one compare.
//!
//! - [`ProcessMark`] is the mark of a process.
//! - [`OpenMark`] says whether a handle is open, closed or a forked copy.
//! - [`ProcessOwned`] holds a value that only the process that created it drops.
//! - [`ProcessLocal`] is a static of which every process has its own value.

mod fork_detection;
mod process_local;

#[cfg(all(test, feature = "testing", target_os = "linux", not(miri)))]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

pub use process_local::{ProcessLocal, ProcessOwned};

/// The mark of a process. In a forked child, a copy of a mark of the parent is still the mark of
/// the parent.
///
/// A child that shares its parent's memory (`vfork`, `posix_spawn`) counts as the parent.
#[derive(Clone, Copy)]
pub struct ProcessMark {
    /// Word with the generation of the running process; 0 in a child that has no mark yet.
    word: &'static AtomicU64,
    generation: u64,
    /// Id of the process, if fork detection has no page; otherwise 0.
    id: u32,
}

impl ProcessMark {
    /// Returns the mark of this process.
    pub fn current() -> ProcessMark {
        let (word, id) = match fork_detection::word() {
            Some(word) => (word, 0),
            None => (fork_detection::no_word(), std::process::id()),
        };
        ProcessMark { word, generation: fork_detection::generation(word), id }
    }

    /// Returns a mark by the process id alone, as on a kernel that wipes no page.
    #[cfg(all(test, feature = "testing", target_os = "linux", not(miri)))]
    fn by_id() -> ProcessMark {
        let word = fork_detection::no_word();
        let generation = fork_detection::generation(word);
        ProcessMark { word, generation, id: std::process::id() }
    }

    /// Whether this process is the one in which the mark was taken; `false` in a forked child.
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

/// Mark that tells, with one load and one compare, whether a handle is open and belongs to this
/// process.
#[derive(Debug)]
pub struct OpenMark {
    mark: ProcessMark,
    /// Generation of the mark; [`CLOSED`] after the handle was closed.
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
    /// Returns the mark of an open handle of this process.
    pub fn new() -> OpenMark {
        let mark = ProcessMark::current();
        OpenMark { mark, generation: AtomicU64::new(mark.generation) }
    }

    /// Returns the mark of the process that opened the handle.
    pub fn process(&self) -> ProcessMark {
        self.mark
    }

    /// Whether the handle is open and belongs to this process.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.mark.word.load(Ordering::Relaxed) == self.generation.load(Ordering::Relaxed)
            || self.state() == OpenState::Open
    }

    /// Whether this process is a forked child of the process that opened the handle.
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

    /// Closes the handle. Returns `false` if the handle was closed before.
    pub fn close(&self) -> bool {
        self.generation.swap(CLOSED, Ordering::AcqRel) != CLOSED
    }
}
