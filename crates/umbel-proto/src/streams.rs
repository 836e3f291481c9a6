//! `event_store.client.streams`: appends, reads, subscriptions and deletes.

use crate::generated::event_store::client::streams as package;

pub use package::append_req::Options as DeleteOptions;
pub use package::append_req::options::ExpectedStreamRevision as ExpectedRevision;
pub use package::delete_resp::PositionOption as DeleteResult;
pub use package::{
    AppendReq, AppendResp, BatchAppendReq, BatchAppendResp, DeleteReq, DeleteResp, ReadReq,
    ReadResp,
};

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.streams.Streams";

impl From<ExpectedRevision> for batch_append_req::Expected {
    fn from(expected: ExpectedRevision) -> batch_append_req::Expected {
        match expected {
            ExpectedRevision::Revision(revision) => Self::StreamPosition(revision),
            ExpectedRevision::NoStream(()) => Self::NoStream(()),
            ExpectedRevision::Any(()) => Self::Any(()),
            ExpectedRevision::StreamExists(()) => Self::StreamExists(()),
        }
    }
}

impl From<batch_append_req::Expected> for ExpectedRevision {
    fn from(expected: batch_append_req::Expected) -> ExpectedRevision {
        use batch_append_req::Expected;
        match expected {
            Expected::StreamPosition(revision) => Self::Revision(revision),
            Expected::NoStream(()) => Self::NoStream(()),
            Expected::Any(()) => Self::Any(()),
            Expected::StreamExists(()) => Self::StreamExists(()),
        }
    }
}

/// Parts of [`ReadReq`].
pub mod read_req {
    use super::package::read_req::options;

    pub use super::package::read_req::Options;
    pub use options::all_options::AllOption;
    pub use options::filter_options::{Expression, Filter, Window};
    pub use options::stream_options::RevisionOption;
    pub use options::uuid_option::Content as UuidForm;
    pub use options::{
        AllOptions, ControlOption, CountOption, FilterOption, FilterOptions, Position,
        ReadDirection, StreamOption, StreamOptions, UuidOption,
    };
}

/// Parts of [`ReadResp`].
pub mod read_resp {
    use super::package::read_resp;

    pub use read_resp::read_event::{Position as EventPosition, RecordedEvent};
    pub use read_resp::{
        CaughtUp as Progress, Checkpoint, Content, ReadEvent, StreamNotFound,
        SubscriptionConfirmation,
    };
}

/// Parts of [`AppendReq`].
pub mod append_req {
    pub use super::package::append_req::{Content, Options, ProposedMessage};
}

/// Parts of [`AppendResp`].
pub mod append_resp {
    use super::package::append_resp;

    pub use append_resp::success::{CurrentRevisionOption as CurrentRevision, PositionOption};
    pub use append_resp::wrong_expected_version::{
        CurrentRevisionOption as Current, CurrentRevisionOption2060 as OldCurrent,
        ExpectedRevisionOption as Expected, ExpectedRevisionOption2060 as OldExpected,
    };
    pub use append_resp::{Result as Outcome, Success, WrongExpectedVersion};
}

/// Parts of [`BatchAppendReq`].
pub mod batch_append_req {
    use super::package::batch_append_req;

    pub use super::append_req::ProposedMessage;
    pub use batch_append_req::Options;
    pub use batch_append_req::options::{DeadlineOption, ExpectedStreamPosition as Expected};
}

/// Parts of [`BatchAppendResp`].
pub mod batch_append_resp {
    use super::package::batch_append_resp;

    pub use super::append_resp::{CurrentRevision, PositionOption, Success};
    pub use batch_append_resp::{ExpectedStreamPosition as Expected, Result as Outcome};
}
