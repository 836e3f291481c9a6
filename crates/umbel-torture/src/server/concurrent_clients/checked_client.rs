//! Client that checks that all fields of an answer are consistent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;

use futures_util::stream;
use tonic::Status;
use umbel_proto::streams::read_req::Options;
use umbel_proto::streams::read_resp::Content;
use umbel_proto::streams::{
    AppendReq, BatchAppendReq, DeleteOptions, DeleteReq, DeleteResp, DeleteResult, append_req,
};

use crate::server::concurrent_clients::client_oracle::{ClientBatch, ReceivedEvent};
use crate::server::concurrent_clients::message_convert::{self, AppendAnswer};
use umbel_testing::server_connection::{Connection, STREAMS};

/// Result of a read.
#[derive(Debug)]
pub enum ReadResult {
    /// The events in order; the flag is `false` if the stream does not exist.
    Events(Vec<ReceivedEvent>, bool),
    /// The stream was tombstoned.
    Tombstoned,
    /// The call failed.
    Failed(String),
}

/// Answer to a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteAnswer {
    /// The delete was written at this position.
    Done(Option<u64>),
    /// The delete was refused.
    Refused,
    /// The call failed.
    Failed(String),
}

/// Client that checks answers, and also has the methods of its connection.
#[derive(Debug, Clone)]
pub struct Client(Connection);

impl Deref for Client {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl Client {
    /// Connects to a server.
    pub async fn to(address: SocketAddr) -> Result<Client, String> {
        Connection::to(address).await.map(Client)
    }

    /// Appends with `Append`.
    pub async fn append(&self, batch: &ClientBatch) -> AppendAnswer {
        let options = append_req::Options {
            stream_identifier: Some(batch.stream.as_str().into()),
            expected_stream_revision: Some(message_convert::expected(batch.expected)),
        };
        let mut parts = vec![AppendReq { content: Some(append_req::Content::Options(options)) }];
        parts.extend(message_convert::events(batch).into_iter().map(|event| {
            let content = Some(append_req::Content::ProposedMessage(event));
            AppendReq { content }
        }));
        message_convert::append_answer(batch, self.append_parts(parts).await)
    }

    /// Appends with `BatchAppend`, all in one call; returns one answer for each batch, in order.
    pub async fn append_batches(&self, batches: &[ClientBatch]) -> Vec<AppendAnswer> {
        let parts: Vec<BatchAppendReq> = (0..)
            .zip(batches)
            .flat_map(|(number, batch)| message_convert::batch_parts(number, batch))
            .collect();
        let mut answers = BTreeMap::new();
        let call = async {
            let mut responses = self.batches(stream::iter(parts)).await?;
            while let Some(answer) = responses.message().await? {
                let number = message_convert::correlation(&answer);
                let Some(batch) = number.and_then(|number| batches.get(number as usize)) else {
                    return Err(Status::internal(format!("an answer to no batch: {answer:?}")));
                };
                let answer = message_convert::batch_answer(batch, answer);
                if answers.insert(number.unwrap_or(0), answer).is_some() {
                    return Err(Status::internal("a batch was answered twice"));
                }
            }
            Err(Status::internal("the call ended without this answer"))
        };
        let ended: Result<(), Status> = call.await;
        let failed = || AppendAnswer::Failed(format!("{ended:?}"));
        (0..batches.len() as u64)
            .map(|number| answers.remove(&number).unwrap_or_else(failed))
            .collect()
    }

    /// Deletes a stream with the call of this name.
    pub async fn delete(&self, method: &str, stream: &str) -> DeleteAnswer {
        let options = DeleteOptions {
            stream_identifier: Some(stream.into()),
            expected_stream_revision: Some(message_convert::expected(
                umbel_events::ExpectedVersion::Any,
            )),
        };
        let request = DeleteReq { options: Some(options) };
        match self.unary::<_, DeleteResp>(STREAMS, method, request).await {
            Ok(DeleteResp { position_option: Some(DeleteResult::Position(position)) }) => {
                DeleteAnswer::Done(Some(position.commit_position))
            }
            Ok(_) => DeleteAnswer::Done(None),
            Err(status) => match message_convert::exception(&status) {
                Some("wrong-expected-version" | "stream-deleted") => DeleteAnswer::Refused,
                _ => DeleteAnswer::Failed(format!("{status:?}")),
            },
        }
    }

    /// Reads the whole answer.
    pub async fn read(&self, options: Options) -> ReadResult {
        let mut events = Vec::new();
        let mut is_there = true;
        let call = async {
            let mut answers = self.subscribe(options).await?;
            while let Some(answer) = answers.message().await? {
                match answer.content {
                    Some(Content::Event(event)) => {
                        events.push(
                            message_convert::received_event(event).map_err(Status::internal)?,
                        );
                    }
                    Some(Content::StreamNotFound(_)) => is_there = false,
                    other => return Err(Status::internal(format!("a read returned {other:?}"))),
                }
            }
            Ok(())
        };
        match call.await {
            Ok(()) => ReadResult::Events(events, is_there),
            Err(status) if message_convert::exception(&status) == Some("stream-deleted") => {
                ReadResult::Tombstoned
            }
            Err(status) => ReadResult::Failed(format!("{status:?}")),
        }
    }
}
