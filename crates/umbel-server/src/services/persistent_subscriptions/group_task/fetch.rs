//! How a group reads, and what it lets go of where others have no room.

use std::collections::HashSet;

use super::*;
use crate::limits::{GROUP_BYTES, GROUP_IDLE_TIME, GROUP_UNTAKEN_TIME};

impl Group {
    /// Whether anything may be read.
    fn may_read(&self) -> bool {
        self.again.is_none() && self.consumers.held().1 < GROUP_BYTES
    }

    /// Whether there is somebody to read new events for, and room for them.
    fn may_go_on(&self) -> bool {
        self.may_read() && !self.joined.is_empty() && !self.is_full()
    }

    /// Whether it holds as many events as its settings say.
    fn is_full(&self) -> bool {
        let most = usize::try_from(self.config.settings.history_buffer_size).unwrap_or(0);
        self.consumers.held().0 >= most.max(1)
    }

    /// Whether a page would be read now, where there is room for it,
    pub(super) fn has_more(&self) -> bool {
        self.has_more_of_source() || self.wanted_parked().is_some()
    }

    /// and whether one would be once there is more of the source.
    pub(super) fn follows(&self) -> bool {
        self.may_go_on() || self.misses_source()
    }

    fn has_more_of_source(&self) -> bool {
        let goes_back = || self.misses_source() && self.consumers.is_beyond_missing();
        (self.follows() && !self.is_at_the_end) || goes_back()
    }

    /// Whether something is missing of the source, and needed.
    fn misses_source(&self) -> bool {
        let misses = self.consumers.first_missing().is_some() && self.consumers.needs_missing();
        misses && self.may_read()
    }

    /// What is to be read of what is parked: what is missing, then what is to be sent again.
    fn wanted_parked(&self) -> Option<(u64, u64)> {
        match self.consumers.missing_parked() {
            Some(missing) => {
                Some(missing).filter(|_| self.may_read() && self.consumers.needs_missing())
            }
            None => self.replay.filter(|(from, before)| from < before && self.may_go_on()),
        }
    }

    /// Reads a page of what the group is of.
    pub(super) async fn read(&mut self) -> Result<(), Error> {
        if !self.has_more_of_source() || !self.part.has_page() {
            return Ok(());
        }
        if self.misses_source() && self.consumers.go_back() {
            // What is missing lies before what the follower brings next.
            (self.follower, self.is_at_the_end) = (None, false);
        }
        let mut follower = match self.follower.take() {
            Some(follower) => follower,
            None => self.follow().await?,
        };
        if self.bell.is_none() {
            self.bell = Some(follower.bell());
        }
        if let Some(name) = self.key.stream.as_deref() {
            follower.show_through(self.service.gates.through(name));
        }
        let page = self.service.store.blocking(move |store| follower.page(store)).await?;
        self.is_at_the_end = page.is_caught_up;
        let only_missing = self.is_full();
        for found in page.found.into_iter().skip(usize::from(planted(Bug::PageSkips))) {
            match found {
                Found::Event(event) => {
                    let Some(original) = original(&event) else { continue };
                    let place = match self.key.stream {
                        Some(_) => original.revision,
                        None => original.position,
                    };
                    if only_missing && self.consumers.is_new(Key::Source(place)) {
                        // For this there is no room yet: it is read when there is.
                        self.is_at_the_end = false;
                        if let Some(before) = place.checked_sub(1) {
                            self.consumers.pass(before);
                        }
                        return Ok(());
                    }
                    self.last_known = self.last_known.max(Some(place));
                    if self.key.stream.is_none() && group_keep::is_of_a_group(&original.stream) {
                        self.consumers.pass(place);
                    } else {
                        self.consumers.offer(Key::Source(place), event);
                    }
                }
                Found::Checkpoint(position) => self.consumers.pass(position),
            }
        }
        if let Some(place) = page.follower.place() {
            self.consumers.pass(place);
        }
        self.follower = Some(page.follower);
        Ok(())
    }

    /// Begins to read anew behind what was taken in.
    async fn follow(&self) -> Result<Follower, Error> {
        let (key, config) = (self.key.clone(), self.config.clone());
        let after = self.consumers.read();
        let subscribing =
            self.service.store.blocking(move |store| subscribe(store, &key, &config, after));
        let resolves = self.config.settings.resolve_links;
        let interval = self.config.filter.is_some().then_some(u64::MAX);
        let clock = &self.service.env.clock;
        Ok(Follower::new(subscribing.await?, clock, interval, resolves, false))
    }

    /// Reads what is parked and is to be sent again.
    pub(super) async fn read_parked(&mut self) -> Result<(), Error> {
        while let Some((from, before)) = self.wanted_parked() {
            if !self.part.has_page() {
                return Ok(());
            }
            let stream = self.key.parked_stream();
            let read = move |store: &Store| group_keep::read_parked(store, &stream, from, before);
            let events = self.service.store.blocking(read).await?;
            let last = events.last().map_or(before - 1, |(revision, _)| *revision);
            let skipped = usize::from(planted(Bug::ReplaySkips));
            for (revision, event) in events.into_iter().skip(skipped) {
                self.consumers.offer(Key::Parked(revision), event);
            }
            self.consumers.pass_parked(last);
            self.replay = self.replay.map(|(from, before)| (from.max(last + 1), before));
            self.part.hold(self.consumers.held().1);
        }
        self.replay = self.replay.filter(|(from, before)| from < before);
        Ok(())
    }

    /// Counts what the group holds, and lets go of what it can where others wait for room.
    pub(super) fn settle(&mut self, now: Instant) {
        let moved = self.consumers.sent + self.consumers.done;
        if moved != self.moved.0 {
            self.moved = (moved, now);
        }
        if self.consumers.held().1 == 0 || !self.wanted.is_now() {
            self.looks = None;
        } else if self.looks.is_none_or(|looks| looks <= now) {
            // What was not taken before anybody waited does nobody harm.
            let begins = self.looks.replace(now + GROUP_IDLE_TIME).is_none();
            let taken = self.who_took_all(now, begins);
            let is_idle = now.saturating_duration_since(self.moved.1) >= GROUP_IDLE_TIME;
            if !begins {
                self.consumers.let_go(is_idle, |id| taken.contains(&id));
            }
        }
        self.part.hold(self.consumers.held().1);
    }

    /// Consumers who have all that they were sent. Connections of those end who took nothing for
    /// long: what they do not take is in memory, whoever lets go of it.
    fn who_took_all(&mut self, now: Instant, begins: bool) -> HashSet<ConsumerId> {
        let mut all = HashSet::new();
        for (id, joined) in &mut self.joined {
            let answers = &joined.joining.answers;
            let left = answers.max_capacity() - answers.capacity();
            if left == 0 {
                all.insert(*id);
            }
            let sent = self.consumers.consumers().get(id).map_or(0, |consumer| consumer.sent);
            let taken = sent.saturating_sub(left as u64);
            if begins || left == 0 || taken != joined.taken.0 {
                joined.taken = (taken, now);
            } else if now.saturating_duration_since(joined.taken.1) >= GROUP_UNTAKEN_TIME
                && let Some(peer) = &joined.joining.peer
            {
                peer.end();
            }
        }
        all
    }
}
