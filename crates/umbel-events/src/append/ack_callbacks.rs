//! [`AckCallbacks`]: callbacks that run once a position is visible.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use umbel_base::ignore_poison::IgnorePoison;

use crate::primitives::panic_guard::catch_panic;
use crate::store_components::StoreComponents;
use crate::types::error::{Error, Result};

/// Callback of one acknowledgement.
pub type AckCallback = Box<dyn FnOnce(Result<()>) + Send>;

/// Callbacks that run once their position is visible.
#[derive(Default)]
pub struct AckCallbacks {
    pending: Mutex<BTreeMap<(u64, u64), AckCallback>>,
    count: Mutex<u64>,
}

impl AckCallbacks {
    /// Registers `done`, which is called once `position` is visible.
    pub fn add(&self, position: u64, done: AckCallback) {
        let number = {
            let mut count = self.count.lock().ignore_poison();
            *count += 1;
            *count
        };
        self.pending.lock().ignore_poison().insert((position, number), done);
    }

    /// Whether no callback is registered.
    pub fn is_empty(&self) -> bool {
        self.pending.lock().ignore_poison().is_empty()
    }

    /// Calls the callbacks whose position is visible, in log order. Calls all callbacks once a
    /// fatal error has stopped writes, or the gate of a replicated store has ended.
    pub fn run_visible(&self, parts: &StoreComponents) {
        if parts.visible.gate.has_ended() {
            return self.call_through(parts, u64::MAX, Some(&Error::AppendAmbiguous));
        }
        match parts.check_writable() {
            Ok(()) => self.call_through(parts, parts.visible.position(), None),
            Err(error) => self.call_through(parts, u64::MAX, Some(&error)),
        }
    }

    /// Calls the callbacks of positions up to `through` with the error that kept them from becoming
    /// visible. A thread that waits for a [`PendingAppend`](super::pending_append::PendingAppend)
    /// gets the error, too.
    pub fn fail(&self, parts: &StoreComponents, through: u64, error: &Error) {
        parts.damage.record_error(error);
        self.run_visible(parts);
        self.call_through(parts, through, Some(error));
    }

    /// Calls the callbacks of positions up to `through`, in log order. If there is an error, passes
    /// it to the callbacks whose position cannot become visible.
    fn call_through(&self, parts: &StoreComponents, through: u64, failed: Option<&Error>) {
        let ready = {
            let mut waiting = self.pending.lock().ignore_poison();
            if waiting.is_empty() {
                return;
            }
            let later = waiting.split_off(&(through, u64::MAX));
            std::mem::replace(&mut *waiting, later)
        };
        let visible = parts.visible.position();
        for ((position, _), done) in ready {
            let outcome = match failed {
                Some(error) if position > visible => Err(error.clone()),
                _ => Ok(()),
            };
            catch_panic(|| done(outcome));
        }
    }
}

impl fmt::Debug for AckCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks")
            .field("waiting", &self.pending.lock().ignore_poison().len())
            .finish()
    }
}
