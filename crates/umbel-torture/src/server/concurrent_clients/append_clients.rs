//! Those who append, with both calls, and those who delete.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use umbel_events::Expected;

use super::client::{Client, Deleted};
use super::known::{Attempt, Batch, DOOMED, Ending, Fate};
use super::life::Stage;
use super::stand::PATIENCE;
use super::words::Answer;
use crate::random::Random;

/// How often each who appends does so.
const TURNS: u64 = 30;
/// Streams that all of them append to.
pub const SHARED: u64 = 3;
/// Streams that are deleted now and then, the last of them for good.
const DOOMED_COUNT: u64 = 2;

/// Appends until it is done or the world ends.
pub async fn append(stage: Arc<Stage>, client: Client, number: u64, mut random: Random) {
    for _ in 0..TURNS {
        let goes_on = match random.below(3) {
            0 => together(&stage, &client, number, &mut random).await,
            _ => alone(&stage, &client, number, &mut random).await,
        };
        if !goes_on {
            return;
        }
    }
}

/// What somebody appends who goes by what was acknowledged so far.
fn choose(stage: &Stage, number: u64, random: &mut Random) -> Batch {
    let shares = SHARED + 1 + u64::from(stage.deletes);
    let stream = match random.below(shares) {
        shared @ 0..SHARED => format!("shared-{shared}"),
        SHARED => format!("own-{number}"),
        _ => format!("{DOOMED}-{}", random.below(DOOMED_COUNT)),
    };
    let expected = match random.below(8) {
        0 | 1 => Expected::Any,
        2 => Expected::Exact(random.below(40)),
        3 => Expected::Exists,
        _ => match stage.notes().acknowledged.get(&stream) {
            Some(last) => Expected::Exact(*last),
            None => Expected::NoStream,
        },
    };
    let ids = stage.new_ids(1 + random.below(3));
    Batch { stream, expected, ids, bytes: random.below(1500) as usize }
}

/// What was acknowledged and sent of a stream before an append.
struct Before {
    acknowledged: Option<u64>,
}

fn begin(stage: &Stage, batch: &Batch) -> Before {
    let mut notes = stage.notes();
    *notes.sent.entry(batch.stream.clone()).or_default() += batch.ids.len() as u64;
    Before { acknowledged: notes.acknowledged.get(&batch.stream).copied() }
}

/// Judges an answer and notes what came of the append.
fn end(stage: &Stage, batch: &Batch, before: &Before, answer: &Answer) -> Fate {
    let fate = match answer {
        Answer::Done(last, position) => Fate::Acknowledged(*last, *position),
        Answer::Wrong(current) => {
            judge_refusal(stage, batch, before, *current);
            Fate::Refused
        }
        Answer::Tombstoned => {
            if !batch.stream.starts_with(DOOMED) {
                stage.wrong(format!("{batch:?} met a tombstone that nobody made"));
            }
            Fate::Refused
        }
        Answer::Failed(text) => {
            stage.failed(text.clone());
            Fate::Unknown
        }
        Answer::Nonsense(text) => {
            stage.wrong(text.clone());
            Fate::Unknown
        }
    };
    let mut notes = stage.notes();
    if let Fate::Acknowledged(last, _) = fate {
        let known = notes.acknowledged.entry(batch.stream.clone()).or_default();
        *known = last.max(*known);
    }
    notes.attempts.push(Attempt { batch: batch.clone(), fate });
    fate
}

/// The revision that a refusal names lies between what was acknowledged before it was asked for
/// and what was ever sent.
fn judge_refusal(stage: &Stage, batch: &Batch, before: &Before, current: Option<u64>) {
    let sent = stage.notes().sent.get(&batch.stream).copied().unwrap_or(0);
    let is_as_expected = match batch.expected {
        Expected::Any => true,
        Expected::NoStream => current.is_none(),
        Expected::Exists => current.is_some() && !batch.stream.starts_with(DOOMED),
        Expected::Exact(revision) => current == Some(revision),
        // The messages of these calls have no word for either.
        Expected::Deleted | Expected::Tombstoned => false,
    };
    if is_as_expected {
        stage.wrong(format!("{batch:?} was refused, and yet the stream is at {current:?}"));
    }
    if current < before.acknowledged || current.is_some_and(|current| current >= sent) {
        stage.wrong(format!(
            "{batch:?} was told that the stream is at {current:?}, but it was at {:?} before and \
             {sent} events were sent",
            before.acknowledged
        ));
    }
    if let Some(current) = current {
        stage.notes().named.push((batch.stream.clone(), current));
    }
}

