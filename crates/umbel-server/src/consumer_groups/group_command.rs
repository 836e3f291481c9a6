//! [`GroupCommand`]: the commands to the task of a consumer group.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::Status;
use umbel_events::EventId;
use umbel_proto::persistent::{ReadResp, SubscriptionInfo};
use umbel_proto::streams::read_req::UuidForm;

use crate::consumer_groups::dispatcher::{ConsumerId, NackDecision};
use crate::consumer_groups::group_reading::GroupState;
use crate::consumer_groups::rate_meter::RateMeter;
use crate::protocol::truncate_text::truncate_text;
use crate::resources::connection_registry::Connection;

/// Maximum bytes of the stored reason for which events are parked.
pub const REASON_BYTES_MAX: usize = 1024;

/// A response to a consumer.
pub type ConsumerResponse = Result<ReadResp, Status>;

/// A command to a group's task.
#[derive(Debug)]
pub enum GroupCommand {
    /// A consumer connects.
    Connect(ConsumerRequest, oneshot::Sender<Result<ConsumerId, Status>>),
    /// A consumer disconnected.
    Disconnect(ConsumerId),
    /// A consumer has processed these events.
    Ack(ConsumerId, Vec<EventId>),
    /// A consumer has not processed these events.
    Nack(ConsumerId, Vec<EventId>, NackDecision),
    /// Requests the group's statistics and numbers.
    Info(oneshot::Sender<(SubscriptionInfo, GroupState)>),
    /// Requests the group's numbers for the metrics.
    ReadState(oneshot::Sender<GroupState>),
    /// Replays events parked before this revision of the parked stream.
    Replay(u64, oneshot::Sender<Result<(), Status>>),
    /// Removes events parked before this revision of the parked stream.
    TruncateParked(u64, oneshot::Sender<Result<(), Status>>),
    /// Ends the group; its consumers get the status that the group was dropped.
    End(oneshot::Sender<()>),
}

/// Copies the reason for parking events, cut to at most [`REASON_BYTES_MAX`] bytes.
pub fn park_reason(reason: &str) -> Arc<str> {
    truncate_text(reason, REASON_BYTES_MAX).into()
}

/// A consumer that connects.
#[derive(Debug)]
pub struct ConsumerRequest {
    /// Maximum number of events in flight to the consumer.
    pub capacity: usize,
    /// Format of identifiers in responses.
    pub form: UuidForm,
    /// Name of the user; empty on a server without users.
    pub username: String,
    /// Name that the client gave the connection; empty without one.
    pub connection_name: String,
    /// Channel for responses, with capacity for two more messages than events may be in flight.
    pub responses: mpsc::Sender<ConsumerResponse>,
    /// The consumer's connection; `None` if the server cannot close it.
    pub connection: Option<Arc<Connection>>,
}

/// A consumer that has connected.
#[derive(Debug)]
pub struct ConnectedConsumer {
    /// The request with which the consumer connected.
    pub request: ConsumerRequest,
    /// Rate at which the consumer is sent events.
    pub rate: RateMeter,
    /// Number of responses that the consumer had taken when the group last saw that number change,
    /// and the time of that.
    pub last_taken: (u64, Instant),
}
