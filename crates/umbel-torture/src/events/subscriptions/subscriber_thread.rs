//! Who follows a store while others append to it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use umbel_events::{Error, Position};

use super::follower::{Follower, Kind, Met};
use super::stage::{Phase, Stage};
use crate::random::Random;
use crate::report::now;

/// How long a follower waits for more at a time.
const PATIENCE: Duration = Duration::from_millis(2);
/// How long one waits for the last append.
const LAST_PATIENCE: Duration = Duration::from_secs(6);

/// Follows, and now and then goes away and comes back to what was kept, just now or earlier.
pub fn follow(stage: &Stage, mut follower: Follower, mut random: Random) -> Follower {
    loop {
        if random.once_in(4) {
            follower.go_back(&mut random);
        }
        stage.subscriptions.fetch_add(1, Ordering::Relaxed);
        match subscribed(stage, &mut follower, &mut random) {
            Ok(false) => continue,
            Ok(true) | Err(Met::Failed(Error::Deleted { .. })) => {}
            Err(Met::Failed(error)) => {
                if stage.phase() != Phase::Ended {
                    stage.failed(&format!("{:?}", follower.kind), &error);
                }
            }
            Err(Met::Wrong(text)) => stage.wrong(format!("{:?}: {text}", follower.kind)),
        }
        return follower;
    }
}

/// Follows with one subscription. Whether nothing more will come.
fn subscribed(stage: &Stage, follower: &mut Follower, random: &mut Random) -> Result<bool, Met> {
    let store = &stage.store;
    let mut subscription = follower.subscribe(store)?;
    let mut left = 1 + random.below(12);
    loop {
        let most = 1 + random.below(20) as usize;
        let behind = match stage.phase() {
            Phase::Ended => return Ok(true),
            Phase::Parting(behind) | Phase::Parted(behind, _) => behind,
            Phase::Living if left == 0 => return Ok(false),
            Phase::Living => {
                left -= 1;
                let is_bound = matches!(follower.kind, Kind::View(_)) && random.once_in(4);
                let bound = if is_bound { store.visible() } else { Position::END };
                subscription.show_through(bound);
                match random.once_in(2) {
                    true => {
                        let examined = 1 + random.below(50) as usize;
                        follower.hear(store, &mut subscription, bound, |subscription| {
                            subscription.take(most, examined)
                        })?
                    }
                    false => follower.hear(store, &mut subscription, bound, |subscription| {
                        subscription.next_batch(most, PATIENCE)
                    })?,
                };
                continue;
            }
        };
        subscription.show_through(Position::END);
        let has_last =
            |follower: &Follower| follower.got.last().is_some_and(|got| got.position > behind);
        // Who was quick enough to get the last append before he knew of it waits for nothing.
        let patience = if has_last(follower) { Duration::ZERO } else { LAST_PATIENCE };
        let asked = now();
        let heard = follower.hear(store, &mut subscription, Position::END, |subscription| {
            subscription.next_batch(most, patience)
        })?;
        if heard.is_caught_up && has_last(follower) {
            stage.waited.fetch_add(1, Ordering::Relaxed);
            return Ok(true);
        }
        let has_waited = now() - asked >= LAST_PATIENCE / 2;
        let is_late = |made: Duration| now() - made >= LAST_PATIENCE / 2;
        if let Phase::Parted(_, made) = stage.phase()
            && !heard.has_events
            && has_waited
            && is_late(made)
        {
            return Err(Met::Wrong("nobody woke it when the last append came".to_string()));
        }
    }
}
