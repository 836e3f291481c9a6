//! [`NumberedWriters`]: clients that append numbered events until the server dies.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Instant;

use tonic::Status;
use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::append_req::{Content, Options, ProposedMessage};
use umbel_proto::streams::append_resp::Outcome;
use umbel_proto::streams::{AppendReq, ExpectedRevision};
use umbel_testing::server_connection::Connection;

/// Bytes of an event's data.
const DATA_BYTES: usize = 300;

/// An acknowledged event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// Writer, which has a stream of its own.
    pub writer: usize,
    /// Revision of the event.
    pub number: u64,
    /// Moment of the acknowledgement.
    pub at: Instant,
}

/// Writers, each with a thread, a connection and a stream.
#[derive(Debug)]
pub struct NumberedWriters {
    threads: Vec<JoinHandle<Result<Vec<Acknowledged>, String>>>,
}

impl NumberedWriters {
    /// Starts the writers.
    pub fn start(address: SocketAddr, writers: usize) -> Result<NumberedWriters, String> {
        let start = |writer| {
            let thread = std::thread::Builder::new().name(format!("writer {writer}"));
            thread.spawn(move || write(address, writer)).map_err(|error| error.to_string())
        };
        Ok(NumberedWriters { threads: (0..writers).map(start).collect::<Result<_, _>>()? })
    }

    /// Returns all acknowledged events, once the server is dead.
    pub fn join(self) -> Result<Vec<Acknowledged>, String> {
        let mut all = Vec::new();
        for thread in self.threads {
            all.extend(thread.join().map_err(|_| "a writer panicked".to_string())??);
        }
        Ok(all)
    }
}

/// Name of a writer's stream.
pub fn stream_of(writer: usize) -> String {
    format!("writer-{writer}")
}

/// Data of an event.
pub fn data_of(writer: usize, number: u64) -> Vec<u8> {
    let mut data = format!("{writer} {number} ").into_bytes();
    let mut random = umbel_sim::Random::new(number << 8 | writer as u64);
    while data.len() < DATA_BYTES {
        data.extend(random.next().to_le_bytes());
    }
    data
}

/// Appends one event after the other until an append fails.
fn write(address: SocketAddr, writer: usize) -> Result<Vec<Acknowledged>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(async {
        let connection = Connection::to(address).await?;
        let mut acknowledged = Vec::new();
        for number in 0.. {
            if append(&connection, writer, number).await.is_err() {
                break;
            }
            acknowledged.push(Acknowledged { writer, number, at: Instant::now() });
        }
        match acknowledged.is_empty() {
            true => Err("the first append failed".to_string()),
            false => Ok(acknowledged),
        }
    })
}

async fn append(connection: &Connection, writer: usize, number: u64) -> Result<(), Status> {
    let halves = uuid::Structured {
        most_significant_bits: writer as i64 + 1,
        least_significant_bits: number as i64,
    };
    let event = ProposedMessage {
        id: Some(Uuid { value: Some(uuid::Value::Structured(halves)) }),
        metadata: [("type", "Numbered"), ("content-type", "application/octet-stream")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into(),
        data: data_of(writer, number).into(),
        custom_metadata: Vec::new().into(),
    };
    let options = Options {
        stream_identifier: Some(stream_of(writer).as_str().into()),
        expected_stream_revision: Some(match number.checked_sub(1) {
            Some(before) => ExpectedRevision::Revision(before),
            None => ExpectedRevision::NoStream(()),
        }),
    };
    let parts = [Content::Options(options), Content::ProposedMessage(event)];
    let parts = parts.map(|content| AppendReq { content: Some(content) });
    match connection.append_parts(parts.into()).await?.result {
        Some(Outcome::Success(_)) => Ok(()),
        _ => Err(Status::aborted("the append was refused")),
    }
}
