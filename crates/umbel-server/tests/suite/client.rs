//! Client that sends messages unchecked, so that tests can send invalid ones.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tonic::Status;
pub use umbel_proto::read_options::{
    at_most, at_position, backwards, of_all, of_stream, subscription,
};
use umbel_proto::shared::{StreamIdentifier, Uuid, uuid};
use umbel_proto::streams::read_req::Options;
use umbel_proto::streams::{
    AppendReq, DeleteOptions, DeleteReq, DeleteResp, ExpectedRevision, append_req, append_resp,
    read_resp,
};
use umbel_testing::server_connection::{Connection, STREAMS};

pub const ANY: ExpectedRevision = ExpectedRevision::Any(());
pub const NO_STREAM: ExpectedRevision = ExpectedRevision::NoStream(());
pub const EXISTS: ExpectedRevision = ExpectedRevision::StreamExists(());

/// Client of the event store, which also has the methods of its connection.
#[derive(Debug, Clone)]
pub struct Client(pub Connection);

impl Deref for Client {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.0
    }
}

impl Client {
    /// Returns a client of the same connection that calls as this user.
    pub fn with_user(&self, login: &str, password: &str) -> Client {
        let credentials = STANDARD.encode(format!("{login}:{password}"));
        self.with_authorization(&format!("Basic {credentials}"))
    }

    /// Returns a client of the same connection that calls with this authorization header.
    pub fn with_authorization(&self, authorization: &str) -> Client {
        let mut client = self.clone();
        client.authorization = Some(authorization.parse().unwrap());
        client
    }

    pub async fn connect(address: SocketAddr) -> Client {
        Client(Connection::to(address).await.unwrap())
    }

    /// Appends; returns the outcome, or the status of a failed call.
    pub async fn append(
        &self,
        stream: &str,
        expected: ExpectedRevision,
        events: &[append_req::ProposedMessage],
    ) -> Result<append_resp::Outcome, Status> {
        let options = append_req::Options {
            stream_identifier: Some(name(stream)),
            expected_stream_revision: Some(expected),
        };
        let mut parts = vec![part(append_req::Content::Options(options))];
        let events = events.iter().cloned().map(append_req::Content::ProposedMessage);
        parts.extend(events.map(part));
        Ok(self.append_parts(parts).await?.result.unwrap())
    }

    pub async fn delete(
        &self,
        method: &str,
        stream: &str,
        expected: ExpectedRevision,
    ) -> Result<DeleteResp, Status> {
        let options = DeleteOptions {
            stream_identifier: Some(name(stream)),
            expected_stream_revision: Some(expected),
        };
        self.unary(STREAMS, method, DeleteReq { options: Some(options) }).await
    }

    /// Reads all responses of a read.
    pub async fn read(&self, options: Options) -> Result<Vec<read_resp::Content>, Status> {
        let mut answers = self.subscribe(options).await?;
        let mut contents = Vec::new();
        while let Some(answer) = answers.message().await? {
            contents.push(answer.content.unwrap());
        }
        Ok(contents)
    }
}

pub fn part(content: append_req::Content) -> AppendReq {
    AppendReq { content: Some(content) }
}

pub fn name(stream: &str) -> StreamIdentifier {
    stream.into()
}

/// The identifier with this number.
pub fn id(number: u64) -> Uuid {
    let halves =
        uuid::Structured { most_significant_bits: 0x1234, least_significant_bits: number as i64 };
    Uuid { value: Some(uuid::Value::Structured(halves)) }
}

/// The event with this number, which is also its data.
pub fn event(number: u64) -> append_req::ProposedMessage {
    append_req::ProposedMessage {
        id: Some(id(number)),
        metadata: [("type", "Counted"), ("content-type", "application/json")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into(),
        custom_metadata: b"{}".to_vec().into(),
        data: number.to_string().into_bytes().into(),
    }
}

pub fn events(numbers: std::ops::Range<u64>) -> Vec<append_req::ProposedMessage> {
    numbers.map(event).collect()
}

/// Returns the event of a response that has one.
pub fn recorded(content: read_resp::Content) -> read_resp::RecordedEvent {
    match content {
        read_resp::Content::Event(event) => event.event.unwrap(),
        other => panic!("no event: {other:?}"),
    }
}

/// Numbers of events, which are their data.
pub fn numbers(contents: Vec<read_resp::Content>) -> Vec<u64> {
    contents.into_iter().map(|content| number(&recorded(content))).collect()
}

pub fn number(event: &read_resp::RecordedEvent) -> u64 {
    std::str::from_utf8(&event.data).unwrap().parse().unwrap()
}

/// The detail that a status carries under this name.
pub fn fact<'a>(status: &'a Status, key: &str) -> &'a str {
    let value = status.metadata().get(key).unwrap_or_else(|| panic!("no {key}: {status:?}"));
    value.to_str().unwrap()
}
