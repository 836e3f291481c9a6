//! Requests to a simulated object store, and their answers.

use std::ops::Range;
use std::sync::Arc;

use umbel_env::{ListPage, ObjectBytes};

use crate::objects::object_fault::{ObjectFault, RequestKind};

/// Content of a request.
#[derive(Debug, Clone)]
pub(crate) enum RequestBody {
    Create { name: String, bytes: Arc<[u8]> },
    Put { name: String, bytes: Arc<[u8]> },
    Read { name: String, range: Range<u64> },
    List { prefix: String, after: Option<String>, objects_max: usize },
    Delete { name: String },
}

impl RequestBody {
    pub(crate) fn kind(&self) -> RequestKind {
        match self {
            RequestBody::Create { .. } => RequestKind::Create,
            RequestBody::Put { .. } => RequestKind::Put,
            RequestBody::Read { .. } => RequestKind::Read,
            RequestBody::List { .. } => RequestKind::List,
            RequestBody::Delete { .. } => RequestKind::Delete,
        }
    }

    /// Returns the name, or the prefix of a list.
    pub(crate) fn name(&self) -> &str {
        match self {
            RequestBody::Create { name, .. }
            | RequestBody::Put { name, .. }
            | RequestBody::Read { name, .. }
            | RequestBody::Delete { name } => name,
            RequestBody::List { prefix, .. } => prefix,
        }
    }

    pub(crate) fn verb(&self) -> &'static str {
        match self.kind() {
            RequestKind::Create => "create",
            RequestKind::Put => "write",
            RequestKind::Read => "read",
            RequestKind::List => "list",
            RequestKind::Delete => "delete",
        }
    }
}

/// A request that the client has sent.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) client: u64,
    pub(crate) body: RequestBody,
    pub(crate) fault: Option<ObjectFault>,
    /// Result of an early check whether the name exists.
    pub(crate) judged: Option<bool>,
    /// Answer to be sent.
    pub(crate) answer: Option<SimAnswer>,
    /// Whether the client still waits.
    pub(crate) is_awaited: bool,
    /// Whether the client has taken the answer, or gave up.
    pub(crate) is_collected: bool,
    /// The first delivery, if this is the second one.
    pub(crate) repeats: Option<u64>,
    /// Number of scheduled steps.
    pub(crate) steps_left: u64,
}

impl Request {
    /// Creates a request whose client waits.
    pub(crate) fn new(client: u64, body: RequestBody, fault: Option<ObjectFault>) -> Request {
        Request {
            client,
            body,
            fault,
            judged: None,
            answer: None,
            is_awaited: true,
            is_collected: false,
            repeats: None,
            steps_left: 0,
        }
    }
}

/// Content of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AnswerBody {
    Done,
    Exists,
    Bytes(Option<ObjectBytes>),
    Page(ListPage),
    /// A status without a result.
    Status(u16),
    /// The connection ended within the body.
    Cut,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SimAnswer {
    pub(crate) body: AnswerBody,
    pub(crate) store_micros: Option<u64>,
}
