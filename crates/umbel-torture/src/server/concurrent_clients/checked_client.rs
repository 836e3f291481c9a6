//! A client that speaks the protocol and checks that an answer says the same in all of its places.

use std::collections::BTreeMap;

use futures_util::stream;
use tonic::Status;
use umbel_proto::streams::read_req::Options;
use umbel_proto::streams::read_resp::Content;
use umbel_proto::streams::{
    AppendReq, BatchAppendReq, DeleteOptions, DeleteReq, DeleteResp, DeleteResult, append_req,
};

pub use super::connection::Connection as Client;
use super::connection::STREAMS;
use super::known::{Batch, Told};
use super::words::{self, Answer};

/// What came of reading.
#[derive(Debug)]
pub enum Read {
    /// These events, in the order in which they came; `false` where the stream was said to be none.
    Events(Vec<Told>, bool),
    /// The stream was tombstoned.
    Tombstoned,
    /// The call failed.
    Failed(String),
}

/// What came of deleting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deleted {
    /// It was done, and written at this position.
    Done(Option<u64>),
    /// It was refused.
    Refused,
    /// The call failed.
    Failed(String),
}

impl Client {
    /// Appends with `Append`.
    pub async fn append(&self, batch: &Batch) -> Answer {
        let options = append_req::Options {
            stream_identifier: Some(batch.stream.as_str().into()),
            expected_stream_revision: Some(words::expected(batch.expected)),
        };
        let mut parts = vec![AppendReq { content: Some(append_req::Content::Options(options)) }];
        parts.extend(words::events(batch).into_iter().map(|event| {
            let content = Some(append_req::Content::ProposedMessage(event));
            AppendReq { content }
        }));
        words::of_append(batch, self.append_parts(parts).await)
    }

    /// Appends with `BatchAppend`, all in one call; one answer for each in their order.
    pub async fn append_batches(&self, batches: &[Batch]) -> Vec<Answer> {
        let parts: Vec<BatchAppendReq> = (0..)
            .zip(batches)
            .flat_map(|(number, batch)| words::batch_parts(number, batch))
            .collect();
        let mut answers = BTreeMap::new();
        let call = async {
            let mut said = self.batches(stream::iter(parts)).await?;
            while let Some(answer) = said.message().await? {
                let number = words::correlation(&answer);
                let Some(batch) = number.and_then(|number| batches.get(number as usize)) else {
                    return Err(Status::internal(format!("an answer to no batch: {answer:?}")));
                };
                let answer = words::of_batch(batch, answer);
                if answers.insert(number.unwrap_or(0), answer).is_some() {
                    return Err(Status::internal("a batch was answered twice"));
                }
            }
            Err(Status::internal("the call ended without this answer"))
        };
        let ended: Result<(), Status> = call.await;
        let failed = || Answer::Failed(format!("{ended:?}"));
        (0..batches.len() as u64)
            .map(|number| answers.remove(&number).unwrap_or_else(failed))
            .collect()
    }

    /// Deletes a stream with the call of this name.
    pub async fn delete(&self, method: &str, stream: &str) -> Deleted {
        let options = DeleteOptions {
            stream_identifier: Some(stream.into()),
            expected_stream_revision: Some(words::expected(umbel_events::Expected::Any)),
        };
        let asked = DeleteReq { options: Some(options) };
        match self.unary::<_, DeleteResp>(STREAMS, method, asked).await {
            Ok(DeleteResp { position_option: Some(DeleteResult::Position(position)) }) => {
                Deleted::Done(Some(position.commit_position))
            }
            Ok(_) => Deleted::Done(None),
            Err(status) => match words::exception(&status) {
                Some("wrong-expected-version" | "stream-deleted") => Deleted::Refused,
                _ => Deleted::Failed(format!("{status:?}")),
            },
        }
    }

    /// Reads everything that is answered.
    pub async fn read(&self, options: Options) -> Read {
        let mut events = Vec::new();
        let mut is_there = true;
        let call = async {
            let mut answers = self.subscribe(options).await?;
            while let Some(answer) = answers.message().await? {
                match answer.content {
                    Some(Content::Event(event)) => {
                        events.push(words::told(event).map_err(Status::internal)?);
                    }
                    Some(Content::StreamNotFound(_)) => is_there = false,
                    other => return Err(Status::internal(format!("a read was told {other:?}"))),
                }
            }
            Ok(())
        };
        match call.await {
            Ok(()) => Read::Events(events, is_there),
            Err(status) if words::exception(&status) == Some("stream-deleted") => Read::Tombstoned,
            Err(status) => Read::Failed(format!("{status:?}")),
        }
    }
}
