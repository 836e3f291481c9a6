//! [`ExploredObjects`]: the objects of an explored node, which slots name. Leaders upload files of
//! a log, and snapshots. Followers need the files that slots and snapshots name.

use std::collections::BTreeSet;

use umbel_base::checksum::checksum;
use umbel_env::{ObjectName, ObjectResult, Objects};
use umbel_slots::{
    ChainEnd, LogId, NamedObject, ObjectContent, ObjectState, ObjectTable, Slot, SlotEntry,
    SlotIds, SlotSnapshot,
};

use super::explored_store::{ExploredStore, SnapshotId, StoreState};

/// The log whose files are objects.
const LOG: LogId = LogId { kind: 1, id: 1 };
/// Slots that a broken upload lets pass after its object.
const EARLY_SLOTS: u8 = 3;

/// Part of C15 or C16 that a node breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ObjectFault {
    #[default]
    None,
    /// An upload sends its object before a slot has its entry.
    SendsBeforeEntry,
    /// A collection deletes without a slot that it began after the lists.
    WaitsForNoSlot,
    /// A collection takes the table of a restarted node for a complete one.
    ForgetsReplaced,
    /// A collection counts snapshots that no slot names.
    CountsUnnamed,
    /// A collection counts one snapshot as two.
    CountsOneTwice,
}

impl ObjectFault {
    /// All faults.
    pub const ALL: [ObjectFault; 5] = [
        ObjectFault::SendsBeforeEntry,
        ObjectFault::WaitsForNoSlot,
        ObjectFault::ForgetsReplaced,
        ObjectFault::CountsUnnamed,
        ObjectFault::CountsOneTwice,
    ];
}

/// Progress of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Stage {
    /// The next slot begins it.
    Wanted,
    /// Broken: the object is sent, and this many slots were created since.
    Early(u8, SlotEntry),
    /// A slot that begins it is acknowledged.
    Begun,
    /// The object exists. The next slot has this entry.
    Stored(SlotEntry),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Upload {
    uid: [u8; 16],
    is_snapshot: bool,
    stage: Stage,
}

/// The objects of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ExploredObjects {
    pub fault: ObjectFault,
    table: ObjectTable,
    /// Names of the files that are on its disk.
    files: BTreeSet<String>,
    upload: Option<Upload>,
}

impl ExploredObjects {
    fn has(&self, fault: ObjectFault) -> bool {
        self.fault == fault
    }

    /// The process begins again with the state after this slot.
    pub fn restart(&mut self, end: ChainEnd, state: ObjectState) {
        self.table = ObjectTable::new(end.number, end, state);
    }

    /// Whether the table ends with the slot of this number.
    pub fn is_at(&self, number: u64) -> bool {
        self.table.end().number == number
    }

    /// The upload ends, since the node leads no more.
    pub fn give_up(&mut self) {
        self.upload = None;
    }

    pub fn lose_disk(&mut self) {
        self.files.clear();
    }

    pub fn table_mut(&mut self) -> &mut ObjectTable {
        &mut self.table
    }

    /// Objects of the state that are not on the disk.
    pub fn missing(&self) -> Vec<NamedObject> {
        let objects = self.table.state().objects.iter();
        objects.filter(|it| !self.files.contains(it.name.as_str())).cloned().collect()
    }

    /// A part of an object was read, which is the whole of it.
    pub fn read(&mut self, object: &NamedObject, bytes: &[u8]) -> Result<(), String> {
        if !object.has_bytes(&[bytes]) {
            return Err(format!("{} has other bytes", object.name));
        }
        self.files.insert(object.name.as_str().to_owned());
        Ok(())
    }

    /// Applies a slot of the leader.
    pub fn apply(&mut self, slot: &Slot) -> Result<(), String> {
        self.table.apply(slot)?;
        let needed = slot.entries.iter().filter_map(NamedObject::of);
        let mut missing = needed.filter(|it| !self.files.contains(it.name.as_str()));
        match missing.next() {
            Some(object) => Err(format!("slot {} without {}", slot.number, object.name)),
            None => Ok(()),
        }
    }

    /// A slot of this leader is in the chain.
    pub fn slot_created(&mut self, slot: &Slot) -> Result<(), String> {
        self.table.apply(slot)?;
        let files = slot.entries.iter().filter_map(NamedObject::of);
        self.files.extend(files.map(|it| it.name.as_str().to_owned()));
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let begins = SlotEntry::UploadBegins { uid: upload.uid };
        match &mut upload.stage {
            Stage::Wanted if slot.entries.contains(&begins) => upload.stage = Stage::Begun,
            Stage::Early(_, entry) if slot.entries.contains(&begins) => {
                upload.stage = Stage::Stored(entry.clone());
            }
            Stage::Early(slots, _) => *slots += 1,
            Stage::Stored(entry) if slot.entries.contains(entry) => self.upload = None,
            _ => {}
        }
        Ok(())
    }

    /// The table that a collection gets, with the fault of the node.
    pub fn collected_table(&self, store: &ExploredStore) -> ObjectTable {
        let (end, mut state) = (self.table.end(), self.table.state().clone());
        match self.fault {
            ObjectFault::ForgetsReplaced => ObjectTable::new(0, end, state),
            ObjectFault::CountsUnnamed => {
                let names = store.names().into_iter();
                state.snapshots.extend(names.filter_map(|name| snapshot_id(&name)));
                ObjectTable::new(end.number, end, state)
            }
            ObjectFault::CountsOneTwice => {
                state.snapshots.extend(self.twin().map(|twin| twin.1));
                ObjectTable::new(end.number, end, state)
            }
            _ => self.table.clone(),
        }
    }

