//! What a store may hold: after the death of the process, and after a power loss.

use std::collections::BTreeMap;

/// The content of a store. Of a key-value store, values by keyspace and key; of an event store,
/// streams and ids by the place among all events.
pub type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// The states a store may be in.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// As a process sees it. More than one where the outcome of a write is unknown.
    now: Vec<Map>,
    /// All states since the last one that is known to be durable.
    since_durable: Vec<Map>,
    /// The states if the write that runs takes effect.
    issued: Vec<Map>,
}

fn add(states: &mut Vec<Map>, more: &[Map]) {
    for state in more {
        if !states.contains(state) {
            states.push(state.clone());
        }
    }
}

impl Ledger {
    /// Of a store that holds this for good.
    pub fn of(map: Map) -> Ledger {
        Ledger { now: vec![map.clone()], since_durable: vec![map], issued: Vec::new() }
    }

    /// A write begins.
    pub fn issue(&mut self, change: impl Fn(&mut Map)) {
        self.issued = self.now.clone();
        self.issued.iter_mut().for_each(change);
        let issued = self.issued.clone();
        add(&mut self.now, &issued);
        add(&mut self.since_durable, &issued);
    }

    /// The write was acknowledged.
    pub fn acknowledge(&mut self, is_durable: bool) {
        self.now = std::mem::take(&mut self.issued);
        if is_durable {
            self.make_durable();
        }
    }

    /// Everything acknowledged so far is durable.
    pub fn make_durable(&mut self) {
        self.since_durable = self.now.clone();
    }

    /// The store was found to hold this. An error where it must not.
    pub fn check(&self, found: &Map, after_power_loss: bool) -> Result<(), String> {
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
            "{} entries that are none of {} allowed states; of the newest one with {} entries {} \
             is missing, and {} is not in it",
            found.len(),
            allowed.len(),
            newest.len(),
            shown(missing),
            shown(extra)
        ))
    }
}
