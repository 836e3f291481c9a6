//! Who appends: one by one and in batches, to new streams and to those there are.

use futures_util::stream;
use tokio::sync::mpsc;
use tonic::Streaming;
use umbel_proto::streams::{
    AppendResp, BatchAppendReq, BatchAppendResp, ExpectedRevision, append_resp, batch_append_resp,
};

use super::events::proposed;
use super::ground::{Done, Ground, failed, odd};
use super::ledger::{stream_name, stream_of};
use super::plan::BATCH_EVENTS;
use crate::serving::connection::Connection;
use crate::serving::messages::{append, batch, batch_number, mix};

/// Batches over one call, before the next one is begun.
const BATCHES_A_CALL: u64 = 500;

/// Where events go.
struct Target {
    name: String,
    /// Which of the streams that grow all the time, if it is one.
    stream: Option<usize>,
    expected: ExpectedRevision,
    /// The revision of its last event before.
    last: Option<u64>,
}

impl Target {
    /// A stream that is not there.
    fn new(writer: usize, number: u64) -> Target {
        let name = format!("soak-new-{writer:02}-{number:012}");
        Target { name, stream: None, expected: ExpectedRevision::NoStream(()), last: None }
    }

    /// One of the writer's.
    fn old(ground: &Ground, writer: usize, call: u64) -> Target {
        let stream = stream_of(writer, mix(call));
        let last = ground.ledger.in_stream(stream).checked_sub(1);
        let expected = match last {
            Some(_) if call.is_multiple_of(3) => ExpectedRevision::Any(()),
            Some(_) if call % 3 == 1 => ExpectedRevision::StreamExists(()),
            Some(last) => ExpectedRevision::Revision(last),
            None => ExpectedRevision::NoStream(()),
        };
        Target { name: stream_name(stream), stream: Some(stream), expected, last }
    }

    /// So many events were acknowledged, with this revision as the last.
    fn settle(&self, ground: &Ground, writer: usize, events: u64, last: u64) -> Done {
        let wanted = self.last.map_or(0, |last| last + 1) + events - 1;
        if last != wanted {
            return odd(&format!("an append to {} up to {wanted}", self.name), last);
        }
        if let Some(stream) = self.stream {
            ground.ledger.add_to_stream(stream, events);
        }
        ground.ledger.acknowledged(writer);
        Ok(())
    }
}

/// Appends one event.
pub(super) async fn one(
    ground: &Ground,
    connection: &Connection,
    writer: usize,
    call: u64,
    is_new: bool,
) -> Done<bool> {
    let number = ground.ledger.begin(writer, 1).start;
    let target = match is_new {
        true => Target::new(writer, number),
        false => Target::old(ground, writer, call),
    };
    let parts = append(&target.name, target.expected, [proposed(writer, number)]);
    let answer = connection.append_parts(parts).await.map_err(failed("an append"))?;
    target.settle(ground, writer, 1, appended(answer)?)?;
    Ok(true)
}

/// The revision of the last event that was appended.
pub(super) fn appended(answer: AppendResp) -> Done<u64> {
    match answer.result {
        Some(append_resp::Outcome::Success(success)) => revision(&success),
        other => odd("an append", other),
    }
}

fn revision(success: &append_resp::Success) -> Done<u64> {
    match success.current_revision_option {
        Some(append_resp::CurrentRevision::CurrentRevision(revision)) => Ok(revision),
        other => odd("an append", other),
    }
}

/// A call of batches.
struct Call {
    says: mpsc::Sender<BatchAppendReq>,
    answers: Streaming<BatchAppendResp>,
    sent: u64,
}

/// Who appends batches.
pub(super) struct Batcher {
    connection: Connection,
    writer: usize,
    call: Option<Call>,
}

impl Batcher {
    /// One with this connection.
    pub(super) fn new(connection: Connection, writer: usize) -> Batcher {
        Batcher { connection, writer, call: None }
    }

    /// Appends one batch and waits for its answer.
    pub(super) async fn one(&mut self, ground: &Ground, call: u64) -> Done<bool> {
        let writer = self.writer;
        let numbers = ground.ledger.begin(writer, BATCH_EVENTS);
        let target = match call.is_multiple_of(4) {
            true => Target::new(writer, numbers.start),
            false => Target::old(ground, writer, call),
        };
        let events = numbers.map(|number| proposed(writer, number)).collect();
        let answer = self.ask(batch(call, &target.name, target.expected, events)).await?;
        if batch_number(answer.correlation_id.clone()) != Some(call) {
            return odd("a batch", answer);
        }
        let Some(batch_append_resp::Outcome::Success(success)) = &answer.result else {
            return odd("a batch", answer);
        };
        target.settle(ground, writer, BATCH_EVENTS, revision(success)?)?;
        Ok(true)
    }

    async fn ask(&mut self, request: BatchAppendReq) -> Done<BatchAppendResp> {
        let mut call = match self.call.take() {
            Some(call) => {
                call.says.send(request).await.map_err(failed("a batch"))?;
                call
            }
            None => self.begin(request).await?,
        };
        let answer = call.answers.message().await.map_err(failed("a batch"))?;
        call.sent += 1;
        if call.sent < BATCHES_A_CALL {
            self.call = Some(call);
        } else {
            drop(call.says);
            if let Some(more) = call.answers.message().await.map_err(failed("batches"))? {
                return odd("the end of a call of batches", more);
            }
        }
        answer.ok_or_else(|| "a call of batches ended before its answer".to_string())
    }

    async fn begin(&self, first: BatchAppendReq) -> Done<Call> {
        let (says, receiver) = mpsc::channel(1);
        says.send(first).await.map_err(failed("a batch"))?;
        let requests = stream::unfold(receiver, |mut receiver| async {
            Some((receiver.recv().await?, receiver))
        });
        let answers = self.connection.batches(requests).await.map_err(failed("batches"))?;
        Ok(Call { says, answers, sent: 0 })
    }
}