    /// The newest named snapshot, and a name under which a broken collection finds it again.
    pub fn twin(&self) -> Option<(SnapshotId, SnapshotId)> {
        let (number, uid) = *self.table.state().snapshots.last()?;
        let is_broken = self.has(ObjectFault::CountsOneTwice);
        is_broken.then_some(((number, uid), (number, [0xff; 16])))
    }

    /// The table after two slots that were never created.
    pub fn after_two_slots(table: &ObjectTable, store: [u8; 16]) -> ObjectTable {
        let mut later = table.clone();
        for uid in [[0xfe; 16], [0xff; 16]] {
            let ChainEnd { number, uid: previous, epoch, .. } = later.end();
            let (ids, node) = (SlotIds { store, uid }, String::new());
            let entries = vec![SlotEntry::Nothing];
            let number = number + 1;
            let slot = Slot { ids, number, epoch, previous, node, wall_micros: 0, entries };
            later.apply(&slot).expect("it follows");
        }
        later
    }

    pub fn is_uploading(&self) -> bool {
        self.upload.is_some()
    }

    /// The leader wants to upload a snapshot or a file.
    pub fn want(&mut self, uid: [u8; 16], is_snapshot: bool) {
        self.upload = Some(Upload { uid, is_snapshot, stage: Stage::Wanted });
    }

    /// Whether the object of the upload can be sent.
    pub fn can_send(&self) -> bool {
        self.upload.as_ref().is_some_and(|upload| match upload.stage {
            Stage::Wanted => self.has(ObjectFault::SendsBeforeEntry),
            Stage::Begun => true,
            Stage::Early(..) | Stage::Stored(_) => false,
        })
    }

    /// Sends the object of the upload. `snapshot` is the one that it uploads, if it does so. An
    /// upload that is not confirmed is given up; it can still take effect.
    pub fn send(&mut self, store: &dyn Objects, snapshot: impl FnOnce([u8; 16]) -> SlotSnapshot) {
        let Some(upload) = &mut self.upload else { return };
        let (sent, entry) = match upload.is_snapshot {
            true => send_snapshot(store, &snapshot(upload.uid)),
            false => send_file(store, upload.uid),
        };
        match sent {
            Ok(_) if upload.stage == Stage::Wanted => upload.stage = Stage::Early(0, entry),
            Ok(_) => upload.stage = Stage::Stored(entry),
            Err(_) => self.upload = None,
        }
    }

    /// Entry of the upload in the leader's next slot.
    pub fn next_entry(&self) -> Option<SlotEntry> {
        self.upload.as_ref().and_then(|upload| match &upload.stage {
            Stage::Early(slots, _) if *slots < EARLY_SLOTS => None,
            Stage::Wanted | Stage::Early(..) => Some(SlotEntry::UploadBegins { uid: upload.uid }),
            Stage::Begun => None,
            Stage::Stored(entry) => Some(entry.clone()),
        })
    }
}

/// The table of a leader after this many slots, which name all snapshots of the store.
pub fn naming_all(store: &StoreState, number: u64) -> ObjectTable {
    let snapshots = store.objects.keys().filter_map(|name| snapshot_id(name)).collect();
    let state = ObjectState { snapshots, ..ObjectState::default() };
    ObjectTable::new(number, ChainEnd { number, ..ChainEnd::default() }, state)
}

/// Number and uid of the snapshot with this name; `None` for the first one and other names.
pub fn snapshot_id(name: &str) -> Option<SnapshotId> {
    let (number, uid) = name.strip_prefix("snapshots/")?.split_once('-')?;
    let number = number.parse().ok().filter(|number| *number > 0)?;
    Some((number, u128::from_str_radix(uid, 16).ok()?.to_be_bytes()))
}

fn send_snapshot(store: &dyn Objects, snapshot: &SlotSnapshot) -> (ObjectResult<()>, SlotEntry) {
    let (number, uid) = (snapshot.chain.end.number, snapshot.ids.uid);
    let sent = store.put(&snapshot.name(), &snapshot.encode());
    (sent, SlotEntry::Snapshot { number, uid })
}

/// A file whose content is its uid. It replaces the earlier ones, or adds to them.
fn send_file(store: &dyn Objects, uid: [u8; 16]) -> (ObjectResult<()>, SlotEntry) {
    let (number, replaces) = (u64::from(uid[1]), uid[1].is_multiple_of(3));
    let text = format!("chunks/1-{:032x}", u128::from_be_bytes(uid));
    let name = ObjectName::new(text).expect("digits are a name");
    let sent = store.put(&name, &uid.to_vec());
    let (content, offset) = match replaces {
        false => (
            ObjectContent::Replacement {
                version: number + 1,
                source_version: number,
                first_event: 0,
                last_event: 0,
            },
            0,
        ),
        true => (ObjectContent::Records { from: number }, number),
    };
    let checksum = checksum(LOG.id, offset, &uid);
    (sent, SlotEntry::Object { log: LOG, name, bytes: uid.len() as u64, checksum, content })
}
