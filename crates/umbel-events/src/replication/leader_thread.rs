//! [`LeaderThread`]: the thread that drives a [`SlotLeader`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{Clock, Env, Objects};

use crate::replication::deadline_objects::DeadlineObjects;
use crate::replication::leader_status::{LeaderEnd, LeaderRole, LeaderStatus};
use crate::replication::slot_leader::{LeaderProgress, LeaderStep, SlotLeader};
use crate::store::log_replication::LogReplication;
use crate::types::error::Result;

/// The thread that drives a leader. Dropping this value ends the leader without a resignation, and
/// with it the store that it leads. Callbacks of appends run in this thread, so that they must not
/// wait for its end.
#[derive(Debug)]
pub struct LeaderThread {
    shared: Arc<ThreadShared>,
    log: LogReplication,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct ThreadShared {
    state: Mutex<ThreadState>,
    /// Notified at the end.
    ended: Condvar,
}

#[derive(Debug)]
struct ThreadState {
    progress: LeaderProgress,
    request: Request,
    end: Option<LeaderEnd>,
}

/// Request of the owner of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Lead,
    Resign,
    Stop,
}

impl LeaderThread {
    /// Starts the thread of a leader over this object store. Each request has a limit.
    ///
    /// # Errors
    /// The thread cannot be started. The store of a candidate stays open.
    pub fn start(env: &Env, leader: SlotLeader, objects: Arc<dyn Objects>) -> Result<LeaderThread> {
        let (progress, log) = (leader.progress().clone(), leader.log().clone());
        let state = ThreadState { progress, request: Request::Lead, end: None };
        let shared = Arc::new(ThreadShared { state: Mutex::new(state), ended: Condvar::new() });
        let limits = leader.request_limits();
        let objects = DeadlineObjects::new(objects, Arc::clone(&env.threads), limits);
        let of_thread = Arc::clone(&shared);
        env.threads.spawn("umbel-slots", Box::new(move || run(leader, &objects, &of_thread)))?;
        Ok(LeaderThread { shared, log, clock: Arc::clone(&env.clock) })
    }

    /// State for operators.
    pub fn status(&self) -> LeaderStatus {
        let (progress, end) = {
            let state = self.shared.lock();
            (state.progress.clone(), state.end.clone())
        };
        let status = progress.status(self.clock.now_with_suspends(), &self.log);
        match end {
            Some(end) => LeaderStatus { role: LeaderRole::Ended(end), ..status },
            None => status,
        }
    }

    /// Reason why the node leads no more; `None` before the end.
    pub fn end(&self) -> Option<LeaderEnd> {
        self.shared.lock().end.clone()
    }

    /// Requests that the node gives up its epoch after the appends that the log has.
    pub fn resign(&self) {
        self.request(Request::Resign);
    }

    /// Waits until the node leads no more.
    pub fn wait(&self) -> LeaderEnd {
        let mut state = self.shared.lock();
        loop {
            if let Some(end) = &state.end {
                return end.clone();
            }
            state = self.shared.ended.wait(state).ignore_poison();
        }
    }

    fn request(&self, request: Request) {
        self.shared.lock().request = request;
        self.log.interrupt_wait();
    }
}

impl Drop for LeaderThread {
    fn drop(&mut self) {
        // Without a wait: a callback in the thread itself may drop this value.
        self.request(Request::Stop);
    }
}

impl ThreadShared {
    fn lock(&self) -> MutexGuard<'_, ThreadState> {
        self.state.lock().ignore_poison()
    }
}

fn run(leader: SlotLeader, objects: &DeadlineObjects, shared: &ThreadShared) {
    let log = leader.log().clone();
    let driven = catch_unwind(AssertUnwindSafe(|| drive(leader, objects, shared)));
    let end = driven.unwrap_or_else(|_| {
        // Otherwise all appends would wait for ever.
        let _ = log.end();
        LeaderEnd::Failed("internal: the thread of the leader panicked".into())
    });
    shared.lock().end = Some(end);
    shared.ended.notify_all();
}

/// Drives the leader to its end.
fn drive(mut leader: SlotLeader, objects: &DeadlineObjects, shared: &ThreadShared) -> LeaderEnd {
    loop {
        let request = shared.lock().request;
        match request {
            Request::Lead => {}
            Request::Resign => leader.resign(),
            Request::Stop => leader.stop(),
        }
        let step = leader.step(objects);
        shared.lock().progress = leader.progress().clone();
        match step {
            LeaderStep::Again => {}
            LeaderStep::Wait(time) => leader.wait(time),
            LeaderStep::Ended(end) => return end,
        }
    }
}
