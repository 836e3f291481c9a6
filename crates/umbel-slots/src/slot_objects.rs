//! [`ObjectTable`]: the objects, snapshots and uploads that the slots name.
//!
//! The name of each such object ends with `-` and the uid of its upload.
//! [`SlotEntry::UploadBegins`] states the uid before the first object of the upload is sent.
//!
//! INVARIANT (C16): an upload ends with the slot that names its objects, or with its epoch. A slot
//! names only objects of an upload that runs. So what no slot names, and whose upload does not run,
//! is never named later: it can be deleted at any time, also by a leader that leads no more.
//!
//! INVARIANT (C16): an object that another one replaced stays until a floor is at or after the slot
//! that replaced it. Nodes that begin from the snapshot at the floor, or from a later one, need
//! what these snapshots and the slots after the floor name.

use std::collections::{BTreeMap, BTreeSet};

use umbel_base::checksum::checksum_parts;
use umbel_env::ObjectName;

use crate::chain::ChainEnd;
use crate::slot_entry::{LogId, ObjectContent, SlotEntry};
use crate::slot_format::Slot;
use crate::slot_snapshot::snapshot_name;

/// Maximum number of named snapshots in a table. Older ones count for nothing.
const SNAPSHOTS_MAX: usize = 4096;

/// An object that an entry of a slot names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedObject {
    /// The log whose bytes it has.
    pub log: LogId,
    /// Name of the object.
    pub name: ObjectName,
    /// Number of its bytes.
    pub bytes: u64,
    /// Checksum of its bytes.
    pub checksum: u64,
    /// Meaning of its bytes.
    pub content: ObjectContent,
}

impl NamedObject {
    /// The object that the entry names.
    pub fn of(entry: &SlotEntry) -> Option<NamedObject> {
        let SlotEntry::Object { log, name, bytes, checksum, content } = entry else { return None };
        let (log, bytes, checksum, content) = (*log, *bytes, *checksum, *content);
        Some(NamedObject { log, name: name.clone(), bytes, checksum, content })
    }

    /// Whether the parts together have its checksum.
    pub fn has_bytes(&self, parts: &[&[u8]]) -> bool {
        let offset = match self.content {
            ObjectContent::Replacement { .. } => 0,
            ObjectContent::Records { from } => from,
        };
        checksum_parts(self.log.id, offset, parts) == self.checksum
    }
}

/// Uid of the upload of an object with this name; `None` if the name has none.
fn upload_of(name: &str) -> Option<[u8; 16]> {
    let (_, uid) = name.rsplit_once('-')?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_uid = uid.len() == 32 && uid.bytes().all(is_hex);
    u128::from_str_radix(uid, 16).ok().filter(|_| is_uid).map(u128::to_be_bytes)
}

/// Objects, snapshots and uploads after a slot: a function of the slots up to it. The state in a
/// snapshot contains it, in the format of the layer above.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ObjectState {
    /// Objects that no other one replaced, in the order of their entries.
    pub objects: Vec<NamedObject>,
    /// Numbers and uids of the named snapshots.
    pub snapshots: BTreeSet<(u64, [u8; 16])>,
    /// Uids of the uploads that run.
    pub uploads: BTreeSet<[u8; 16]>,
}

/// The objects, snapshots and uploads that the slots name, up to the last slot that a node knows.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ObjectTable {
    end: ChainEnd,
    state: ObjectState,
    /// Replaced objects, with the slots that replaced them.
    replaced: BTreeMap<String, u64>,
    /// The table has each object that was replaced after the slot of this number.
    since: u64,
}

impl ObjectTable {
    /// The table of a node with this state after the last slot. REQUIRES: no slot after `since`
    /// replaced an object; a node that does not know it passes the number of the last slot.
    pub fn new(since: u64, end: ChainEnd, state: ObjectState) -> ObjectTable {
        ObjectTable { end, state, replaced: BTreeMap::new(), since }
    }

    /// The last slot in the table.
    pub fn end(&self) -> ChainEnd {
        self.end
    }

    /// Objects that the slots name, for a snapshot.
    pub fn state(&self) -> &ObjectState {
        &self.state
    }

