//! State that all workers share, and the schedule of their calls.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tonic::Streaming;
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_req::Options;
use umbel_proto::streams::read_resp::{Content, RecordedEvent};

use crate::serving::soak::call_times::CallTimes;
use crate::serving::soak::soak_oracle::SoakOracle;
use crate::serving::soak::soak_plan::SoakWork;
use umbel_testing::server_connection::Connection;

/// Result of one call of a worker; the error is a sentence.
pub(super) type WorkResult<T = ()> = Result<T, String>;

/// Timeout of a call; a call that takes longer counts as hanging.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of errors that ends the soak early.
const WRONG_MAX: u64 = 50;

/// Progress of the soak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum SoakPhase {
    /// All workers run.
    Working,
    /// Only single appends to new streams continue, so that the server stops under load.
    Stopping,
    /// The server is stopping, so that errors are expected.
    Ended,
    /// The server has stopped.
    Stopped,
}

/// State that all workers share.
#[derive(Debug)]
pub(super) struct SoakContext {
    /// Address at which the server listens.
    pub(super) address: SocketAddr,
    /// Number of events appended each second.
    pub(super) rate: u64,
    /// Acknowledged events and errors.
    pub(super) oracle: SoakOracle,
    /// Times of calls.
    pub(super) times: CallTimes,
    phase: AtomicU8,
}

impl SoakContext {
    /// Makes the state for a server that listens at `address`.
    pub(super) fn new(address: SocketAddr, rate: u64) -> SoakContext {
        let (oracle, times) = (SoakOracle::new(), CallTimes::default());
        SoakContext { address, rate, oracle, times, phase: AtomicU8::new(SoakPhase::Working as u8) }
    }

    /// Enters a phase.
    pub(super) fn set_phase(&self, phase: SoakPhase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// Whether the soak has reached this phase or a later one.
    pub(super) fn has_reached(&self, phase: SoakPhase) -> bool {
        self.phase.load(Ordering::SeqCst) >= phase as u8
    }

    /// Whether there are too many errors to continue.
    pub(super) fn has_too_many_errors(&self) -> bool {
        self.oracle.all_wrong().0 >= WRONG_MAX
    }

    /// Opens a connection for one worker.
    pub(super) async fn connect(&self) -> WorkResult<Connection> {
        Connection::to(self.address).await
    }

    /// Calls `once` at the rate of this kind of work, until the phase `until`.
    pub(super) async fn wait_for_turn<F>(
        &self,
        kind: SoakWork,
        worker: usize,
        until: SoakPhase,
        mut once: impl FnMut(u64) -> F,
    ) where
        F: Future<Output = WorkResult<bool>>,
    {
        let every = Duration::from_secs_f64(kind.workers() as f64 / kind.per_second(self.rate));
        let mut due = tokio::time::Instant::now() + every.mul_f64(worker as f64 / 7.0 % 1.0);
        for call in 0.. {
            tokio::time::sleep_until(due).await;
            if self.has_reached(until) || self.has_too_many_errors() {
                break;
            }
            let since = Instant::now();
            let what = match tokio::time::timeout(CALL_TIMEOUT, once(call)).await {
                Ok(Ok(is_timed)) => {
                    if is_timed {
                        self.times.add(kind, since.elapsed());
                    }
                    None
                }
                Ok(Err(what)) => Some(what),
                Err(_) => Some(format!("no answer within {} s", CALL_TIMEOUT.as_secs())),
            };
            if let Some(what) = what {
                if self.has_reached(SoakPhase::Ended) {
                    break;
                }
                self.oracle.wrong(format!("{}: {what}", kind.name()));
            }
            // A worker that is late catches up on few calls, not on all at once.
            due = (due + every).max(tokio::time::Instant::now() - every * 10);
        }
    }
}

/// Makes a function that prepends "`what` failed" to an error.
pub(super) fn failed<E: Display>(what: &str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Returns the error for an answer that is not the expected one.
pub(super) fn unexpected_answer<T>(what: &str, answer: impl Debug) -> WorkResult<T> {
    Err(format!("{what} was answered with {answer:?}"))
}

/// Answers to a read or a subscription.
pub(super) struct AnswerStream(Streaming<ReadResp>);

impl AnswerStream {
    /// Opens a read or a subscription.
    pub(super) async fn open(
        connection: &Connection,
        options: Options,
    ) -> WorkResult<AnswerStream> {
        connection.subscribe(options).await.map(AnswerStream).map_err(failed("a read"))
    }

    /// Receives the next answer; `None` at the end.
    pub(super) async fn next(&mut self) -> WorkResult<Option<Content>> {
        let answer = self.0.message().await.map_err(failed("a read"))?;
        Ok(answer.and_then(|answer| answer.content))
    }

    /// Receives the next event; `None` at the end.
    pub(super) async fn event(&mut self) -> WorkResult<Option<RecordedEvent>> {
        loop {
            match self.next().await? {
                None => return Ok(None),
                Some(Content::Event(event)) => match event.event {
                    Some(event) => return Ok(Some(event)),
                    None => {
                        return unexpected_answer("a read", "an event message without an event");
                    }
                },
                Some(Content::StreamNotFound(_)) => {
                    return unexpected_answer("a read", "no such stream");
                }
                // Ends of streams, and notices that the subscription is live.
                Some(_) => {}
            }
        }
    }

    /// Receives the confirmation of the subscription, which is the first answer.
    pub(super) async fn confirmed(&mut self) -> WorkResult {
        match self.next().await? {
            Some(Content::Confirmation(_)) => Ok(()),
            other => unexpected_answer("a subscription", other),
        }
    }
}
