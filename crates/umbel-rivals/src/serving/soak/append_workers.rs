//! Writers that append: single events and batches, to new and to existing streams.

use futures_util::stream;
use tokio::sync::mpsc;
use tonic::Streaming;
use umbel_proto::streams::{
    AppendResp, BatchAppendReq, BatchAppendResp, ExpectedRevision, append_resp, batch_append_resp,
};

use crate::serving::messages::{append, batch, batch_number, mix};
use crate::serving::soak::soak_context::{SoakContext, WorkResult, failed, unexpected_answer};
use crate::serving::soak::soak_event::proposed;
use crate::serving::soak::soak_oracle::{stream_name, stream_of};
use crate::serving::soak::soak_plan::BATCH_EVENTS;
use umbel_testing::server_connection::Connection;

/// Number of batches in one call, after which the next call begins.
const BATCHES_A_CALL: u64 = 500;

/// Destination of events.
struct AppendTarget {
    name: String,
    /// Index among the growing streams; `None` for a new stream.
    stream: Option<usize>,
    expected: ExpectedRevision,
    /// Revision of the stream's last event before the append.
    last: Option<u64>,
}

impl AppendTarget {
    /// Returns a stream that does not exist.
    fn new(writer: usize, number: u64) -> AppendTarget {
        let name = format!("soak-new-{writer:02}-{number:012}");
        AppendTarget { name, stream: None, expected: ExpectedRevision::NoStream(()), last: None }
    }

    /// Returns a growing stream of the writer.
    fn old(context: &SoakContext, writer: usize, call: u64) -> AppendTarget {
        let stream = stream_of(writer, mix(call));
        let last = context.oracle.in_stream(stream).checked_sub(1);
        let expected = match last {
            Some(_) if call.is_multiple_of(3) => ExpectedRevision::Any(()),
            Some(_) if call % 3 == 1 => ExpectedRevision::StreamExists(()),
            Some(last) => ExpectedRevision::Revision(last),
            None => ExpectedRevision::NoStream(()),
        };
        AppendTarget { name: stream_name(stream), stream: Some(stream), expected, last }
    }

    /// Records acknowledged events, and checks the revision of the last one.
    fn settle(&self, context: &SoakContext, writer: usize, events: u64, last: u64) -> WorkResult {
        let wanted = self.last.map_or(0, |last| last + 1) + events - 1;
        if last != wanted {
            return unexpected_answer(&format!("an append to {} up to {wanted}", self.name), last);
        }
        if let Some(stream) = self.stream {
            context.oracle.add_to_stream(stream, events);
        }
        context.oracle.acknowledged(writer);
        Ok(())
    }
}

/// Appends one event.
pub(super) async fn append_one(
    context: &SoakContext,
    connection: &Connection,
    writer: usize,
    call: u64,
    is_new: bool,
) -> WorkResult<bool> {
    let number = context.oracle.begin(writer, 1).start;
    let target = match is_new {
        true => AppendTarget::new(writer, number),
        false => AppendTarget::old(context, writer, call),
    };
    let parts = append(&target.name, target.expected, [proposed(writer, number)]);
    let answer = connection.append_parts(parts).await.map_err(failed("an append"))?;
    target.settle(context, writer, 1, appended(answer)?)?;
    Ok(true)
}

/// Returns the revision of the last event of an append.
pub(super) fn appended(answer: AppendResp) -> WorkResult<u64> {
    match answer.result {
        Some(append_resp::Outcome::Success(success)) => revision(&success),
        other => unexpected_answer("an append", other),
    }
}

fn revision(success: &append_resp::Success) -> WorkResult<u64> {
    match success.current_revision_option {
        Some(append_resp::CurrentRevision::CurrentRevision(revision)) => Ok(revision),
        other => unexpected_answer("an append", other),
    }
}

/// Call of batches.
struct BatchCall {
    sender: mpsc::Sender<BatchAppendReq>,
    answers: Streaming<BatchAppendResp>,
    sent: u64,
}

/// Writer that appends batches.
pub(super) struct BatchAppender {
    connection: Connection,
    writer: usize,
    call: Option<BatchCall>,
}

impl BatchAppender {
    /// Makes a writer on this connection.
    pub(super) fn new(connection: Connection, writer: usize) -> BatchAppender {
        BatchAppender { connection, writer, call: None }
    }

    /// Appends one batch and waits for its answer.
    pub(super) async fn append_batch(
        &mut self,
        context: &SoakContext,
        call: u64,
    ) -> WorkResult<bool> {
        let writer = self.writer;
        let numbers = context.oracle.begin(writer, BATCH_EVENTS);
        let target = match call.is_multiple_of(4) {
            true => AppendTarget::new(writer, numbers.start),
            false => AppendTarget::old(context, writer, call),
        };
        let events = numbers.map(|number| proposed(writer, number)).collect();
        let answer = self.send_batch(batch(call, &target.name, target.expected, events)).await?;
        if batch_number(answer.correlation_id.clone()) != Some(call) {
            return unexpected_answer("a batch", answer);
        }
        let Some(batch_append_resp::Outcome::Success(success)) = &answer.result else {
            return unexpected_answer("a batch", answer);
        };
        target.settle(context, writer, BATCH_EVENTS, revision(success)?)?;
        Ok(true)
    }

    async fn send_batch(&mut self, request: BatchAppendReq) -> WorkResult<BatchAppendResp> {
        let mut call = match self.call.take() {
            Some(call) => {
                call.sender.send(request).await.map_err(failed("a batch"))?;
                call
            }
            None => self.begin(request).await?,
        };
        let answer = call.answers.message().await.map_err(failed("a batch"))?;
        call.sent += 1;
        if call.sent < BATCHES_A_CALL {
            self.call = Some(call);
        } else {
            drop(call.sender);
            if let Some(more) = call.answers.message().await.map_err(failed("batches"))? {
                return unexpected_answer("the end of a call of batches", more);
            }
        }
        answer.ok_or_else(|| "a call of batches ended before its answer".to_string())
    }

    async fn begin(&self, first: BatchAppendReq) -> WorkResult<BatchCall> {
        let (sender, receiver) = mpsc::channel(1);
        sender.send(first).await.map_err(failed("a batch"))?;
        let requests = stream::unfold(receiver, |mut receiver| async {
            Some((receiver.recv().await?, receiver))
        });
        let answers = self.connection.batches(requests).await.map_err(failed("batches"))?;
        Ok(BatchCall { sender, answers, sent: 0 })
    }
}
