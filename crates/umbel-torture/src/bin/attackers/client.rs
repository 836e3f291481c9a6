//! Connections of clients with users, and the messages that they send.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tonic::Status;
use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::append_req::{Content, Options, ProposedMessage};
use umbel_proto::streams::append_resp::Outcome;
use umbel_proto::streams::{AppendReq, ExpectedRevision};
use umbel_proto::users::{SERVICE, UserOptions, UserReq};
use umbel_testing::server_connection::Connection;

/// Password of all users.
pub const PASSWORD: &str = "correct-horse-9";
/// A user without groups, as whom attackers call.
pub const MALLORY: &str = "mallory";

static NUMBER: AtomicI64 = AtomicI64::new(1);

/// Connects as this user.
pub async fn connect(address: SocketAddr, user: &str) -> Result<Connection, String> {
    connect_with(address, user, PASSWORD).await
}

/// Connects with this password.
pub async fn connect_with(
    address: SocketAddr,
    user: &str,
    password: &str,
) -> Result<Connection, String> {
    let mut connection = Connection::to(address).await?;
    let credentials = STANDARD.encode(format!("{user}:{password}"));
    connection.authorization = format!("Basic {credentials}").parse().ok();
    Ok(connection)
}

/// Creates the attacker's user.
pub async fn create_users(address: SocketAddr) -> Result<(), String> {
    create(address, &[MALLORY.to_string()]).await
}

/// Creates users without groups.
pub async fn create(address: SocketAddr, names: &[String]) -> Result<(), String> {
    let admin = connect(address, "admin").await?;
    for name in names {
        let options = UserOptions {
            login_name: name.clone(),
            password: PASSWORD.to_string(),
            full_name: name.clone(),
            groups: Vec::new(),
        };
        let request = UserReq { options: Some(options) };
        let created = admin.unary::<_, ()>(SERVICE, "Create", request).await;
        created.map_err(|status| format!("creating {name}: {status}"))?;
    }
    Ok(())
}

/// Names of users that were not used before.
pub fn new_users(count: usize) -> Vec<String> {
    (0..count).map(|_| format!("user-{}", NUMBER.fetch_add(1, Ordering::Relaxed))).collect()
}

/// A new event id.
pub fn new_id() -> Uuid {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let process = i64::from(std::process::id());
    let halves =
        uuid::Structured { most_significant_bits: process, least_significant_bits: number };
    Uuid { value: Some(uuid::Value::Structured(halves)) }
}

/// An event with a new id.
pub fn event(kind: &str, data: Vec<u8>, metadata: Vec<u8>) -> ProposedMessage {
    ProposedMessage {
        id: Some(new_id()),
        metadata: [("type", kind), ("content-type", "application/json")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into(),
        data: data.into(),
        custom_metadata: metadata.into(),
    }
}

/// Appends an event to a stream, whatever it has.
pub async fn append(
    connection: &Connection,
    stream: &str,
    event: ProposedMessage,
) -> Result<(), Status> {
    let options = Options {
        stream_identifier: Some(stream.into()),
        expected_stream_revision: Some(ExpectedRevision::Any(())),
    };
    let parts = [Content::Options(options), Content::ProposedMessage(event)];
    let parts = parts.map(|content| AppendReq { content: Some(content) });
    match connection.append_parts(parts.into()).await?.result {
        Some(Outcome::Success(_)) => Ok(()),
        _ => Err(Status::aborted("the append was refused")),
    }
}
