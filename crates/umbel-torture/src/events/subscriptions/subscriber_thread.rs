//! Subscribers that follow a store while writers append to it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use umbel_events::{Error, Position};
use umbel_sim::Random;

use crate::events::subscriptions::crash_cycle_state::{CyclePhase, SubscriptionCycle};
use crate::events::subscriptions::subscriber::{BatchError, Subscriber, SubscriptionKind};
use crate::support::campaign_tally::now;

/// Timeout of a read.
const READ_TIMEOUT: Duration = Duration::from_millis(2);
/// Timeout of the wait for the last append.
const LAST_READ_TIMEOUT: Duration = Duration::from_secs(6);

/// Follows the store; sometimes resumes from a saved checkpoint, the last one or an earlier one.
pub fn run_subscriber(
    life: &SubscriptionCycle,
    mut follower: Subscriber,
    mut random: Random,
) -> Subscriber {
    loop {
        if random.once_in(4) {
            follower.rewind(&mut random);
        }
        life.subscriptions.fetch_add(1, Ordering::Relaxed);
        match subscribed(life, &mut follower, &mut random) {
            Ok(false) => continue,
            Ok(true) | Err(BatchError::Failed(Error::StreamDeleted { .. })) => {}
            Err(BatchError::Failed(error)) => {
                if life.phase() != CyclePhase::Ended {
                    life.failed(&format!("{:?}", follower.kind), &error);
                }
            }
            Err(BatchError::Wrong(text)) => life.wrong(format!("{:?}: {text}", follower.kind)),
        }
        return follower;
    }
}

/// Follows the store with one subscription. Returns whether no further event will be appended.
fn subscribed(
    life: &SubscriptionCycle,
    follower: &mut Subscriber,
    random: &mut Random,
) -> Result<bool, BatchError> {
    let store = &life.store;
    let mut subscription = follower.subscribe(store)?;
    let mut left = 1 + random.below(12);
    loop {
        let batch_events_max = 1 + random.below(20) as usize;
        let last_before = match life.phase() {
            CyclePhase::Ended => return Ok(true),
            CyclePhase::Parting(last_before) | CyclePhase::Parted(last_before, _) => last_before,
            CyclePhase::Living if left == 0 => return Ok(false),
            CyclePhase::Living => {
                left -= 1;
                let is_bound =
                    matches!(follower.kind, SubscriptionKind::View(_)) && random.once_in(4);
                let bound = if is_bound { store.visible_position() } else { Position::END };
                subscription.limit_view_to(bound);
                match random.once_in(2) {
                    true => {
                        let examined = 1 + random.below(50) as usize;
                        follower.read_batch(store, &mut subscription, bound, |subscription| {
                            subscription.try_next_batch(batch_events_max, examined)
                        })?
                    }
                    false => {
                        follower.read_batch(store, &mut subscription, bound, |subscription| {
                            subscription.next_batch(batch_events_max, READ_TIMEOUT)
                        })?
                    }
                };
                continue;
            }
        };
        subscription.limit_view_to(Position::END);
        let has_last = |follower: &Subscriber| {
            follower.delivered.last().is_some_and(|got| got.position > last_before)
        };
        // A subscriber that already has the last append does not wait.
        let timeout = if has_last(follower) { Duration::ZERO } else { LAST_READ_TIMEOUT };
        let started = now();
        let summary =
            follower.read_batch(store, &mut subscription, Position::END, |subscription| {
                subscription.next_batch(batch_events_max, timeout)
            })?;
        if summary.is_caught_up && has_last(follower) {
            life.waited.fetch_add(1, Ordering::Relaxed);
            return Ok(true);
        }
        let has_waited = now() - started >= LAST_READ_TIMEOUT / 2;
        let is_late = |made: Duration| now() - made >= LAST_READ_TIMEOUT / 2;
        if let CyclePhase::Parted(_, made) = life.phase()
            && !summary.has_events
            && has_waited
            && is_late(made)
        {
            return Err(BatchError::Wrong("the last append did not wake it".to_string()));
        }
    }
}
