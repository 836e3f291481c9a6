//! [`LeaderStatus`]: the state of a leader for operators, and [`LeaderEnd`]: why it leads no more.

use std::fmt;
use std::time::Duration;

/// State of a leader for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderStatus {
    /// Role of the node.
    pub role: LeaderRole,
    /// Epoch in which the node leads or led; 0 before.
    pub epoch: u64,
    /// Number of the last slot that the node created for certain; 0 before the first one.
    pub slot: u64,
    /// Time since the last slot was created; `None` before the first one.
    pub success_age: Option<Duration>,
    /// Bytes of the event log that no acknowledged slot has; 0 while the node does not lead.
    pub bytes_not_in_slots: u64,
    /// The last failed request or read since the last slot.
    pub failure: Option<String>,
}

/// Role of a node that leads or is to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderRole {
    /// The node follows the slots to their end, and begins an epoch there.
    Candidate,
    /// The node leads: its appends are acknowledged once a slot has them.
    Leader,
    /// The store has ended, and the node still gives up its epoch, so that another one takes over
    /// at once.
    GivingUp,
    /// The node leads no more.
    Ended(LeaderEnd),
}

/// Reason why a node leads no more, or never led.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaderEnd {
    /// Another node leads, or the slots have records that this store lacks. The node never led, and
    /// its store is open: it follows.
    Overtaken,
    /// Another node took over, or could have done so. The store has ended.
    Deposed,
    /// No slot was created for the time after which the slots can have been used by others. The
    /// store has ended.
    Stale,
    /// The node gave up its epoch, as requested. The store has ended.
    Resigned,
    /// The store was closed.
    Closed,
    /// The event log accepts no more writes, for this reason. The store has ended.
    LogFailed(String),
    /// The slots or this node contradict the format, for this reason. The store has ended if the
    /// node led.
    Failed(String),
}

impl fmt::Display for LeaderEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaderEnd::Overtaken => f.write_str("another node leads, or this one lacks slots"),
            LeaderEnd::Deposed => f.write_str("another node took over, or could have done so"),
            LeaderEnd::Stale => f.write_str("the object store confirmed no slot in time"),
            LeaderEnd::Resigned => f.write_str("the node gave up its epoch"),
            LeaderEnd::Closed => f.write_str("the event store was closed"),
            LeaderEnd::LogFailed(reason) => write!(f, "the event log failed: {reason}"),
            LeaderEnd::Failed(reason) => f.write_str(reason),
        }
    }
}
