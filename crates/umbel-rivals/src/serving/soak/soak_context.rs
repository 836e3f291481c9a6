//! What all who work share, and the turns in which they work.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tonic::Streaming;
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_req::Options;
use umbel_proto::streams::read_resp::{Content, RecordedEvent};

use super::ledger::Ledger;
use super::plan::Kind;
use super::times::Times;
use crate::serving::connection::Connection;

/// What somebody who works has done; a sentence where something was wrong.
pub(super) type Done<T = ()> = Result<T, String>;

/// Longer than any call takes: one that needs more hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// So much wrong ends the soak early.
const WRONG_MAX: u64 = 50;

/// How far the soak is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// All work.
    Working,
    /// Only single appends to new streams go on, so that the server is stopped under load.
    Stopping,
    /// The server goes away: errors are what everybody gets.
    Ended,
    /// It is gone.
    Gone,
}

/// What all share.
#[derive(Debug)]
pub(super) struct Ground {
    /// Where the server listens.
    pub(super) address: SocketAddr,
    /// How many events a second are appended.
    pub(super) rate: u64,
    /// What was acknowledged.
    pub(super) ledger: Ledger,
    /// How long calls took.
    pub(super) times: Times,
    phase: AtomicU8,
}

impl Ground {
    /// The ground of a server that listens here.
    pub(super) fn new(address: SocketAddr, rate: u64) -> Ground {
        let (ledger, times) = (Ledger::new(), Times::default());
        Ground { address, rate, ledger, times, phase: AtomicU8::new(Phase::Working as u8) }
    }

    /// The soak is so far now.
    pub(super) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::SeqCst);
    }

    /// Whether it is so far, or farther.
    pub(super) fn is_in(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::SeqCst) >= phase as u8
    }

    /// Whether so much was wrong that it is not worth going on.
    pub(super) fn is_hopeless(&self) -> bool {
        self.ledger.all_wrong().0 >= WRONG_MAX
    }

    /// A connection of its own.
    pub(super) async fn connect(&self) -> Done<Connection> {
        Connection::to(self.address).await
    }

    /// Begins a call of this kind so often, all workers together, until the soak ends.
    pub(super) async fn pace<F>(
        &self,
        kind: Kind,
        worker: usize,
        until: Phase,
        mut once: impl FnMut(u64) -> F,
    ) where
        F: Future<Output = Done<bool>>,
    {
        let every = Duration::from_secs_f64(kind.workers() as f64 / kind.per_second(self.rate));
        let mut due = tokio::time::Instant::now() + every.mul_f64(worker as f64 / 7.0 % 1.0);
        for call in 0.. {
            tokio::time::sleep_until(due).await;
            if self.is_in(until) || self.is_hopeless() {
                break;
            }
            let since = Instant::now();
            let what = match tokio::time::timeout(PATIENCE, once(call)).await {
                Ok(Ok(is_timed)) => {
                    if is_timed {
                        self.times.add(kind, since.elapsed());
                    }
                    None
                }
                Ok(Err(what)) => Some(what),
                Err(_) => Some(format!("no answer within {} s", PATIENCE.as_secs())),
            };
            if let Some(what) = what {
                if self.is_in(Phase::Ended) {
                    break;
                }
                self.ledger.wrong(format!("{}: {what}", kind.name()));
            }
            // Who fell behind does not make up for it all at once.
            due = (due + every).max(tokio::time::Instant::now() - every * 10);
        }
    }
}

/// A sentence about a failure of a call.
pub(super) fn failed<E: Display>(what: &str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// A sentence about an answer that is not the right one.
pub(super) fn odd<T>(what: &str, answer: impl Debug) -> Done<T> {
    Err(format!("{what} was answered with {answer:?}"))
}

/// What a read or a subscription is answered with.
pub(super) struct Answers(Streaming<ReadResp>);

impl Answers {
    /// Asks.
    pub(super) async fn open(connection: &Connection, options: Options) -> Done<Answers> {
        connection.subscribe(options).await.map(Answers).map_err(failed("a read"))
    }

    /// The next answer; `None` at the end.
    pub(super) async fn next(&mut self) -> Done<Option<Content>> {
        let answer = self.0.message().await.map_err(failed("a read"))?;
        Ok(answer.and_then(|answer| answer.content))
    }

    /// The next event; `None` at the end.
    pub(super) async fn event(&mut self) -> Done<Option<RecordedEvent>> {
        loop {
            match self.next().await? {
                None => return Ok(None),
                Some(Content::Event(event)) => match event.event {
                    Some(event) => return Ok(Some(event)),
                    None => return odd("a read", "an event that is none"),
                },
                Some(Content::StreamNotFound(_)) => return odd("a read", "no such stream"),
                // Ends of streams, and that all there was has been answered.
                Some(_) => {}
            }
        }
    }

    /// That the subscription stands, which is said first.
    pub(super) async fn confirmed(&mut self) -> Done {
        match self.next().await? {
            Some(Content::Confirmation(_)) => Ok(()),
            other => odd("a subscription", other),
        }
    }
}