    /// Adds the next slot of the chain.
    ///
    /// # Errors
    /// The reason why the slot does not follow, or names what it must not. It changes nothing then.
    pub fn apply(&mut self, slot: &Slot) -> Result<(), String> {
        let end = self.end.followed_by(slot)?;
        self.check(&slot.entries)?;
        if slot.begins_epoch() {
            self.state.uploads.clear();
        }
        for entry in &slot.entries {
            self.add(slot.number, entry);
        }
        while self.state.snapshots.len() > SNAPSHOTS_MAX {
            self.state.snapshots.pop_first();
        }
        self.end = end;
        Ok(())
    }

    fn add(&mut self, number: u64, entry: &SlotEntry) {
        let ObjectState { objects, snapshots, uploads } = &mut self.state;
        match entry {
            SlotEntry::UploadBegins { uid } => {
                uploads.insert(*uid);
            }
            SlotEntry::Snapshot { number, uid } => {
                snapshots.insert((*number, *uid));
                uploads.remove(uid);
            }
            _ => {}
        }
        let Some(object) = NamedObject::of(entry) else { return };
        if let Some(uid) = upload_of(object.name.as_str()) {
            uploads.remove(&uid);
        }
        if let ObjectContent::Replacement { .. } = object.content {
            let replaced = objects.extract_if(.., |earlier| earlier.log == object.log);
            self.replaced.extend(replaced.map(|it| (it.name.as_str().to_owned(), number)));
        }
        objects.push(object);
    }

    /// Returns the reason why the next slot must not have these entries.
    pub fn check(&self, entries: &[SlotEntry]) -> Result<(), String> {
        let begins_epoch = matches!(entries.first(), Some(SlotEntry::EpochBegins { .. }));
        let runs = |uid: &[u8; 16]| !begins_epoch && self.state.uploads.contains(uid);
        let mut names = BTreeSet::new();
        for entry in entries {
            let (name, uid) = match entry {
                SlotEntry::UploadBegins { uid } if runs(uid) => {
                    return Err("it begins an upload that runs".into());
                }
                SlotEntry::Snapshot { number, .. } if *number > self.end.number => {
                    return Err(format!("it names a snapshot of slot {number}, which is later"));
                }
                SlotEntry::Snapshot { number, uid } => (snapshot_name(*number, uid), Some(*uid)),
                SlotEntry::Object { name, .. } => (name.clone(), upload_of(name.as_str())),
                _ => continue,
            };
            if !uid.is_some_and(|uid| runs(&uid)) {
                return Err(format!("it names {name}, and no upload of it runs"));
            }
            if !names.insert(name.clone()) {
                return Err(format!("it names {name} twice"));
            }
        }
        Ok(())
    }

    /// Whether no node needs the object, and no slot can name it later. It is no snapshot. The
    /// snapshot at the slot `floor`, or a later one, is the earliest from which a node begins.
    pub(crate) fn is_unneeded(&self, name: &str, floor: u64) -> bool {
        let Some(uid) = upload_of(name) else { return false };
        if self.state.uploads.contains(&uid) {
            return false;
        }
        if let Some(replaced) = self.replaced.get(name) {
            return *replaced <= floor;
        }
        let is_named = self.state.objects.iter().any(|object| object.name.as_str() == name);
        !is_named && self.since <= floor
    }

