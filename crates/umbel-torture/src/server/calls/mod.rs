//! Right and wrong calls through one client, each compared with a model of the answers: batches and
//! sessions with what they expect, said once more and spoiled; what reads show afterwards; users
//! and who is let in; groups and who may join; projections and operations. Everything follows from
//! the seed.

mod batches;
mod fixed;
mod groups;
mod model;
mod people;
mod reading;
mod sessions;
mod world;

#[cfg(feature = "canary")]
use umbel_base::canary::Switch;
use umbel_sim::Sim;

use crate::check::no_panic;
use crate::histories_server::connection::Connection;
use crate::history::Histories;
use crate::random::Random;
use crate::report::Tally;
use batches::Batch;
use fixed::Views;
use groups::Groups;
use model::{Id, Streams, Wants};
use people::People;
use sessions::Part;
use world::{FIRST, World, as_user, one_of};

/// The campaign. No sync is left out: nothing crashes here.
pub const CAMPAIGN: Histories = Histories {
    campaign: "calls",
    about: "the server's calls",
    history,
    left_out: &[],
    #[cfg(feature = "canary")]
    inside: &[
        Switch::ServerSessionTellsLast,
        Switch::ServerBatchChangesMind,
        Switch::ServerBatchTooLateWritten,
        Switch::ServerDisabledLetIn,
        Switch::ServerPasswordUnasked,
        Switch::ServerGroupUpdateForgotten,
        Switch::ServerGroupOneMore,
        Switch::ServerViewSaidToRun,
        Switch::ServerRetryCountsOn,
        Switch::ServerDetailForgotten,
        Switch::ServerBatchesSwapped,
        Switch::EventsRetryForgotten,
    ],
};

/// Streams that are appended to. The first one is deleted for good once in a while.
const NAMES: [&str; 3] = ["cart-1", "cart-2", "käse"];
/// Calls of a history.
const STEPS: u64 = 120;
/// Calls of one in which users are asked who they are: a password takes its time.
const STEPS_WITH_USERS: u64 = 40;
/// One history in so many is one of those.
const USERS_ONCE_IN: u64 = 4;

/// A client and what everything is compared with.
struct Run<'a> {
    client: Connection,
    has_users: bool,
    random: Random,
    tally: &'a Tally,
    streams: Streams,
    /// Batches and sessions that may be sent once more.
    batches: Vec<Batch>,
    sessions: Vec<Vec<Part>>,
    people: People,
    groups: Groups,
    views: Views,
    next_id: Id,
}

impl Run<'_> {
    /// The client as somebody who may do everything.
    fn admin(&self) -> Connection {
        match self.has_users {
            true => as_user(&self.client, FIRST[0].0, FIRST[0].1),
            false => self.client.clone(),
        }
    }

    fn stream(&mut self) -> &'static str {
        one_of(&mut self.random, &NAMES)
    }

    /// What is wanted of a stream: mostly what it is at.
    fn wants(&mut self, stream: &'static str) -> Wants {
        let last = self.streams.of(stream).last();
        match (self.random.below(7), last) {
            (0, _) => Wants::NoStream,
            (1, _) => Wants::Exists,
            (2 | 3, Some(last)) => Wants::At(last),
            (4, last) => {
                let near = last.unwrap_or_default() + self.random.below(4);
                Wants::At(near.saturating_sub(2))
            }
            _ => Wants::Any,
        }
    }

    fn new_ids(&mut self, count: u64) -> Vec<Id> {
        let first = self.next_id;
        self.next_id += Id::from(count);
        (first..self.next_id).map(|number| number << 64 | 0x8000_0000_0000_0000).collect()
    }

    /// One that was sent before.
    fn former<T>(&mut self, all: impl Fn(&Self) -> Vec<T>) -> Option<T> {
        let mut all = all(self);
        let at = self.random.next() as usize;
        let at = at.checked_rem(all.len())?;
        Some(all.swap_remove(at))
    }

    async fn step(&mut self) -> Result<(), String> {
        let kind = self.random.below(12);
        match (kind, self.has_users) {
            (0..6, true) => people::call(self).await,
            (0..3, false) | (6, true) => batches::call(self).await,
            (3..5, false) | (7, true) => sessions::call(self).await,
            (5, false) | (8, true) => reading::delete(self).await,
            (6 | 7, false) | (9, true) => reading::read(self).await,
            (8..10, false) | (10, true) => groups::call(self).await,
            _ => fixed::call(self).await,
        }
    }
}

/// One history of a seed.
fn history(seed: u64, _: Option<&str>, tally: &Tally) -> Result<(), String> {
    no_panic(|| {
        let mut random = Random::new(seed);
        let has_users = random.once_in(USERS_ONCE_IN);
        let sim = Sim::new(seed);
        let world = World::start(&sim, has_users)?;
        let address = world.address();
        let lived = world.run(async {
            let mut run = Run {
                client: Connection::to(address).await?,
                has_users,
                random,
                tally,
                streams: Streams::default(),
                batches: Vec::new(),
                sessions: Vec::new(),
                people: People::default(),
                groups: Groups::default(),
                views: Views::default(),
                next_id: 1,
            };
            for step in 0..if has_users { STEPS_WITH_USERS } else { STEPS } {
                run.step().await.map_err(|why| format!("step {step}: {why}"))?;
            }
            reading::everything(&mut run).await
        });
        tally.add("calls", if has_users { STEPS_WITH_USERS } else { STEPS });
        // What went wrong first says more than how it ended.
        lived.and(world.end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_answered_as_the_model_says() {
        let outcome = CAMPAIGN.run(1, 8).end();
        assert_eq!(outcome.violation_count, 0, "{:?}", outcome.violations);
        let counted = ["batches judged", "sessions judged", "reads judged"];
        for what in counted {
            assert!(outcome.counts[what] > 20, "{what}: {:?}", outcome.counts);
        }
    }
}
