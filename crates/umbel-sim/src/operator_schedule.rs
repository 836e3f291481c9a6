//! [`OperatorActions`]: planned operations of an operator between two calls of a process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

/// Operation of an operator.
pub(crate) type Move = Box<dyn FnOnce() + Send>;

/// Planned moves, by the number of the call before which each move is made.
#[derive(Default)]
pub(crate) struct OperatorSchedule {
    planned: Mutex<BTreeMap<u64, Vec<Move>>>,
    /// Number of the call before which the next move is made; 0 if none is planned.
    next: AtomicU64,
}

impl fmt::Debug for OperatorSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moves").field("next", &self.next).finish_non_exhaustive()
    }
}

impl OperatorSchedule {
    fn planned(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<Move>>> {
        self.planned.lock().ignore_poison()
    }

    fn note_next(&self, planned: &BTreeMap<u64, Vec<Move>>) {
        let next = planned.keys().next().copied().unwrap_or(0);
        self.next.store(next, Ordering::Release);
    }

    /// Plans a move before a call.
    pub(crate) fn plan(&self, call: u64, planned_move: Move) {
        let mut planned = self.planned();
        planned.entry(call.max(1)).or_default().push(planned_move);
        self.note_next(&planned);
    }

    /// Drops all planned moves. Returns the number of dropped moves.
    pub(crate) fn clear(&self) -> u64 {
        let mut planned = self.planned();
        let count = planned.values().map(Vec::len).sum::<usize>();
        planned.clear();
        self.note_next(&planned);
        count as u64
    }

    /// Returns the number of the call before which the next move is made; 0 if none is planned.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::Acquire)
    }

    /// Returns the moves that are planned before a call.
    pub(crate) fn due(&self, call: u64) -> Vec<Move> {
        let mut planned = self.planned();
        let later = planned.split_off(&call.saturating_add(1));
        let due = std::mem::replace(&mut *planned, later);
        self.note_next(&planned);
        due.into_values().flatten().collect()
    }
}
