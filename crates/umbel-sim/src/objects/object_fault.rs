//! Faults of a simulated object store: kinds, rates, and the moments of a request.

use std::time::Duration;

use crate::random::Random;

/// Kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestKind {
    /// Creation of an object if it is absent.
    Create,
    /// Unconditional write of an object.
    Put,
    /// Read of a range.
    Read,
    /// List of names.
    List,
    /// Deletion of an object.
    Delete,
}

/// Fault of one request. A fault with `commits` has the effect of the request and hides it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectFault {
    /// The request never arrives, and no answer comes.
    LostRequest,
    /// The request takes effect, and no answer comes.
    LostAnswer,
    /// No answer comes in time, and the request takes effect later.
    LateLanding,
    /// The request arrives twice. The client gets the answer of either delivery.
    Duplicate,
    /// Status 409: another request for the name is in progress.
    Conflict {
        /// Whether the request takes effect.
        commits: bool,
    },
    /// Status 412: the name exists, even though this request created it, or no object has it.
    Precondition {
        /// Whether the request takes effect.
        commits: bool,
    },
    /// Status 500.
    ServerError {
        /// Whether the request takes effect.
        commits: bool,
    },
    /// Status 503.
    SlowDown {
        /// Whether the request takes effect.
        commits: bool,
    },
    /// Status 403 of expired credentials, without an effect.
    Denied,
    /// The connection ends within the body of a read.
    CutBody,
    /// A read returns fewer bytes, as if the object were shorter.
    ShortBody,
    /// A read returns a flipped bit.
    WrongBody,
    /// A read returns the bytes of another object.
    OtherBody,
    /// A read returns an earlier state, from a bounded time ago.
    StaleRead,
    /// A list returns an earlier state, from a bounded time ago.
    StaleList,
    /// A later page of a list fails.
    BrokenPage,
    /// A page of a list is shorter than the limit, although more objects follow.
    ShortPage,
}

impl ObjectFault {
    /// Every fault.
    pub const ALL: [ObjectFault; 21] = [
        ObjectFault::LostRequest,
        ObjectFault::LostAnswer,
        ObjectFault::LateLanding,
        ObjectFault::Duplicate,
        ObjectFault::Conflict { commits: false },
        ObjectFault::Conflict { commits: true },
        ObjectFault::Precondition { commits: false },
        ObjectFault::Precondition { commits: true },
        ObjectFault::ServerError { commits: false },
        ObjectFault::ServerError { commits: true },
        ObjectFault::SlowDown { commits: false },
        ObjectFault::SlowDown { commits: true },
        ObjectFault::Denied,
        ObjectFault::CutBody,
        ObjectFault::ShortBody,
        ObjectFault::WrongBody,
        ObjectFault::OtherBody,
        ObjectFault::StaleRead,
        ObjectFault::StaleList,
        ObjectFault::BrokenPage,
        ObjectFault::ShortPage,
    ];

    /// Whether a request of this kind can have the fault.
    pub fn fits(self, kind: RequestKind) -> bool {
        use ObjectFault as F;
        let changes = matches!(kind, RequestKind::Create | RequestKind::Put | RequestKind::Delete);
        match self {
            F::LostRequest | F::Denied => true,
            F::ServerError { commits } | F::SlowDown { commits } => changes || !commits,
            F::LostAnswer | F::LateLanding | F::Duplicate => changes,
            F::Conflict { .. } | F::Precondition { .. } => kind == RequestKind::Create,
            F::CutBody | F::ShortBody | F::WrongBody | F::OtherBody | F::StaleRead => {
                kind == RequestKind::Read
            }
            F::StaleList | F::BrokenPage | F::ShortPage => kind == RequestKind::List,
        }
    }

    /// Whether a store that keeps its guarantees can have the fault: the network fails, or the
    /// store is overloaded.
    pub fn is_transient(self) -> bool {
        use ObjectFault as F;
        matches!(
            self,
            F::LostRequest
                | F::LostAnswer
                | F::LateLanding
                | F::Duplicate
                | F::Conflict { .. }
                | F::Precondition { commits: true }
                | F::ServerError { .. }
                | F::SlowDown { .. }
                | F::CutBody
                | F::BrokenPage
                | F::ShortPage
        )
    }
}

/// Frequency of each fault, in thousandths of the requests that it fits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultRates(Vec<(ObjectFault, u64)>);

impl FaultRates {
    /// Creates rates without any fault.
    pub fn none() -> FaultRates {
        FaultRates::default()
    }

    /// Creates rates of all faults of a store that keeps its guarantees.
    pub fn transient(per_mille: u64) -> FaultRates {
        let faults = ObjectFault::ALL.into_iter().filter(|fault| fault.is_transient());
        FaultRates(faults.map(|fault| (fault, per_mille)).collect())
    }

    /// Creates rates of all faults.
    pub fn all(per_mille: u64) -> FaultRates {
        FaultRates(ObjectFault::ALL.map(|fault| (fault, per_mille)).to_vec())
    }

    /// Adds a fault.
    pub fn with(mut self, fault: ObjectFault, per_mille: u64) -> FaultRates {
        self.0.push((fault, per_mille));
        self
    }

    /// Draws the fault of a request. Every request draws one number.
    pub(crate) fn draw(&self, random: &mut Random, kind: RequestKind) -> Option<ObjectFault> {
        let mut number = random.below(1000);
        for (fault, per_mille) in self.0.iter().filter(|(fault, _)| fault.fits(kind)) {
            match number.checked_sub(*per_mille) {
                Some(rest) => number = rest,
                None => return Some(*fault),
            }
        }
        None
    }
}

/// The three moments of a request, each after the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTimes {
    /// Time until the store takes the request; `None` if the request never arrives.
    pub taken: Option<Duration>,
    /// Time from the end of the body until the request takes effect; `None` if it never does.
    pub committed: Option<Duration>,
    /// Time until the answer arrives; `None` if it never does.
    pub answered: Option<Duration>,
}

impl RequestTimes {
    /// Draws the moments of a request without a fault.
    pub(crate) fn draw(random: &mut Random) -> RequestTimes {
        let mut micros =
            |least: u64, most: u64| Some(Duration::from_micros(least + random.below(most - least)));
        RequestTimes {
            taken: micros(300, 10_000),
            committed: micros(500, 25_000),
            answered: micros(300, 10_000),
        }
    }
}
