//! [`LogInit`]: the creation of a replicated log in an empty prefix.
//!
//! The first snapshot is created before `STORE`: without `STORE`, no node uses the prefix, and with
//! it, each node finds a snapshot. So a creation that ends between the two leaves nothing that a
//! repetition with the same id does not finish (L9).
//!
//! INVARIANT: one creation of `STORE` wins, and it is never deleted. So a prefix has one log.

use umbel_env::{Clock, Creation, ObjectName, Objects};

use crate::slot_error::{SlotError, SlotResult};
use crate::slot_requests::{list, read_whole};
use crate::slot_snapshot::{SNAPSHOT_BYTES_MAX, SNAPSHOT_PREFIX, parse_snapshot_name};
use crate::store_object::{STORE_OBJECT_NAME, StoreObject};

/// Prefix of the names that the probe of an object store leaves.
const PROBE_PREFIX: &str = "probe/";

/// The creation of a replicated log. It can be repeated with the same object at any time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogInit {
    object: StoreObject,
    phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    /// Reads `STORE`.
    Reading,
    /// Lists the prefix after this name: it must be empty.
    Listing { after: Option<String> },
    /// Creates the first snapshot. After an unknown answer, reads it.
    Snapshot { is_unknown: bool },
    /// Creates `STORE`. After an unknown answer, reads it.
    Store { is_unknown: bool },
    /// Another log won the prefix: deletes the snapshot of this one.
    Removing { refusal: String },
    /// The log exists.
    Done(InitStep),
}

/// Result of a step of a creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InitStep {
    /// The next step is to follow at once.
    Again,
    /// The log exists now.
    Created,
    /// The log existed before, with the same constants.
    Existed,
}

/// Owner of the object with a name.
enum NamedObject {
    /// It is not certain yet. The next request is a read if the answer was unknown.
    Open { is_unknown: bool },
    /// This one.
    Mine,
    /// Another one, with these bytes.
    Other(Vec<u8>),
}

impl LogInit {
    /// The creation of this log, of which no request is sent.
    ///
    /// # Errors
    /// [`SlotError::Refused`] if no log has these constants.
    pub fn new(object: StoreObject) -> SlotResult<LogInit> {
        object.check().map_err(|reason| {
            SlotError::Refused(format!("the replicated log cannot be created: {reason}"))
        })?;
        Ok(LogInit { object, phase: Phase::Reading })
    }