    /// Forgets the objects that were replaced up to the slot of the newest floor.
    pub fn forget(&mut self, floor: u64) {
        self.replaced.retain(|_, number| *number > floor);
        self.since = self.since.max(floor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot_format::SlotIds;

    const LOG: LogId = LogId { kind: 1, id: 5 };

    fn name(uid: u8) -> ObjectName {
        let uid = u128::from_be_bytes([uid; 16]);
        ObjectName::new(format!("chunks/5-{uid:032x}")).expect("a name")
    }

    fn object(uid: u8, content: ObjectContent) -> SlotEntry {
        SlotEntry::Object { log: LOG, name: name(uid), bytes: 4, checksum: 0, content }
    }

    fn file(uid: u8) -> SlotEntry {
        let (version, source_version) = (u64::from(uid), 0);
        let (first_event, last_event) = (0, 0);
        object(uid, ObjectContent::Replacement { version, source_version, first_event, last_event })
    }

    fn begins() -> SlotEntry {
        SlotEntry::EpochBegins { host: "h".into(), port: 1 }
    }

    fn upload(uid: u8) -> SlotEntry {
        SlotEntry::UploadBegins { uid: [uid; 16] }
    }

    fn snapshot(number: u64, uid: u8) -> SlotEntry {
        SlotEntry::Snapshot { number, uid: [uid; 16] }
    }

    fn add(table: &mut ObjectTable, entries: Vec<SlotEntry>) -> Result<(), String> {
        let end = table.end();
        let ids = SlotIds { store: [7; 16], uid: [end.number as u8 + 1; 16] };
        let (number, node) = (end.number + 1, "a".to_owned());
        let mut slot =
            Slot { ids, number, epoch: 0, previous: end.uid, node, wall_micros: 0, entries };
        slot.epoch = end.epoch + u64::from(slot.begins_epoch());
        table.apply(&slot)
    }

    /// A table of these slots, the first of which begins an epoch.
    fn table(slots: Vec<Vec<SlotEntry>>) -> ObjectTable {
        let mut table = ObjectTable::default();
        add(&mut table, vec![begins()]).expect("the first slot");
        for entries in slots {
            add(&mut table, entries).expect("a slot");
        }
        table
    }

    #[test]
    fn only_objects_of_running_uploads_are_named() {
        let running = table(vec![vec![upload(1), upload(2)], vec![file(1)]]);
        for (entries, is_valid) in [
            (vec![file(2)], true),
            (vec![snapshot(3, 2)], true),
            (vec![snapshot(4, 2)], false),
            (vec![file(1)], false),
            (vec![file(3)], false),
            (vec![upload(3), file(3)], false),
            (vec![begins(), file(2)], false),
            (vec![begins(), upload(2)], true),
            (vec![upload(2)], false),
            (vec![file(2), file(2)], false),
        ] {
            let mut next = running.clone();
            let added = add(&mut next, entries.clone());
            assert_eq!(added.is_ok(), is_valid, "{entries:?}: {added:?}");
            assert!(is_valid || next == running, "nothing changed");
        }
    }

    #[test]
    fn replaced_objects_stay_until_a_floor_is_after_them() {
        let records = object(1, ObjectContent::Records { from: 64 });
        let slots = vec![vec![upload(1)], vec![records, upload(2)], vec![file(2), upload(3)]];
        let mut it = table([slots, vec![vec![file(3)]]].concat());
        let unneeded = |it: &ObjectTable, uid: u8, floor| it.is_unneeded(name(uid).as_str(), floor);
        for (uid, floor, is_unneeded) in
            [(1, 3, false), (1, 4, true), (2, 4, false), (2, 5, true), (3, 9, false), (4, 0, true)]
        {
            assert_eq!(unneeded(&it, uid, floor), is_unneeded, "{uid} with floor {floor}");
        }
        it.forget(4);
        for (uid, floor, is_unneeded) in
            [(1, 3, false), (1, 4, true), (2, 4, false), (2, 5, true), (4, 3, false)]
        {
            assert_eq!(unneeded(&it, uid, floor), is_unneeded, "{uid} with floor {floor}");
        }
    }

    #[test]
    fn uploads_run_until_they_are_named_or_their_epoch_ends() {
        let mut it = table(vec![vec![upload(1)]]);
        assert!(!it.is_unneeded(name(1).as_str(), 9));
        assert!(!it.is_unneeded("chunks/without-a-uid", 9));
        add(&mut it, vec![begins()]).expect("the next epoch");
        assert!(it.is_unneeded(name(1).as_str(), 9));
    }

    #[test]
    fn snapshots_count_once_a_slot_names_them() {
        let mut it = table(vec![vec![upload(1), upload(2)], vec![snapshot(1, 1)]]);
        let counted = |it: &ObjectTable| it.state().snapshots.iter().copied().collect::<Vec<_>>();
        assert_eq!(counted(&it), [(1, [1; 16])]);
        add(&mut it, vec![snapshot(3, 2)]).expect("a slot");
        assert_eq!(counted(&it), [(1, [1; 16]), (3, [2; 16])]);
        assert!(it.state().uploads.is_empty());
    }
}
