//! [`Event`]: what can happen in an explored world, [`Action`]: what a node can do there, and
//! [`Bounds`]: how often.

use super::explored_events::DiskLoss;

/// Bounds of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Bounds {
    /// Slots that the leaders propose, beginnings of epochs included.
    pub proposals: u8,
    pub snapshots: u8,
    /// Files that leaders upload.
    pub files: u8,
    /// Snapshots that an operator moves away, since they are damaged.
    pub losses: u8,
    pub crashes: u8,
    /// Times at which time passes.
    pub ticks: u8,
    /// Whether leaders collect.
    pub collects: bool,
    /// Appends, repetitions included.
    pub appends: u8,
    /// Closes, and demotions of leaders that could go on.
    pub ends: u8,
    /// Detachments, and opens without the cluster.
    pub alone: u8,
    /// Requests whose moments are apart.
    pub apart: u8,
    /// Times at which the store's clock goes back.
    pub turns: u8,
    /// Reads that require the leader.
    pub reads: u8,
}

/// Slots without appends.
pub const SLOTS: Bounds = Bounds {
    proposals: 0,
    snapshots: 0,
    files: 0,
    losses: 0,
    crashes: 0,
    ticks: 0,
    collects: true,
    appends: 0,
    ends: 0,
    alone: 0,
    apart: 0,
    turns: 0,
    reads: 0,
};

/// Next event of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A late request takes effect.
    Land(usize),
    /// Time passes, while the clock of one node stands still; no node has the number `NODES`.
    /// With `ALL_NODES`, the clocks of all nodes stand still.
    Tick {
        units: u64,
        paused: usize,
    },
    /// The store's clock goes back.
    TurnBack {
        units: u64,
    },
    /// A node sends a request whose moments are apart.
    Send(usize),
    /// A request that was sent takes effect.
    Effect {
        node: usize,
        outcome: usize,
    },
    /// A follower takes over, without faults.
    TakeOver(usize),
    /// A leader uploads an object and names it, without faults.
    Upload {
        node: usize,
        is_snapshot: bool,
    },
    /// An operator moves the newest snapshot away.
    LoseSnapshot,
    /// A leader collects for some requests, which have the same outcome.
    CollectRound {
        node: usize,
        outcome: usize,
    },
    Start(usize),
    Crash {
        node: usize,
        loss: DiskLoss,
    },
    Close(usize),
    /// A leader that could go on leads no more.
    Demote(usize),
    /// A server opens a closed directory without the cluster's options.
    OpenAlone(usize),
    /// An operator makes a closed directory one of its own.
    Detach(usize),
    /// An operator gives a node an empty directory instead of a detached one.
    Replace(usize),
    Act {
        node: usize,
        action: Action,
        outcome: usize,
    },
}

impl Event {
    /// The outcome of its request.
    pub fn outcome(&mut self) -> Option<&mut usize> {
        match self {
            Event::Act { outcome, .. }
            | Event::Effect { outcome, .. }
            | Event::CollectRound { outcome, .. } => Some(outcome),
            _ => None,
        }
    }
}

/// Action of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The next request of its state machine.
    Step,
    /// The answer arrives to a request that took effect.
    GetAnswer,
    Propose,
    /// A node at the end follows on.
    Follow,
    BeginEpoch,
    /// The leader wants to upload a snapshot or a file.
    Upload {
        is_snapshot: bool,
    },
    /// A client sends a read that requires the leader.
    SendRead,
    /// The leader sends a request for a proof.
    Prove,
    /// The leader answers the read that came first.
    AnswerRead,
    /// The leader sends the object of its upload.
    SendUpload,
    Collect,
    /// Ends a round of the collection, as a caller does that only reports.
    RestartCollection,
    /// A client appends an event, for the first time or again.
    Append {
        id: u8,
        waits: bool,
    },
    /// A client waits for the append that it sent first.
    Wait,
    /// The index gets what it may have.
    Commit,
}