async fn send(client: &Client, batch: &Batch) -> Answer {
    let late = || Answer::Nonsense(format!("{batch:?} was never answered"));
    timeout(PATIENCE, client.append(batch)).await.unwrap_or_else(|_| late())
}

async fn send_all(client: &Client, batches: &[Batch]) -> Vec<Answer> {
    let late = || vec![Answer::Nonsense("batches were never answered".to_string()); batches.len()];
    timeout(PATIENCE, client.append_batches(batches)).await.unwrap_or_else(|_| late())
}

/// One append with `Append`, and now and then once more. Whether to go on.
async fn alone(stage: &Stage, client: &Client, number: u64, random: &mut Random) -> bool {
    let batch = choose(stage, number, random);
    let before = begin(stage, &batch);
    let answer = send(client, &batch).await;
    match end(stage, &batch, &before, &answer) {
        Fate::Unknown => return false,
        Fate::Acknowledged(..) if random.once_in(4) && batch.is_known_again() => {
            let again = match random.once_in(2) {
                true => send(client, &batch).await,
                false => send_all(client, std::slice::from_ref(&batch)).await.remove(0),
            };
            compare(stage, &batch, &answer, &again);
        }
        Fate::Acknowledged(..) | Fate::Refused => {}
    }
    true
}

/// The second answer to the same append is the first one.
fn compare(stage: &Stage, batch: &Batch, first: &Answer, second: &Answer) {
    match second {
        Answer::Failed(text) => stage.failed(text.clone()),
        Answer::Tombstoned if batch.stream.starts_with(DOOMED) => {}
        second if second == first => {}
        second => stage.wrong(format!(
            "{batch:?} was answered with {first:?}, and the second time with {second:?}"
        )),
    }
}

/// Several batches in one call, one of them perhaps twice. Whether to go on.
async fn together(stage: &Stage, client: &Client, number: u64, random: &mut Random) -> bool {
    let mut batches: Vec<_> =
        (0..2 + random.below(3)).map(|_| choose(stage, number, random)).collect();
    if random.once_in(3) {
        chain(stage, number, &mut batches);
    }
    let before: Vec<_> = batches.iter().map(|batch| begin(stage, batch)).collect();
    let twin = random.below(batches.len() as u64) as usize;
    let has_twin = random.once_in(3) && batches[twin].is_known_again();
    let mut sent = batches.clone();
    sent.extend(has_twin.then(|| batches[twin].clone()));
    let mut answers = send_all(client, &sent).await;
    let second = if has_twin { answers.pop() } else { None };
    if let Some(second) = second {
        let (batch, first) = (&batches[twin], answers[twin].clone());
        match first {
            Answer::Done(..) => compare(stage, batch, &first, &second),
            // What came between the two may have made it fit.
            Answer::Wrong(current) => {
                judge_refusal(stage, batch, &before[twin], current);
                answers[twin] = second;
            }
            _ => {}
        }
    }
    let mut goes_on = true;
    for ((batch, before), answer) in batches.iter().zip(&before).zip(&answers) {
        goes_on &= end(stage, batch, before, answer) != Fate::Unknown;
    }
    goes_on
}

/// Makes the batches follow each other in the stream that nobody else appends to.
fn chain(stage: &Stage, number: u64, batches: &mut [Batch]) {
    let stream = format!("own-{number}");
    let mut last = stage.notes().acknowledged.get(&stream).copied();
    for batch in batches {
        batch.stream.clone_from(&stream);
        batch.expected = last.map_or(Expected::NoStream, Expected::Exact);
        last = Some(last.map_or(0, |last| last + 1) + batch.ids.len() as u64 - 1);
    }
}

/// Deletes streams now and then, and seldom for good.
pub async fn delete(stage: Arc<Stage>, client: Client, mut random: Random) {
    for _ in 0..8 {
        sleep(Duration::from_millis(random.below(6))).await;
        let number = random.below(DOOMED_COUNT);
        let is_tombstone = number + 1 == DOOMED_COUNT && random.once_in(6);
        let stream = format!("{DOOMED}-{number}");
        let method = if is_tombstone { "Tombstone" } else { "Delete" };
        let deleted = timeout(PATIENCE, client.delete(method, &stream)).await;
        match deleted {
            Ok(Deleted::Done(Some(position))) => {
                stage.notes().endings.push(Ending { stream, is_tombstone, position });
            }
            Ok(Deleted::Done(None) | Deleted::Refused) => {}
            Ok(Deleted::Failed(text)) => {
                stage.failed(text);
                return;
            }
            Err(_) => stage.wrong(format!("a deletion of {stream} was never answered")),
        }
    }
}
