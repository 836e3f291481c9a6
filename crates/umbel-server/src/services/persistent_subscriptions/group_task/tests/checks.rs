//! What a group owes its consumers, looked at after each step of a history.

use super::*;

impl Model<'_> {
    /// What was to be parked is in the stream of parked events, and nothing else came there.
    pub(super) fn check_parked(&mut self) -> Found {
        let (store, stream) = (&self.stage.store, self.key.parked_stream());
        let mut wanted: Vec<u64> = Vec::new();
        for key in std::mem::take(&mut self.life.parking) {
            self.life.done.insert(key);
            match key {
                Key::Source(place) => wanted.push(place),
                Key::Parked(revision) => {
                    self.links_done.insert(revision);
                    wanted.push(self.links[revision as usize]);
                }
            }
        }
        let from = Revision(self.links.len() as u64);
        let mut found = Vec::new();
        for link in store.read(&stream, from, Direction::Forwards) {
            let link = link.map_err(told)?;
            let target = String::from_utf8(link.data).map_err(told)?;
            let place = self.places.get(&target).ok_or(format!("{target} was not sent"))?;
            self.links.push(*place);
            found.push(*place);
        }
        wanted.sort_unstable();
        found.sort_unstable();
        ensure(wanted == found, || format!("parked {found:?}, not {wanted:?}"))
    }

    pub(super) fn receive(&mut self) -> Found {
        self.life.fed.clear();
        let ids: Vec<ConsumerId> = self.life.consumers.keys().copied().collect();
        let mut got = Vec::new();
        for id in ids {
            let seen = self.life.consumers.get_mut(&id).expect("it is there");
            while let Ok(answer) = seen.answers.try_recv() {
                let Some(Sent::Event(sent)) = answer.map_err(told)?.content else { continue };
                got.push((id, sent));
            }
        }
        let mut fresh = Vec::new();
        for (id, sent) in got {
            if let Some(place) = self.take_in(id, sent)? {
                fresh.push(place);
            }
        }
        fresh.sort_unstable();
        fresh.into_iter().try_for_each(|(place, pin)| self.check_order(place, pin))
    }

    /// An event came. Its place and pin, where it comes for the first time.
    pub(super) fn take_in(
        &mut self,
        to: ConsumerId,
        sent: SentEvent,
    ) -> Result<Option<(u64, String)>, String> {
        let event = sent.event.ok_or("no event")?;
        let name = |event: &umbel_proto::streams::read_resp::RecordedEvent| {
            let stream = event.stream_identifier.clone().expect("it has a stream").stream_name;
            String::from_utf8_lossy(&stream).to_string()
        };
        let (stream, revision) = (name(&event), event.stream_revision);
        let key = match (&sent.link, &self.key.stream) {
            (Some(link), _) => Key::Parked(link.stream_revision),
            (None, Some(_)) => Key::Source(revision),
            (None, None) => Key::Source(event.commit_position),
        };
        let read = sent
            .link
            .as_ref()
            .map_or((stream.clone(), revision), |link| (name(link), link.stream_revision));
        let mut stored = self.stage.store.read(&read.0, Revision(read.1), Direction::Forwards);
        let ack = stored.next().ok_or("it is not in the store")?.map_err(told)?.id;
        if let Key::Source(place) = key {
            self.places.insert(format!("{revision}@{stream}"), place);
            ensure(Some(place) > self.life.after, || format!("{place} is before the checkpoint"))?;
        }
        ensure(!self.life.done.contains(&key), || format!("{key:?} was done"))?;
        let on_the_way = self.life.consumers.values().any(|seen| seen.has.contains_key(&key));
        ensure(!on_the_way, || format!("{key:?} is on the way already"))?;
        let retries = self.life.retries.get(&key).copied().unwrap_or(0);
        let count = Some(RetryCount::Times(retries as i32));
        ensure(sent.count == count, || format!("{key:?}: {:?}, not {count:?}", sent.count))?;
        let Key::Source(place) = key else {
            self.give(to, key, ack, stream);
            return Ok(None);
        };
        let pin = self.source.get(&place).cloned();
        self.give(to, key, ack, pin.clone().unwrap_or(stream));
        let is_fresh = self.life.given.insert(key);
        Ok(pin.filter(|_| is_fresh).map(|pin| (place, pin)))
    }

    pub(super) fn give(&mut self, to: ConsumerId, key: Key, ack: EventId, pin: String) {
        let seen = self.life.consumers.get_mut(&to).expect("it is there");
        seen.has.insert(key, (ack, Instant::now(), pin));
        self.life.fed.insert(to);
        seen.had.push(ack);
    }

    /// None was left out before what comes for the first time.
    pub(super) fn check_order(&mut self, place: u64, pin: String) -> Found {
        let is_pinned = self.strategy.starts_with("Pinned");
        let counted = if is_pinned { pin } else { String::new() };
        let last = self.life.last.get(&counted).copied().or(self.life.after);
        let from = last.map_or(0, |last| last + 1);
        ensure(from <= place, || format!("{place} came behind {last:?}"))?;
        let mut between = self.source.range(from..place);
        let missed = between.find(|(_, pin)| !is_pinned || **pin == counted);
        ensure(missed.is_none(), || format!("{missed:?} was left out before {place}"))?;
        self.life.last.insert(counted, place);
        Ok(())
    }

    pub(super) fn check_consumers(&mut self) -> Found {
        let on_the_way: usize = self.life.consumers.values().map(|seen| seen.has.len()).sum();
        let group = self.group.as_ref().expect("it is open");
        let (fresh, again, sent) = group.consumers.counts();
        ensure(sent == on_the_way, || format!("{sent} on the way, not {on_the_way}"))?;
        let mut owners: HashMap<&str, ConsumerId> = HashMap::new();
        let mut all_full = true;
        for (id, seen) in &self.life.consumers {
            let count = seen.has.len();
            ensure(count <= seen.room, || format!("{count} in the room of {}", seen.room))?;
            for (key, (_, _, pin)) in &seen.has {
                let own = matches!(key, Key::Source(place) if self.source.contains_key(place));
                if own && self.strategy.starts_with("Pinned") {
                    let owner = *owners.entry(pin).or_insert(*id);
                    ensure(owner == *id, || format!("{pin} is with {owner} and {id}"))?;
                }
            }
            // Whoever stands before one that was given something had no room then.
            let was_fed = self.strategy == "DispatchToSingle" && self.life.fed.contains(id);
            ensure(all_full || !was_fed, || format!("{id} was given what others have room for"))?;
            all_full &= count == seen.room;
        }
        let waits = !self.strategy.starts_with("Pinned") && !all_full && fresh + again > 0;
        ensure(!waits, || format!("{fresh} and {again} wait although there is room"))
    }

    /// Checkpoint and parked events stand where they may.
    pub(super) fn check_kept(&mut self) -> Found {
        let store = &self.stage.store;
        let kept = group_keep::read_checkpoint(store, &self.key).map_err(told)?;
        ensure(kept >= self.checkpoint, || format!("{kept:?} is before {:?}", self.checkpoint))?;
        if let Some(kept) = kept.filter(|_| kept > self.checkpoint) {
            let from = self.checkpoint.map_or(0, |checkpoint| checkpoint + 1);
            for place in self.source.range(from..=kept).map(|(place, _)| place) {
                let is_done = self.done.contains(place) || self.links.contains(place);
                ensure(is_done, || format!("the checkpoint {kept} is beyond {place}"))?;
            }
        }
        self.checkpoint = kept;
        let first = match store.stream(&self.key.parked_stream()).map_err(told)? {
            StreamState::Live { first, last } => first.min(last + 1),
            _ => 0,
        };
        let lost = (0..first).find(|revision| !self.links_done.contains(revision));
        ensure(lost.is_none(), || format!("parked {lost:?} is gone and not done"))?;
        let parked = self.group.as_ref().expect("it is open").parked;
        let left = self.links.len() as u64 - first;
        ensure(parked == left, || format!("{parked} parked, not {left}"))
    }
}
