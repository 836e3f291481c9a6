//! Subscribers who stay from the first event to the last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_proto::reading::{of_all, of_stream, subscription};
use umbel_proto::streams::read_req::{AllOption, RevisionOption};

use super::events::told;
use super::ground::{Answers, Done, Ground, Phase};
use super::ledger::stream_name;
use super::order::Order;
use super::plan::{Kind, WRITERS};
use crate::serving::messages::now;

/// Subscribers to all events.
const OF_ALL: usize = 2;
/// Every so manieth event's place is remembered.
const REMEMBERED: u64 = 512;

/// How far one has come.
#[derive(Debug)]
enum Progress {
    /// Of all: events of each writer.
    Writers(Vec<AtomicU64>),
    /// Of a stream: events.
    Stream(usize, AtomicU64),
}

/// Those who stay.
#[derive(Debug)]
pub(super) struct Followers(Vec<Arc<Progress>>);

impl Followers {
    /// Subscribes them: [`OF_ALL`] to all, and one to every eighth stream that grows.
    pub(super) async fn begin(ground: &Arc<Ground>) -> Done<Followers> {
        let zeros = || (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
        let mut all = Vec::new();
        all.extend((0..OF_ALL).map(|_| Arc::new(Progress::Writers(zeros()))));
        let streams = (0..ground.ledger.streams()).step_by(8);
        all.extend(streams.map(|stream| Arc::new(Progress::Stream(stream, AtomicU64::new(0)))));
        let connection = ground.connect().await?;
        for (at, progress) in all.iter().enumerate() {
            let options = match &**progress {
                Progress::Writers(_) => of_all(AllOption::Start(())),
                Progress::Stream(stream, _) => {
                    of_stream(&stream_name(*stream), RevisionOption::Start(()))
                }
            };
            let mut answers = Answers::open(&connection, subscription(options)).await?;
            answers.confirmed().await?;
            let (ground, progress) = (Arc::clone(ground), Arc::clone(progress));
            tokio::spawn(async move {
                let ended = follow(&ground, &progress, at == 0, &mut answers).await;
                if !ground.is_in(Phase::Ended) {
                    ground.ledger.wrong(format!("a subscriber who stays: {ended}"));
                }
            });
        }
        Ok(Followers(all))
    }

    /// Waits until everybody has everything that was acknowledged until now.
    pub(super) async fn catch_up(&self, ground: &Ground, patience: Duration) -> Done {
        let acknowledged: Vec<u64> =
            (0..WRITERS).map(|writer| ground.ledger.of(writer).0).collect();
        let is_behind = |progress: &Progress| match progress {
            Progress::Writers(seen) => (0..WRITERS)
                .any(|writer| seen[writer].load(Ordering::SeqCst) < acknowledged[writer]),
            Progress::Stream(stream, seen) => {
                seen.load(Ordering::SeqCst) < ground.ledger.in_stream(*stream)
            }
        };
        let all = async {
            while self.0.iter().any(|progress| is_behind(progress)) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(patience, all).await.map_err(|_| {
            let behind: Vec<_> = self.0.iter().filter(|progress| is_behind(progress)).collect();
            format!("subscribers did not get {acknowledged:?}: {behind:?}")
        })
    }
}

/// Takes what comes, until it ends or something is wrong: why it ended.
async fn follow(
    ground: &Ground,
    progress: &Progress,
    remembers: bool,
    answers: &mut Answers,
) -> String {
    let mut order = Order::from_start();
    for count in 0u64.. {
        let event = match answers.event().await {
            Ok(Some(event)) => event,
            Ok(None) => return "the subscription ended".to_string(),
            Err(text) => return text,
        };
        let (kind, said) = match progress {
            Progress::Writers(seen) => match order.see(&event) {
                Ok(said) => {
                    if let Some(said) = said {
                        seen[said.writer].store(said.number + 1, Ordering::SeqCst);
                    }
                    (Kind::DeliveryAll, said)
                }
                Err(text) => return text,
            },
            Progress::Stream(stream, seen) => {
                if event.stream_revision != count {
                    let revision = event.stream_revision;
                    return format!("{}: {revision} came for {count}", stream_name(*stream));
                }
                seen.store(count + 1, Ordering::SeqCst);
                (Kind::DeliveryStream, told(&event.data))
            }
        };
        if let Some(said) = said {
            let time = now().saturating_sub(said.made_at);
            ground.times.add(kind, Duration::from_micros(time));
        }
        if remembers && count.is_multiple_of(REMEMBERED) {
            ground.ledger.remember(event.commit_position);
        }
    }
    "it had no more numbers".to_string()
}
