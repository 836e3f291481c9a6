//! [`HiddenClass`]: events that no reader gets, in a store that is filled before its server starts.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use umbel_events::{EventId, ExpectedVersion, NewEvent, ScavengeOptions, Store, StoreOptions};

use crate::attack;
use crate::client;
use crate::reading_calls;

/// Events of one append.
const APPEND_EVENTS: u64 = 1000;
/// Events of each stream of a class with many streams.
const STREAM_EVENTS: u64 = 100;
/// Time after which events of a `$maxAge` of a second are expired.
const EXPIRY_TIME: Duration = Duration::from_millis(2500);

/// A kind of hidden events.
#[derive(Debug, Clone)]
pub struct HiddenClass {
    /// Name of the class, which is its category too.
    pub name: &'static str,
    /// Position of the class's first event.
    pub position: u64,
}

/// Fills a store with each class.
pub fn fill(folder: &Path, events: u64) -> Result<Vec<HiddenClass>, String> {
    let _ = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    let failed = |error: umbel_events::Error| format!("filling the store: {error}");
    let store = Store::open(folder.join("db"), StoreOptions::default()).map_err(failed)?;
    let mut filler = Filler { store, ids: 0, positions: Vec::new() };
    filler.fill(events).map_err(failed)?;
    std::thread::sleep(EXPIRY_TIME);
    let Filler { store, positions, .. } = filler;
    store.close().map_err(failed)?;
    Ok(positions)
}

struct Filler {
    store: Store,
    ids: u128,
    positions: Vec<HiddenClass>,
}

impl Filler {
    fn fill(&mut self, events: u64) -> umbel_events::Result<()> {
        // The scavenged class first, since a scavenge removes the events of every class.
        let last = self.append("scavenged-1", "scavenged", events)?;
        self.begin("scavenged", last.0);
        self.set_metadata("scavenged-1", &format!("{{\"$tb\":{events}}}"))?;
        self.append("scavenged-2", "scavenged-rest", 1)?;
        self.store.scavenge(&ScavengeOptions::default())?;
        for (class, metadata) in [
            ("expired", "{\"$maxAge\":1}".to_string()),
            ("truncated", format!("{{\"$tb\":{events}}}")),
            ("max-count", "{\"$maxCount\":1}".to_string()),
            ("filtered", "{}".to_string()),
        ] {
            let stream = format!("{class}-1");
            let first = self.append(&stream, class, events)?.0;
            self.begin(class_name(class), first);
            self.set_metadata(&stream, &metadata)?;
        }
        for (class, metadata) in
            [("deleted", None), ("unreadable", Some("{\"$acl\":{\"$r\":[\"$admins\"]}}"))]
        {
            for number in 0..events / STREAM_EVENTS {
                let stream = format!("{class}-{number}");
                let first = self.append(&stream, class, STREAM_EVENTS)?.0;
                if number == 0 {
                    self.begin(class_name(class), first);
                }
                match metadata {
                    Some(metadata) => self.set_metadata(&stream, metadata)?,
                    None => drop(self.store.delete(&stream, ExpectedVersion::Any)?),
                }
            }
        }
        Ok(())
    }

    fn begin(&mut self, name: &'static str, position: u64) {
        self.positions.push(HiddenClass { name, position });
    }

    /// Appends events; returns the positions of the first append's and the last event.
    fn append(
        &mut self,
        stream: &str,
        kind: &str,
        events: u64,
    ) -> umbel_events::Result<(u64, u64)> {
        let mut positions: Option<(u64, u64)> = None;
        let mut left = events;
        while left > 0 {
            let count = left.min(APPEND_EVENTS);
            let batch: Vec<NewEvent<'_>> = (0..count)
                .map(|_| {
                    self.ids += 1;
                    NewEvent::json(EventId(self.ids.to_be_bytes()), kind, b"{\"hidden\":true}")
                })
                .collect();
            let done = self.store.append(stream, ExpectedVersion::Any, &batch)?;
            let position = done.position.unwrap_or(0);
            positions = Some((positions.map_or(position, |(first, _)| first), position));
            left -= count;
        }
        Ok(positions.unwrap_or_default())
    }

    fn set_metadata(&mut self, stream: &str, metadata: &str) -> umbel_events::Result<()> {
        self.ids += 1;
        let id = EventId(self.ids.to_be_bytes());
        let event = [NewEvent::json(id, "$metadata", metadata.as_bytes())];
        let stream = format!("$${stream}");
        self.store.append(&stream, ExpectedVersion::Any, &event).map(drop)
    }
}

fn class_name(class: &str) -> &'static str {
    let names = ["expired", "truncated", "max-count", "filtered", "deleted", "unreadable"];
    names.into_iter().find(|name| *name == class).unwrap_or("scavenged")
}

impl HiddenClass {
    /// Creates the groups of the class.
    pub async fn prepare(&self, address: SocketAddr) -> Result<(), String> {
        let admin = client::connect(address, "admin").await?;
        // Otherwise a read of all events by another user is refused before it examines any.
        let acl = b"{\"$acl\":{\"$r\":[\"$all\"]}}".to_vec();
        let event = client::event("$metadata", acl, Vec::new());
        let permitted = client::append(&admin, "$$$all", event).await;
        permitted.map_err(|status| format!("the metadata of $all: {status}"))?;
        reading_calls::create_groups(&admin, self.name, attack::group_settings()).await
    }
}
