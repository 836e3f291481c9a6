//! Access to state whose lock a thread held when it panicked.

use std::sync::PoisonError;

/// Takes the guard or the value of a lock, even if a thread panicked while it held the lock.
///
/// REQUIRES: the guarded state is valid between any two statements of its holders, so that a panic
/// leaves it valid.
pub trait IgnorePoison {
    /// Guard or value of the lock.
    type Guard;

    /// Returns the guard or the value, whether a holder panicked or not.
    fn ignore_poison(self) -> Self::Guard;
}

impl<Guard> IgnorePoison for Result<Guard, PoisonError<Guard>> {
    type Guard = Guard;

    #[inline]
    fn ignore_poison(self) -> Guard {
        self.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_lock_works_after_the_panic_of_its_holder() {
        let mutex = Mutex::new(1);
        let panicked = std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _guard = mutex.lock().ignore_poison();
                panic!("while it holds the lock");
            });
            holder.join().is_err()
        });
        assert!(panicked && mutex.is_poisoned());
        assert_eq!(*mutex.lock().ignore_poison(), 1);
    }
}
