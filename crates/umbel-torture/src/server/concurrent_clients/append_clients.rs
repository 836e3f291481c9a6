//! Clients that append, by both calls, and clients that delete.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use umbel_events::ExpectedVersion;
use umbel_sim::Random;

use crate::server::concurrent_clients::checked_client::{Client, DeleteAnswer};
use crate::server::concurrent_clients::client_oracle::{
    ClientAttempt, ClientBatch, ClientFate, DELETED_PREFIX, StreamDeletion,
};
use crate::server::concurrent_clients::message_convert::AppendAnswer;
use crate::server::concurrent_clients::server_cycle_state::ServerCycle;
use crate::server::concurrent_clients::test_server::SERVER_TIMEOUT;

/// Number of appends of each writer.
const TURNS: u64 = 30;
/// Number of streams that all writers append to.
pub const SHARED_STREAMS: u64 = 3;
/// Number of streams that are sometimes deleted; the last of these streams is tombstoned.
const DOOMED_COUNT: u64 = 2;

/// Appends until the client is done or the crash happens.
pub async fn append(life: Arc<ServerCycle>, client: Client, number: u64, mut random: Random) {
    for _ in 0..TURNS {
        let goes_on = match random.below(3) {
            0 => append_batches(&life, &client, number, &mut random).await,
            _ => append_single(&life, &client, number, &mut random).await,
        };
        if !goes_on {
            return;
        }
    }
}

/// Chooses an append by what was acknowledged so far.
fn choose_batch(life: &ServerCycle, number: u64, random: &mut Random) -> ClientBatch {
    let shares = SHARED_STREAMS + 1 + u64::from(life.deletes);
    let stream = match random.below(shares) {
        shared @ 0..SHARED_STREAMS => format!("shared-{shared}"),
        SHARED_STREAMS => format!("own-{number}"),
        _ => format!("{DELETED_PREFIX}-{}", random.below(DOOMED_COUNT)),
    };
    let expected = match random.below(8) {
        0 | 1 => ExpectedVersion::Any,
        2 => ExpectedVersion::Exact(random.below(40)),
        3 => ExpectedVersion::Exists,
        _ => match life.notes().acknowledged.get(&stream) {
            Some(last) => ExpectedVersion::Exact(*last),
            None => ExpectedVersion::NoStream,
        },
    };
    let ids = life.new_ids(1 + random.below(3));
    ClientBatch { stream, expected, ids, bytes: random.below(1500) as usize }
}

/// Acknowledged and sent events of a stream before an append.
struct AppendStart {
    acknowledged: Option<u64>,
}

fn start_append(life: &ServerCycle, batch: &ClientBatch) -> AppendStart {
    let mut notes = life.notes();
    *notes.sent.entry(batch.stream.clone()).or_default() += batch.ids.len() as u64;
    AppendStart { acknowledged: notes.acknowledged.get(&batch.stream).copied() }
}

/// Checks an answer and records the outcome of the append.
fn finish_append(
    life: &ServerCycle,
    batch: &ClientBatch,
    before: &AppendStart,
    answer: &AppendAnswer,
) -> ClientFate {
    let fate = match answer {
        AppendAnswer::Done(last, position) => ClientFate::Acknowledged(*last, *position),
        AppendAnswer::Wrong(current) => {
            check_refusal(life, batch, before, *current);
            ClientFate::Refused
        }
        AppendAnswer::Tombstoned => {
            if !batch.stream.starts_with(DELETED_PREFIX) {
                life.wrong(format!("{batch:?} met a tombstone that no client made"));
            }
            ClientFate::Refused
        }
        AppendAnswer::Failed(text) => {
            life.failed(text.clone());
            ClientFate::Unknown
        }
        AppendAnswer::Nonsense(text) => {
            life.wrong(text.clone());
            ClientFate::Unknown
        }
    };
    let mut notes = life.notes();
    if let ClientFate::Acknowledged(last, _) = fate {
        let known = notes.acknowledged.entry(batch.stream.clone()).or_default();
        *known = last.max(*known);
    }
    notes.attempts.push(ClientAttempt { batch: batch.clone(), fate });
    fate
}

/// Checks that the revision in a refusal is between the revision acknowledged before the request
/// and the number of sent events.
fn check_refusal(
    life: &ServerCycle,
    batch: &ClientBatch,
    before: &AppendStart,
    current: Option<u64>,
) {
    let sent = life.notes().sent.get(&batch.stream).copied().unwrap_or(0);
    let is_as_expected = match batch.expected {
        ExpectedVersion::Any => true,
        ExpectedVersion::NoStream => current.is_none(),
        ExpectedVersion::Exists => current.is_some() && !batch.stream.starts_with(DELETED_PREFIX),
        ExpectedVersion::Exact(revision) => current == Some(revision),
        // The messages of these calls cannot express either.
        ExpectedVersion::Deleted | ExpectedVersion::Tombstoned => false,
    };
    if is_as_expected {
        life.wrong(format!("{batch:?} was refused, and yet the stream is at {current:?}"));
    }
    if current < before.acknowledged || current.is_some_and(|current| current >= sent) {
        life.wrong(format!(
            "{batch:?} was refused with the stream at {current:?}, but it was at {:?} before and \
             {sent} events were sent",
            before.acknowledged
        ));
    }
    if let Some(current) = current {
        life.notes().named.push((batch.stream.clone(), current));
    }
}

