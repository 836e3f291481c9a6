//! Properties of a group's deliveries, checked after each step of a script.

use super::*;

impl GroupModel<'_> {
    /// Checks that the parked stream contains the parked events, and nothing else.
    pub(super) fn check_parked(&mut self) -> CheckResult {
        let (store, stream) = (&self.fixture.store, self.key.parked_stream());
        let mut wanted: Vec<u64> = Vec::new();
        for key in std::mem::take(&mut self.life.parking) {
            self.life.done.insert(key);
            match key {
                EventKey::Source(position) => wanted.push(position),
                EventKey::Parked(revision) => {
                    self.links_done.insert(revision);
                    wanted.push(self.links[revision as usize]);
                }
            }
        }
        let from = Revision(self.links.len() as u64);
        let mut found = Vec::new();
        for link in store.read(&stream, from, Direction::Forwards) {
            let link = link.map_err(error_text)?;
            let target = String::from_utf8(link.data).map_err(error_text)?;
            let position = self.positions.get(&target).ok_or(format!("{target} was not sent"))?;
            self.links.push(*position);
            found.push(*position);
        }
        wanted.sort_unstable();
        found.sort_unstable();
        ensure(wanted == found, || format!("parked {found:?}, not {wanted:?}"))
    }

    pub(super) fn receive(&mut self) -> CheckResult {
        self.life.fed.clear();
        let ids: Vec<ConsumerId> = self.life.consumers.keys().copied().collect();
        let mut got = Vec::new();
        for id in ids {
            let seen = self.life.consumers.get_mut(&id).expect("the consumer is connected");
            while let Ok(answer) = seen.answers.try_recv() {
                let Some(ReadRespContent::Event(sent)) = answer.map_err(error_text)?.content else {
                    continue;
                };
                got.push((id, sent));
            }
        }
        let mut fresh = Vec::new();
        for (id, sent) in got {
            if let Some(position) = self.record_delivery(id, sent)? {
                fresh.push(position);
            }
        }
        fresh.sort_unstable();
        fresh.into_iter().try_for_each(|(position, pin)| self.check_order(position, pin))
    }

    /// Records a delivered event. Returns the event's position and pin if it is delivered for the
    /// first time.
    pub(super) fn record_delivery(
        &mut self,
        to: ConsumerId,
        sent: ReadRespEvent,
    ) -> Result<Option<(u64, String)>, String> {
        let event = sent.event.ok_or("no event")?;
        let name = |event: &umbel_proto::streams::read_resp::RecordedEvent| {
            let stream = event.stream_identifier.clone().expect("it has a stream").stream_name;
            String::from_utf8_lossy(&stream).to_string()
        };
        let (stream, revision) = (name(&event), event.stream_revision);
        let key = match (&sent.link, &self.key.stream) {
            (Some(link), _) => EventKey::Parked(link.stream_revision),
            (None, Some(_)) => EventKey::Source(revision),
            (None, None) => EventKey::Source(event.commit_position),
        };
        let read = sent
            .link
            .as_ref()
            .map_or((stream.clone(), revision), |link| (name(link), link.stream_revision));
        let mut stored = self.fixture.store.read(&read.0, Revision(read.1), Direction::Forwards);
        let ack = stored.next().ok_or("it is not in the store")?.map_err(error_text)?.id;
        if let EventKey::Source(position) = key {
            self.positions.insert(format!("{revision}@{stream}"), position);
            ensure(Some(position) > self.life.after, || {
                format!("{position} is before the checkpoint")
            })?;
        }
        ensure(!self.life.done.contains(&key), || format!("{key:?} was completed before"))?;
        let in_flight = self.life.consumers.values().any(|seen| seen.has.contains_key(&key));
        ensure(!in_flight, || format!("{key:?} is already in flight"))?;
        let retries = self.life.retries.get(&key).copied().unwrap_or(0);
        let count = Some(RetryCount::RetryCount(retries as i32));
        ensure(sent.count == count, || format!("{key:?}: {:?}, not {count:?}", sent.count))?;
        let EventKey::Source(position) = key else {
            self.mark_in_flight(to, key, ack, stream);
            return Ok(None);
        };
        let pin = self.source.get(&position).cloned();
        self.mark_in_flight(to, key, ack, pin.clone().unwrap_or(stream));
        let is_fresh = self.life.given.insert(key);
        Ok(pin.filter(|_| is_fresh).map(|pin| (position, pin)))
    }

    pub(super) fn mark_in_flight(
        &mut self,
        to: ConsumerId,
        key: EventKey,
        ack: EventId,
        pin: String,
    ) {
        let seen = self.life.consumers.get_mut(&to).expect("the consumer is connected");
        seen.has.insert(key, (ack, Instant::now(), pin));
        self.life.fed.insert(to);
        seen.had.push(ack);
    }

    /// Checks that no event was skipped before a first delivery.
    pub(super) fn check_order(&mut self, position: u64, pin: String) -> CheckResult {
        let is_pinned = self.strategy.starts_with("Pinned");
        let counted = if is_pinned { pin } else { String::new() };
        let last = self.life.last.get(&counted).copied().or(self.life.after);
        let from = last.map_or(0, |last| last + 1);
        ensure(from <= position, || format!("{position} came after {last:?}"))?;
        let mut between = self.source.range(from..position);
        let missed = between.find(|(_, pin)| !is_pinned || **pin == counted);
        ensure(missed.is_none(), || format!("{missed:?} was skipped before {position}"))?;
        self.life.last.insert(counted, position);
        Ok(())
    }

    pub(super) fn check_consumers(&mut self) -> CheckResult {
        let in_flight: usize = self.life.consumers.values().map(|seen| seen.has.len()).sum();
        let group = self.group.as_ref().expect("the group is open");
        let (fresh, again, sent) = group.dispatcher.event_counts();
        ensure(sent == in_flight, || format!("{sent} in flight, not {in_flight}"))?;
        let mut owners: HashMap<&str, ConsumerId> = HashMap::new();
        let mut all_full = true;
        for (id, seen) in &self.life.consumers {
            let count = seen.has.len();
            ensure(count <= seen.capacity, || {
                format!("{count} in flight with a buffer of {}", seen.capacity)
            })?;
            for (key, (_, _, pin)) in &seen.has {
                let own =
                    matches!(key, EventKey::Source(position) if self.source.contains_key(position));
                if own && self.strategy.starts_with("Pinned") {
                    let owner = *owners.entry(pin).or_insert(*id);
                    ensure(owner == *id, || format!("{pin} is with {owner} and {id}"))?;
                }
            }
            // Consumers before the one that got an event had no capacity then.
            let was_fed = self.strategy == "DispatchToSingle" && self.life.fed.contains(id);
            ensure(all_full || !was_fed, || {
                format!("{id} got events although others had buffer space")
            })?;
            all_full &= count == seen.capacity;
        }
        let waits = !self.strategy.starts_with("Pinned") && !all_full && fresh + again > 0;
        ensure(!waits, || format!("{fresh} and {again} wait although there is buffer space"))
    }

    /// Checks that the checkpoint and the parked events are within their bounds.
    pub(super) fn check_kept(&mut self) -> CheckResult {
        let store = &self.fixture.store;
        let kept = checkpoint_store::read_checkpoint(store, &self.key).map_err(error_text)?;
        ensure(kept >= self.checkpoint, || format!("{kept:?} is before {:?}", self.checkpoint))?;
        if let Some(kept) = kept.filter(|_| kept > self.checkpoint) {
            let from = self.checkpoint.map_or(0, |checkpoint| checkpoint + 1);
            for position in self.source.range(from..=kept).map(|(position, _)| position) {
                let is_done = self.done.contains(position) || self.links.contains(position);
                ensure(is_done, || format!("the checkpoint {kept} is beyond {position}"))?;
            }
        }
        self.checkpoint = kept;
        let first = match store.stream_state(&self.key.parked_stream()).map_err(error_text)? {
            umbel_events::StreamState::Live { first, last } => first.min(last + 1),
            _ => 0,
        };
        let lost = (0..first).find(|revision| !self.links_done.contains(revision));
        ensure(lost.is_none(), || format!("parked {lost:?} disappeared"))?;
        let parked = self.group.as_ref().expect("the group is open").parked_count;
        let left = self.links.len() as u64 - first;
        ensure(parked == left, || format!("{parked} parked, not {left}"))
    }
}
