//! [`Message`]: what a group of consumers is asked.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::Status;
use umbel_events::EventId;
use umbel_proto::persistent::{ReadResp, SubscriptionInfo};
use umbel_proto::streams::read_req::UuidForm;

use crate::consumers::{Action, ConsumerId};
use crate::cut::cut;
use crate::group_pace::Pace;
use crate::peers::Peer;

/// Most bytes of why events are parked.
pub const REASON_BYTES_MAX: usize = 1024;

/// What a consumer is sent.
pub type Answer = Result<ReadResp, Status>;

/// What a group is asked.
#[derive(Debug)]
pub enum Message {
    /// A consumer joins.
    Connect(Joining, oneshot::Sender<Result<ConsumerId, Status>>),
    /// A consumer went away.
    Disconnect(ConsumerId),
    /// Events are done.
    Ack(ConsumerId, Vec<EventId>),
    /// Events are not done.
    Nack(ConsumerId, Vec<EventId>, Action),
    /// What the group does.
    Info(oneshot::Sender<SubscriptionInfo>),
    /// Send again what is parked before this revision of its stream.
    Replay(u64, oneshot::Sender<Result<(), Status>>),
    /// End: consumers are told that the group was dropped.
    End(oneshot::Sender<()>),
}

/// Why events are parked, in memory of its own. What is longer than it may be is cut.
pub fn reason(said: &str) -> Arc<str> {
    cut(said, REASON_BYTES_MAX).into()
}

/// A consumer that joins.
#[derive(Debug)]
pub struct Joining {
    /// How many events may be on the way.
    pub room: usize,
    /// In which form identifiers are answered.
    pub form: UuidForm,
    /// Who it is; empty where nobody is asked.
    pub username: String,
    /// Where events go. It has room for two more than may be on the way.
    pub answers: mpsc::Sender<Answer>,
    /// The connection by which it came; `None` where nobody can end it.
    pub peer: Option<Arc<Peer>>,
}

/// A consumer that has joined.
#[derive(Debug)]
pub struct Joined {
    /// How it came.
    pub joining: Joining,
    /// How many events it is sent in a second.
    pub pace: Pace,
    /// How much it had taken of what it was sent when that last changed, as far as somebody looked,
    /// and when that was.
    pub taken: (u64, Instant),
}
