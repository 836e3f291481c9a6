//! [`JobQueue`]: the order in which the threads of a pool run jobs, without threads and clocks.
//!
//! INVARIANT:
//! 1. Jobs start in the order in which they were added. A call has one job at a time, so between
//!    two of its jobs each other call runs at most one.
//! 2. At most `slots` running jobs are quick, and a job starts only where a slot is free. A job
//!    that runs for [`QUICK_JOB_TIME`] waits for the disk, and leaves its slot.
//! 3. A cancelled job never starts.

use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which a running job leaves its slot to another job. It is over twice the time in
/// which one processor reads a page for each of nine threads. Otherwise pages that wait for a
/// processor would count as slow, and further pages would start, which slows all of them.
pub const QUICK_JOB_TIME: Duration = Duration::from_millis(50);

/// Number of a job, in the order of the jobs.
pub type Ticket = u64;

/// Jobs that wait, and jobs that run.
#[derive(Debug)]
pub struct JobQueue<J> {
    slots: usize,
    next_ticket: Ticket,
    waiting: BTreeMap<Ticket, J>,
    /// Start time of each running job.
    running: BTreeMap<Ticket, Duration>,
    is_closed: bool,
}

/// The next action of an idle thread.
#[derive(Debug, PartialEq, Eq)]
pub enum NextJob<J> {
    /// The thread runs this job and calls [`JobQueue::finish`].
    Run(Ticket, J),
    /// No job may start before a change, or before this time has passed.
    Wait(Option<Duration>),
    /// The thread ends.
    Closed,
}

impl<J> JobQueue<J> {
    /// Creates an empty queue of `slots` slots, at least one.
    pub fn new(slots: usize) -> JobQueue<J> {
        JobQueue {
            slots: slots.max(1),
            next_ticket: 0,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            is_closed: false,
        }
    }

    /// Adds a job at the end; `None` if the queue is closed.
    pub fn add(&mut self, job: J) -> Option<Ticket> {
        if self.is_closed {
            return None;
        }
        self.next_ticket += 1;
        self.waiting.insert(self.next_ticket, job);
        Some(self.next_ticket)
    }

    /// Removes a job that has not started; `None` if it runs or has ended.
    pub fn cancel(&mut self, ticket: Ticket) -> Option<J> {
        self.waiting.remove(&ticket)
    }

    /// Takes the next job if a slot is free at the time `now`.
    pub fn take(&mut self, now: Duration) -> NextJob<J> {
        if self.is_closed {
            return NextJob::Closed;
        }
        if self.waiting.is_empty() {
            return NextJob::Wait(None);
        }
        if !self.has_free_slot(now) {
            let oldest = self.quick_ages(now).max();
            return NextJob::Wait(oldest.map(|age| QUICK_JOB_TIME - age));
        }
        let Some((ticket, job)) = self.waiting.pop_first() else { return NextJob::Wait(None) };
        self.running.insert(ticket, now);
        NextJob::Run(ticket, job)
    }

    /// Whether a job could start at the time `now`.
    pub fn has_free_slot(&self, now: Duration) -> bool {
        self.quick_ages(now).count() < self.slots
    }

    /// Ages of the running jobs that are not slow.
    fn quick_ages(&self, now: Duration) -> impl Iterator<Item = Duration> {
        let ages = self.running.values().map(move |began| now.saturating_sub(*began));
        ages.filter(|age| *age < QUICK_JOB_TIME)
    }

    /// Records the end of a running job.
    pub fn finish(&mut self, ticket: Ticket) {
        self.running.remove(&ticket);
    }

    /// Closes the queue, and returns the jobs that have not started.
    pub fn close(&mut self) -> BTreeMap<Ticket, J> {
        self.is_closed = true;
        std::mem::take(&mut self.waiting)
    }

    /// Number of jobs that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of jobs that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenth of the time of a quick job.
    const TENTH: Duration = Duration::from_millis(QUICK_JOB_TIME.as_millis() as u64 / 10);

