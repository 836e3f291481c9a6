//! Values that belong to one process: [`ProcessOwned`] and [`ProcessLocal`].

#![expect(
    unsafe_code,
    reason = "a value that is dropped or not, and a static that each child makes for itself"
)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::process::ProcessMark;

/// A value that only the process that created it drops. A forked child leaks its copy: a drop could
/// wait for a thread or a lock forever, or remove files that the parent uses.
pub struct ProcessOwned<T> {
    value: ManuallyDrop<T>,
    mark: ProcessMark,
}

impl<T> ProcessOwned<T> {
    /// Creates a value of this process.
    pub fn new(value: T) -> ProcessOwned<T> {
        ProcessOwned::of(ProcessMark::current(), value)
    }

    /// Creates a value of the process with this mark.
    #[inline]
    pub fn of(mark: ProcessMark, value: T) -> ProcessOwned<T> {
        ProcessOwned { value: ManuallyDrop::new(value), mark }
    }

    /// Returns the mark of the process that created the value.
    pub fn process(&self) -> ProcessMark {
        self.mark
    }

    /// Returns the value; `None` in a forked child, where the value is leaked.
    pub fn into_inner(self) -> Option<T> {
        let mut this = ManuallyDrop::new(self);
        if !this.mark.is_current() {
            return None;
        }
        // SAFETY: `this` is never dropped nor used again, so the value is taken once.
        Some(unsafe { ManuallyDrop::take(&mut this.value) })
    }
}

impl<T> Deref for ProcessOwned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ProcessOwned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for ProcessOwned<T> {
    #[inline]
    fn drop(&mut self) {
        if self.mark.is_current() {
            // SAFETY: it is dropped once, here: `into_inner` keeps this from being called.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ProcessOwned<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

/// A static of which every process has its own value. A forked child begins with a new value, even
/// if the parent's was locked. In the child the copy of the parent's value is leaked.
pub struct ProcessLocal<T: 'static> {
    now: AtomicPtr<(ProcessMark, T)>,
}

impl<T: Default + Send + Sync + 'static> ProcessLocal<T> {
    /// Creates a static that no process has used yet.
    #[expect(clippy::new_without_default, reason = "statics are made by constant functions")]
    pub const fn new() -> ProcessLocal<T> {
        ProcessLocal { now: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the value of this process. Takes no lock.
    pub fn get(&self) -> &'static T {
        loop {
            let known = self.now.load(Ordering::Acquire);
            // SAFETY: it is null or was leaked below, and then lives for ever and never changes.
            if let Some((mark, value)) = unsafe { known.as_ref() }
                && mark.is_current()
            {
                return value;
            }
            let made = Box::into_raw(Box::new((ProcessMark::current(), T::default())));
            let order = (Ordering::AcqRel, Ordering::Acquire);
            if self.now.compare_exchange(known, made, order.0, order.1).is_err() {
                // SAFETY: made above from a box, and no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }
}
