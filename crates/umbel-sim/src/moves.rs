//! What an operator does between two calls of a process.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::call::Machine;
use crate::sim::Sim;

type Move = Box<dyn FnOnce(&Sim) + Send>;

/// Moves that are planned, by the number of the call that each comes before.
#[derive(Default)]
pub(crate) struct Moves {
    planned: Mutex<BTreeMap<u64, Vec<Move>>>,
    /// The call before which the next move comes; 0 where none is planned.
    next: AtomicU64,
}

impl fmt::Debug for Moves {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moves").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Moves {
    fn planned(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<Move>>> {
        self.planned.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Forgets every move to come. Returns how many there were.
    pub(crate) fn forget(&self) -> u64 {
        let mut planned = self.planned();
        let count = planned.values().map(Vec::len).sum::<usize>();
        planned.clear();
        self.note_next(&planned);
        count as u64
    }

    /// The moves that come before a call.
    fn due(&self, call: u64) -> Vec<Move> {
        let mut planned = self.planned();
        let later = planned.split_off(&call.saturating_add(1));
        let due = std::mem::replace(&mut *planned, later);
        self.note_next(&planned);
        due.into_values().flatten().collect()
    }
}

impl Machine {
    /// Does the moves that come before the next call. No lock is held, so that a move may do
    /// whatever a test does.
    pub(crate) fn make_moves(self: &Arc<Self>) {
        let next = self.moves.next.load(Ordering::Acquire);
        if next == 0 {
            return;
        }
        let call = match self.state() {
            state if state.is_dead => return,
            state => state.calls() + 1,
        };
        if call < next {
            return;
        }
        let sim = Sim { machine: Arc::clone(self) };
        for planned_move in self.moves.due(call) {
            planned_move(&sim);
        }
    }
}
