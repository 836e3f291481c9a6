//! Allowed states of a store: after the death of the process, and after a power loss.

use std::collections::BTreeMap;

/// Content of a store: for a key-value store, values by keyspace and key; for an event store,
/// streams and ids by their place among all events.
pub type StoreContent = BTreeMap<Vec<u8>, Vec<u8>>;

/// States that a store may have after a crash.
#[derive(Debug, Clone)]
pub struct AllowedStates {
    /// Allowed states after a kill; several if the outcome of a write is unknown.
    now: Vec<StoreContent>,
    /// All states since the last durable state.
    since_durable: Vec<StoreContent>,
    /// States in which the running write has taken effect.
    issued: Vec<StoreContent>,
}

fn add(states: &mut Vec<StoreContent>, more: &[StoreContent]) {
    for state in more {
        if !states.contains(state) {
            states.push(state.clone());
        }
    }
}

impl AllowedStates {
    /// Creates the states of a store that durably holds `map`.
    pub fn durable(map: StoreContent) -> AllowedStates {
        AllowedStates { now: vec![map.clone()], since_durable: vec![map], issued: Vec::new() }
    }

    /// Begins a write.
    pub fn issue(&mut self, change: impl Fn(&mut StoreContent)) {
        self.issued = self.now.clone();
        self.issued.iter_mut().for_each(change);
        let issued = self.issued.clone();
        add(&mut self.now, &issued);
        add(&mut self.since_durable, &issued);
    }

    /// Records that the running write was acknowledged.
    pub fn acknowledge(&mut self, is_durable: bool) {
        self.now = std::mem::take(&mut self.issued);
        if is_durable {
            self.make_durable();
        }
    }

    /// Records that every write acknowledged so far is durable.
    pub fn make_durable(&mut self) {
        self.since_durable = self.now.clone();
    }

    /// Checks the content that was found against the allowed states.
    pub fn check(&self, found: &StoreContent, after_power_loss: bool) -> Result<(), String> {
        let allowed = if after_power_loss { &self.since_durable } else { &self.now };
        if allowed.contains(found) {
            return Ok(());
        }
        let newest = self.now.first().cloned().unwrap_or_default();
        let missing = newest.iter().find(|(key, value)| found.get(*key) != Some(value));
        let extra = found.iter().find(|(key, value)| newest.get(*key) != Some(value));
        let shown = |entry: Option<(&Vec<u8>, &Vec<u8>)>| {
            let text = |(key, value): (&Vec<u8>, &Vec<u8>)| {
                format!("{} = {:.40}", key.escape_ascii(), value.escape_ascii().to_string())
            };
            entry.map_or("nothing".to_string(), text)
        };
        Err(format!(
            "{} entries that match none of {} allowed states; of the newest one with {} entries {} \
             is missing, and {} is not in it",
            found.len(),
            allowed.len(),
            newest.len(),
            shown(missing),
            shown(extra)
        ))
    }
}
