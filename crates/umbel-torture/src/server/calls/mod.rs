//! Valid and invalid calls of one client, each compared with a model of the answers. The calls are
//! batches and sessions with expected revisions, retries and flaws; reads; users and
//! authentication; consumer groups and their permissions; projections and operations. The seed
//! decides every call.

mod append_session;
mod batch_append;
mod call_server;
mod persistent_subscriptions;
mod projections;
mod read_and_delete;
mod stream_model;
mod user_calls;

use umbel_sim::{Random, Sim};

use crate::simulation::crash_image_check::no_panic;
use crate::support::campaign_tally::CampaignTally;
use crate::support::failpoint_list;
use crate::support::seeded_campaign::SeededCampaign;
use append_session::SessionPart;
use batch_append::TestBatch;
use call_server::{CallServer, FIRST_PASSWORD, as_user, one_of};
use persistent_subscriptions::GroupStates;
use projections::ViewStates;
use stream_model::{CallEventId, StreamExpectation, StreamStates};
use umbel_testing::server_connection::Connection;
use user_calls::UserStates;

/// The campaign. The campaign omits no sync, because its scripts crash nothing.
pub const CAMPAIGN: SeededCampaign = SeededCampaign {
    campaign: "calls",
    subject: "the server's calls",
    script: run_script,
    omitted_calls: &[],
    failpoints: &failpoint_list::CALLS,
};

/// Streams for appends. The first stream is sometimes tombstoned.
const STREAM_NAMES: [&str; 3] = ["cart-1", "cart-2", "käse"];
/// Number of calls in a script.
const STEPS: u64 = 120;
/// Number of calls in a script with authentication; checking a password is slow.
const STEPS_WITH_USERS: u64 = 40;
/// One of this many scripts has authentication.
const USERS_ONCE_IN: u64 = 4;

/// A client and the models.
struct CallRun<'a> {
    client: Connection,
    has_users: bool,
    random: Random,
    tally: &'a CampaignTally,
    streams: StreamStates,
    /// Batches and sessions that may be sent again.
    batches: Vec<TestBatch>,
    sessions: Vec<Vec<SessionPart>>,
    people: UserStates,
    groups: GroupStates,
    views: ViewStates,
    next_id: CallEventId,
}

impl CallRun<'_> {
    /// Returns the client as an administrator.
    fn admin(&self) -> Connection {
        match self.has_users {
            true => as_user(&self.client, FIRST_PASSWORD[0].0, FIRST_PASSWORD[0].1),
            false => self.client.clone(),
        }
    }

    fn stream(&mut self) -> &'static str {
        one_of(&mut self.random, &STREAM_NAMES)
    }

    /// Returns an expected revision for a stream, mostly the right one.
    fn random_expectation(&mut self, stream: &'static str) -> StreamExpectation {
        let last = self.streams.of(stream).last();
        match (self.random.below(7), last) {
            (0, _) => StreamExpectation::NoStream,
            (1, _) => StreamExpectation::Exists,
            (2 | 3, Some(last)) => StreamExpectation::At(last),
            (4, last) => {
                let near = last.unwrap_or_default() + self.random.below(4);
                StreamExpectation::At(near.saturating_sub(2))
            }
            _ => StreamExpectation::Any,
        }
    }

    fn new_ids(&mut self, count: u64) -> Vec<CallEventId> {
        let first = self.next_id;
        self.next_id += CallEventId::from(count);
        (first..self.next_id).map(|number| number << 64 | 0x8000_0000_0000_0000).collect()
    }

    /// Returns an earlier batch.
    fn former_batch<T>(&mut self, all: impl Fn(&Self) -> Vec<T>) -> Option<T> {
        let mut all = all(self);
        let at = self.random.next() as usize;
        let at = at.checked_rem(all.len())?;
        Some(all.swap_remove(at))
    }

    async fn step(&mut self) -> Result<(), String> {
        let kind = self.random.below(12);
        match (kind, self.has_users) {
            (0..6, true) => user_calls::call(self).await,
            (0..3, false) | (6, true) => batch_append::call(self).await,
            (3..5, false) | (7, true) => append_session::call(self).await,
            (5, false) | (8, true) => read_and_delete::delete(self).await,
            (6 | 7, false) | (9, true) => read_and_delete::read(self).await,
            (8..10, false) | (10, true) => persistent_subscriptions::call(self).await,
            _ => projections::call(self).await,
        }
    }
}

/// Runs one script of a seed.
fn run_script(seed: u64, _: Option<&str>, tally: &CampaignTally) -> Result<(), String> {
    no_panic(|| {
        let mut random = Random::new(seed);
        let has_users = random.once_in(USERS_ONCE_IN);
        let sim = Sim::new(seed);
        let world = CallServer::start(&sim, has_users)?;
        let address = world.address();
        let lived = world.run(async {
            let mut run = CallRun {
                client: Connection::to(address).await?,
                has_users,
                random,
                tally,
                streams: StreamStates::default(),
                batches: Vec::new(),
                sessions: Vec::new(),
                people: UserStates::default(),
                groups: GroupStates::default(),
                views: ViewStates::default(),
                next_id: 1,
            };
            for step in 0..if has_users { STEPS_WITH_USERS } else { STEPS } {
                run.step().await.map_err(|why| format!("step {step}: {why}"))?;
            }
            read_and_delete::check_everything(&mut run).await
        });
        tally.add("calls", if has_users { STEPS_WITH_USERS } else { STEPS });
        // The first failure has precedence over one of the end.
        lived.and(world.end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_answers_match_the_model() {
        let outcome = CAMPAIGN.run(1, 8).end();
        assert_eq!(outcome.violation_count, 0, "{:?}", outcome.violations);
        let counted = ["batches judged", "sessions judged", "reads judged"];
        for what in counted {
            assert!(outcome.counts[what] > 20, "{what}: {:?}", outcome.counts);
        }
    }
}