async fn send(client: &Client, batch: &ClientBatch) -> AppendAnswer {
    let late = || AppendAnswer::Nonsense(format!("{batch:?} was never answered"));
    timeout(SERVER_TIMEOUT, client.append(batch)).await.unwrap_or_else(|_| late())
}

async fn send_all(client: &Client, batches: &[ClientBatch]) -> Vec<AppendAnswer> {
    let late =
        || vec![AppendAnswer::Nonsense("batches were never answered".to_string()); batches.len()];
    timeout(SERVER_TIMEOUT, client.append_batches(batches)).await.unwrap_or_else(|_| late())
}

/// Makes one append with `Append`, sometimes twice. Returns whether to continue.
async fn append_single(
    life: &ServerCycle,
    client: &Client,
    number: u64,
    random: &mut Random,
) -> bool {
    let batch = choose_batch(life, number, random);
    let before = start_append(life, &batch);
    let answer = send(client, &batch).await;
    match finish_append(life, &batch, &before, &answer) {
        ClientFate::Unknown => return false,
        ClientFate::Acknowledged(..) if random.once_in(4) && batch.is_idempotent_retry() => {
            let again = match random.once_in(2) {
                true => send(client, &batch).await,
                false => send_all(client, std::slice::from_ref(&batch)).await.remove(0),
            };
            compare(life, &batch, &answer, &again);
        }
        ClientFate::Acknowledged(..) | ClientFate::Refused => {}
    }
    true
}

/// Checks that a retry has the same answer.
fn compare(life: &ServerCycle, batch: &ClientBatch, first: &AppendAnswer, second: &AppendAnswer) {
    match second {
        AppendAnswer::Failed(text) => life.failed(text.clone()),
        AppendAnswer::Tombstoned if batch.stream.starts_with(DELETED_PREFIX) => {}
        second if second == first => {}
        second => life.wrong(format!(
            "{batch:?} was answered with {first:?}, and the second time with {second:?}"
        )),
    }
}

/// Appends several batches in one call, perhaps one of them twice. Returns whether to continue.
async fn append_batches(
    life: &ServerCycle,
    client: &Client,
    number: u64,
    random: &mut Random,
) -> bool {
    let mut batches: Vec<_> =
        (0..2 + random.below(3)).map(|_| choose_batch(life, number, random)).collect();
    if random.once_in(3) {
        chain(life, number, &mut batches);
    }
    let before: Vec<_> = batches.iter().map(|batch| start_append(life, batch)).collect();
    let twin = random.below(batches.len() as u64) as usize;
    let has_twin = random.once_in(3) && batches[twin].is_idempotent_retry();
    let mut sent = batches.clone();
    sent.extend(has_twin.then(|| batches[twin].clone()));
    let mut answers = send_all(client, &sent).await;
    let second = if has_twin { answers.pop() } else { None };
    if let Some(second) = second {
        let (batch, first) = (&batches[twin], answers[twin].clone());
        match first {
            AppendAnswer::Done(..) => compare(life, batch, &first, &second),
            // An append between the two may have satisfied the expectation.
            AppendAnswer::Wrong(current) => {
                check_refusal(life, batch, &before[twin], current);
                answers[twin] = second;
            }
            _ => {}
        }
    }
    let mut goes_on = true;
    for ((batch, before), answer) in batches.iter().zip(&before).zip(&answers) {
        goes_on &= finish_append(life, batch, before, answer) != ClientFate::Unknown;
    }
    goes_on
}

/// Makes the batches follow each other in a stream with only one writer.
fn chain(life: &ServerCycle, number: u64, batches: &mut [ClientBatch]) {
    let stream = format!("own-{number}");
    let mut last = life.notes().acknowledged.get(&stream).copied();
    for batch in batches {
        batch.stream.clone_from(&stream);
        batch.expected = last.map_or(ExpectedVersion::NoStream, ExpectedVersion::Exact);
        last = Some(last.map_or(0, |last| last + 1) + batch.ids.len() as u64 - 1);
    }
}

/// Deletes streams sometimes, and rarely tombstones one.
pub async fn delete(life: Arc<ServerCycle>, client: Client, mut random: Random) {
    for _ in 0..8 {
        sleep(Duration::from_millis(random.below(6))).await;
        let number = random.below(DOOMED_COUNT);
        let is_tombstone = number + 1 == DOOMED_COUNT && random.once_in(6);
        let stream = format!("{DELETED_PREFIX}-{number}");
        let method = if is_tombstone { "Tombstone" } else { "Delete" };
        let deleted = timeout(SERVER_TIMEOUT, client.delete(method, &stream)).await;
        match deleted {
            Ok(DeleteAnswer::Done(Some(position))) => {
                life.notes().deletions.push(StreamDeletion { stream, is_tombstone, position });
            }
            Ok(DeleteAnswer::Done(None) | DeleteAnswer::Refused) => {}
            Ok(DeleteAnswer::Failed(text)) => {
                life.failed(text);
                return;
            }
            Err(_) => life.wrong(format!("a deletion of {stream} was never answered")),
        }
    }
}