    /// Sends the next request.
    ///
    /// # Errors
    /// [`SlotError::Refused`] if the prefix has another log or other objects; failed requests,
    /// after which the step can be repeated.
    pub fn step(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<InitStep> {
        match self.phase.clone() {
            Phase::Reading => self.read_store(objects, clock),
            Phase::Listing { after } => self.list_page(objects, clock, after.as_deref()),
            Phase::Snapshot { is_unknown } => self.create_snapshot(objects, clock, is_unknown),
            Phase::Store { is_unknown } => self.create_store(objects, clock, is_unknown),
            Phase::Removing { refusal } => {
                // Its name has the id of a log that can never exist.
                objects.delete(&self.object.first_snapshot().name())?;
                Err(SlotError::Refused(refusal))
            }
            Phase::Done(step) => Ok(step),
        }
    }

    fn read_store(&mut self, objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<InitStep> {
        let Some(found) = StoreObject::read(objects, clock)? else {
            self.phase = Phase::Listing { after: None };
            return Ok(InitStep::Again);
        };
        match self.other_log(objects, &found) {
            None => Ok(self.finish(InitStep::Existed)),
            Some(refusal) => Err(SlotError::Refused(refusal)),
        }
    }

    /// Returns the reason why the prefix cannot have this log; `None` if `found` is its `STORE`.
    fn other_log(&self, objects: &dyn Objects, found: &StoreObject) -> Option<String> {
        let (location, id) = (objects.location(), found.id_text());
        if found.store != self.object.store {
            return Some(format!(
                "{location} has the replicated log {id} already; join that log, or choose an empty \
                 prefix"
            ));
        }
        (*found != self.object).then(|| {
            format!(
                "{location} has the replicated log {id} already, with other constants; they never \
                 change, so leave them out"
            )
        })
    }

    fn finish(&mut self, step: InitStep) -> InitStep {
        self.phase = Phase::Done(step);
        step
    }

    fn list_page(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        after: Option<&str>,
    ) -> SlotResult<InitStep> {
        let page = list(objects, clock, "", after)?.value;
        for object in &page.objects {
            let name = object.name.as_str();
            if name == STORE_OBJECT_NAME {
                // Another node created it since.
                self.phase = Phase::Reading;
                return Ok(InitStep::Again);
            }
            if let Some(refusal) = self.foreign_object(objects, name) {
                return Err(SlotError::Refused(refusal));
            }
        }
        self.phase = match page.next_after {
            Some(after) => Phase::Listing { after: Some(after) },
            None => Phase::Snapshot { is_unknown: false },
        };
        Ok(InitStep::Again)
    }

    /// Returns the reason why a prefix with an object of this name is not for a new log.
    fn foreign_object(&self, objects: &dyn Objects, name: &str) -> Option<String> {
        let location = objects.location();
        if name == self.object.first_snapshot().name().as_str() || name.starts_with(PROBE_PREFIX) {
            return None;
        }
        let id = name.strip_prefix(SNAPSHOT_PREFIX).and_then(|rest| rest.split_once('-'));
        match id.filter(|_| parse_snapshot_name(name) == Some(0)) {
            Some((_, id)) => Some(format!(
                "{location} has the beginning of the replicated log {id}; create the log with that \
                 id, or delete {name}"
            )),
            None => Some(format!("{location} is not empty: it has {name}; choose an empty prefix")),
        }
    }

    fn create_snapshot(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        is_unknown: bool,
    ) -> SlotResult<InitStep> {
        let snapshot = self.object.first_snapshot();
        let (name, bytes) = (snapshot.name(), snapshot.encode());
        self.phase = match create(objects, clock, &name, &bytes, is_unknown)? {
            NamedObject::Open { is_unknown } => Phase::Snapshot { is_unknown },
            NamedObject::Mine => Phase::Store { is_unknown: false },
            NamedObject::Other(_) => {
                return Err(SlotError::Refused(format!(
                    "{} has the beginning of the replicated log {} with other constants; repeat \
                     the creation with those, or delete {name}",
                    objects.location(),
                    self.object.id_text()
                )));
            }
        };
        Ok(InitStep::Again)
    }

    fn create_store(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        is_unknown: bool,
    ) -> SlotResult<InitStep> {
        let (name, bytes) = (StoreObject::name(), self.object.encode());
        match create(objects, clock, &name, &bytes, is_unknown)? {
            NamedObject::Open { is_unknown } => self.phase = Phase::Store { is_unknown },
            NamedObject::Mine => return Ok(self.finish(InitStep::Created)),
            NamedObject::Other(found) => {
                let found = StoreObject::decode_found(objects, &found)?;
                let refusal = self.other_log(objects, &found).unwrap_or_default();
                if found.store == self.object.store {
                    return Err(SlotError::Refused(refusal));
                }
                self.phase = Phase::Removing { refusal };
            }
        }
        Ok(InitStep::Again)
    }
}

/// Creates an object, or reads it after an unknown answer. Missing, the same bytes are sent again,
/// since an earlier request can still take effect.
fn create(
    objects: &dyn Objects,
    clock: &dyn Clock,
    name: &ObjectName,
    bytes: &[u8],
    is_unknown: bool,
) -> SlotResult<NamedObject> {
    if is_unknown {
        let found = read_whole(objects, clock, name, SNAPSHOT_BYTES_MAX)?.value;
        return Ok(match found {
            None => NamedObject::Open { is_unknown: false },
            Some(found) if found == bytes => NamedObject::Mine,
            Some(found) => NamedObject::Other(found),
        });
    }
    Ok(match objects.create(name, bytes)?.value {
        Creation::Created => NamedObject::Mine,
        Creation::Exists | Creation::Unknown(_) => NamedObject::Open { is_unknown: true },
    })
}