    fn run<J: std::fmt::Debug>(queue: &mut JobQueue<J>, now: Duration) -> (Ticket, J) {
        match queue.take(now) {
            NextJob::Run(ticket, job) => (ticket, job),
            other => panic!("{other:?}"),
        }
    }

    /// Calls with searches of different lengths ask for their pages one after the other. Between
    /// two pages of a call, each other call gets one page at most.
    #[test]
    fn each_call_waits_for_one_page_of_each_other_call() {
        let pages = [1_000, 3, 40, 1, 1_000, 7];
        for slots in [1, 3] {
            let (mut queue, mut left, mut now) = (JobQueue::new(slots), pages, Duration::ZERO);
            let mut pages_since = [[0; 6]; 6];
            pages.iter().enumerate().for_each(|(call, _)| assert!(queue.add(call).is_some()));
            while queue.waiting() > 0 {
                let begun: Vec<_> = (0..slots.min(queue.waiting()))
                    .map(|_| {
                        let (ticket, call) = run(&mut queue, now);
                        pages_since[call] = [0; 6];
                        pages_since.iter_mut().for_each(|others| others[call] += 1);
                        let most = pages_since.iter().flatten().max();
                        assert!(most <= Some(&1), "{pages_since:?}");
                        (ticket, call)
                    })
                    .collect();
                now += TENTH;
                for (ticket, call) in begun {
                    queue.finish(ticket);
                    left[call] -= 1;
                    if left[call] > 0 {
                        queue.add(call);
                    } else {
                        // A call that has ended waits for nothing.
                        pages_since.iter_mut().for_each(|others| others[call] = 0);
                        pages_since[call] = [i32::MIN; 6];
                    }
                }
            }
            assert_eq!(left, [0; 6]);
        }
    }

    #[test]
    fn slow_job_leaves_its_slot_and_quick_jobs_keep_theirs() {
        let mut queue = JobQueue::new(2);
        (0..6).for_each(|job| assert!(queue.add(job).is_some()));
        let (first, _) = run(&mut queue, Duration::ZERO);
        run(&mut queue, TENTH * 4);
        assert_eq!(queue.take(TENTH * 4), NextJob::Wait(Some(TENTH * 6)));
        assert_eq!(queue.take(TENTH * 9), NextJob::Wait(Some(TENTH)));
        // The first job is slow now, and the second one is quick until its time has passed.
        assert_eq!(run(&mut queue, TENTH * 10).1, 2);
        assert_eq!(queue.take(TENTH * 10), NextJob::Wait(Some(TENTH * 4)));
        // The end of a slow job frees no second slot.
        queue.finish(first);
        assert_eq!(queue.take(TENTH * 10), NextJob::Wait(Some(TENTH * 4)));
        assert_eq!(run(&mut queue, TENTH * 14).1, 3);
        assert_eq!((queue.waiting(), queue.running()), (2, 3));
    }

    #[test]
    fn cancelled_and_late_jobs_never_start() {
        let mut queue = JobQueue::new(0);
        let tickets: Vec<Ticket> = (0..3).filter_map(|job| queue.add(job)).collect();
        assert_eq!(queue.cancel(tickets[1]), Some(1));
        assert_eq!(queue.cancel(tickets[1]), None);
        let (first, job) = run(&mut queue, Duration::ZERO);
        assert_eq!((first, job), (tickets[0], 0));
        assert_eq!(queue.cancel(first), None, "it runs");
        queue.finish(first);
        assert_eq!(run(&mut queue, Duration::ZERO).1, 2);
        assert_eq!(queue.take(TENTH), NextJob::Wait(None));
        queue.add(3);
        assert_eq!(queue.close().into_values().collect::<Vec<_>>(), [3]);
        assert_eq!((queue.add(4), queue.take(TENTH)), (None, NextJob::Closed));
    }
}
