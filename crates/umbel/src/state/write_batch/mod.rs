//! The operations of a batch, and their bytes in the write-ahead log.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use umbel_base::{BlobPointer, Decoder, Error, Result, SequenceNumber, ValueKind, limits, varint};

use crate::keyspace_core::KeyspaceCore;
use crate::options::Durability;

/// What an operation does. The numbers are stored in the log and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// Deletes a key.
    Delete = 0,
    /// Gives a key a value.
    Put = 1,
    /// Deletes the keys from a first one up to, and without, a second one.
    DeleteRange = 2,
    /// Gives a key a value that lies in a file of its own. 3 and 4 are reserved.
    PutBlob = 5,
}

impl Action {
    fn from_u8(byte: u8) -> Option<Action> {
        match byte {
            0 => Some(Action::Delete),
            1 => Some(Action::Put),
            2 => Some(Action::DeleteRange),
            5 => Some(Action::PutBlob),
            _ => None,
        }
    }

    /// Whether it lets a compaction make room on the disk.
    pub fn makes_room(self) -> bool {
        matches!(self, Action::Delete | Action::DeleteRange)
    }

    /// The kind of the entry it makes; `None` for a range.
    pub fn kind(self) -> Option<ValueKind> {
        match self {
            Action::Delete => Some(ValueKind::Delete),
            Action::Put => Some(ValueKind::Put),
            Action::PutBlob => Some(ValueKind::BlobPointer),
            Action::DeleteRange => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    action: Action,
    keyspace: u32,
    start: usize,
    key_bytes: usize,
    value_bytes: usize,
}

/// What has to hold for a batch to be committed.
#[derive(Debug)]
pub enum Condition {
    /// The key was not written after this sequence number.
    UnchangedSince(SequenceNumber),
    /// The key has no value.
    Absent,
    /// The key has this value.
    Value(Vec<u8>, Compared),
}

/// The long value that was last found to be the one in a condition. To compare, its file is read,
/// which is not done under the commit lock unless others keep putting such values.
pub type Compared = Option<BlobPointer>;

/// What an emptied batch keeps room for at most.
const KEPT_BYTES: usize = 64 << 10;
const KEPT_OPERATIONS: usize = 1024;

/// The operations of a batch. The first bad one is remembered and refused at the commit.
#[derive(Debug, Default)]
pub struct Writes {
    keyspaces: Vec<Arc<KeyspaceCore>>,
    operations: Vec<Operation>,
    bytes: Vec<u8>,
    /// Values that get files of their own, and where in `bytes` the pointers to them stand.
    long_values: Vec<(usize, Vec<u8>)>,
    conditions: Vec<(u32, Vec<u8>, Condition)>,
    markers: Vec<(u32, Vec<u8>)>,
    refused: Option<Error>,
}

/// One operation as it is applied.
#[derive(Debug)]
pub struct Write<'a> {
    /// What it does.
    pub action: Action,
    /// Where.
    pub keyspace: &'a Arc<KeyspaceCore>,
    /// The key, or a range's first key.
    pub key: &'a [u8],
    /// The value, or the key behind a range's last one.
    pub value: &'a [u8],
}

/// An error where a key is over the limit.
fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= limits::KEY_BYTES_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the key has {} bytes, but may have {} at most",
        key.len(),
        limits::KEY_BYTES_MAX
    )))
}

/// An error where a value is over the limit.
fn check_value(value: &[u8]) -> Result<()> {
    if value.len() <= limits::VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the value has {} bytes, but may have {} at most",
        value.len(),
        limits::VALUE_BYTES_MAX
    )))
}

/// An error where an operation is over a limit.
pub fn check_operation(action: Action, key: &[u8], value: &[u8]) -> Result<()> {
    check_key(key)?;
    match action {
        // The other end of the range is a key too.
        Action::DeleteRange => check_key(value),
        Action::Put | Action::Delete | Action::PutBlob => check_value(value),
    }
}

impl Writes {
    fn index_of(&mut self, keyspace: &Arc<KeyspaceCore>) -> u32 {
        // The last one used is nearly always the one meant.
        let found = self.keyspaces.iter().rposition(|known| Arc::ptr_eq(known, keyspace));
        let index = found.unwrap_or_else(|| {
            self.keyspaces.push(Arc::clone(keyspace));
            self.keyspaces.len() - 1
        });
        index as u32
    }

    fn refuse(&mut self, checked: Result<()>) -> bool {
        if let Err(error) = checked {
            self.refused.get_or_insert(error);
            return true;
        }
        false
    }

    /// Adds an operation.
    pub fn push(&mut self, action: Action, keyspace: &Arc<KeyspaceCore>, key: &[u8], value: &[u8]) {
        if self.refuse(check_operation(action, key, value)) {
            return;
        }
        let start = self.bytes.len();
        let keyspace = self.index_of(keyspace);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_bytes, value_bytes) = (key.len(), value.len());
        self.operations.push(Operation { action, keyspace, start, key_bytes, value_bytes });
    }

    /// Adds a put of a value that gets a file of its own.
    pub fn push_long(&mut self, keyspace: &Arc<KeyspaceCore>, key: &[u8], value: &[u8]) {
        if self.refuse(check_operation(Action::Put, key, value)) {
            return;
        }
        self.push(Action::PutBlob, keyspace, key, &[0; BlobPointer::BYTES]);
        self.long_values.push((self.bytes.len() - BlobPointer::BYTES, value.to_vec()));
    }

    /// Whether there are values that get files of their own.
    pub fn has_long_values(&self) -> bool {
        !self.long_values.is_empty()
    }

    /// Has `write` write each value that gets a file of its own and fills in what points at it.
    pub fn place_long_values(
        &mut self,
        mut write: impl FnMut(&[u8]) -> Result<BlobPointer>,
    ) -> Result<()> {
        for (at, value) in &self.long_values {
            let pointer = write(value)?.encode();
            self.bytes[*at..*at + BlobPointer::BYTES].copy_from_slice(&pointer);
        }
        Ok(())
    }

    /// Adds a condition.
    pub fn require(&mut self, keyspace: &Arc<KeyspaceCore>, key: &[u8], condition: Condition) {
        if !self.refuse(check_key(key)) {
            let keyspace = self.index_of(keyspace);
            self.conditions.push((keyspace, key.to_vec(), condition));
        }
    }

    /// Forgets everything, and keeps the room for as many small operations as most batches have.
    pub fn clear(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES || self.operations.capacity() > KEPT_OPERATIONS {
            *self = Writes::default();
            return;
        }
        let Writes { keyspaces, operations, bytes, long_values, conditions, markers, refused } =
            self;
        keyspaces.clear();
        operations.clear();
        bytes.clear();
        long_values.clear();
        conditions.clear();
        markers.clear();
        *refused = None;
    }

    /// Forgets the conditions.
    pub fn clear_conditions(&mut self) {
        self.conditions.clear();
    }

    /// Sets the marker of a keyspace without a log.
    pub fn mark(&mut self, keyspace: &Arc<KeyspaceCore>, marker: &[u8]) {
        if self.refuse(check_marker(keyspace, marker)) {
            return;
        }
        let keyspace = self.index_of(keyspace);
        self.markers.push((keyspace, marker.to_vec()));
    }

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Bytes of keys and values, of values with files of their own those of the pointers.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of keys and values, as they were given.
    pub fn bytes_given(&self) -> usize {
        let given: usize = self.long_values.iter().map(|(_, value)| value.len()).sum();
        self.bytes.len() - self.long_values.len() * BlobPointer::BYTES + given
    }

    /// The keyspaces named.
    pub fn keyspaces(&self) -> &[Arc<KeyspaceCore>] {
        &self.keyspaces
    }

    /// The markers to set.
    pub fn markers(&self) -> impl Iterator<Item = (&Arc<KeyspaceCore>, &[u8])> {
        self.markers.iter().map(|(index, marker)| (&self.keyspaces[*index as usize], &marker[..]))
    }

    /// The conditions to check.
    pub fn conditions(&self) -> impl Iterator<Item = (&Arc<KeyspaceCore>, &[u8], &Condition)> {
        self.conditions
            .iter()
            .map(|(index, key, condition)| (&self.keyspaces[*index as usize], &key[..], condition))
    }

    /// Has `compare` compare the present value of each key that has to have a certain one, and note
    /// which one it was. Ends with the first error.
    pub fn compare_values(
        &mut self,
        mut compare: impl FnMut(&KeyspaceCore, &[u8], &[u8], &mut Compared) -> Result<()>,
    ) -> Result<()> {
        for (keyspace, key, condition) in &mut self.conditions {
            if let Condition::Value(value, compared) = condition {
                compare(&self.keyspaces[*keyspace as usize], key, value, compared)?;
            }
        }
        Ok(())
    }

    /// The operations, those that go to the log first.
    pub fn iter(&self) -> impl Iterator<Item = Write<'_>> {
        let logged = |wanted: bool| {
            let keep = move |w: &Write<'_>| w.keyspace.logs() == wanted;
            self.operations.iter().map(|operation| self.write(operation)).filter(keep)
        };
        logged(true).chain(logged(false))
    }

    fn write(&self, operation: &Operation) -> Write<'_> {
        let middle = operation.start + operation.key_bytes;
        Write {
            action: operation.action,
            keyspace: &self.keyspaces[operation.keyspace as usize],
            key: &self.bytes[operation.start..middle],
            value: &self.bytes[middle..middle + operation.value_bytes],
        }
    }

    /// An error where a keyspace was dropped or, with or without a log as it is now, cannot do what
    /// is asked of it. Certain only under the commit lock.
    pub fn check_keyspaces(&self, durability: Option<Durability>) -> Result<()> {
        for keyspace in &self.keyspaces {
            keyspace.check_not_dropped()?;
        }
        for (keyspace, marker) in self.markers() {
            check_marker(keyspace, marker)?;
        }
        if durability != Some(Durability::Synced) {
            return Ok(());
        }
        match self.keyspaces.iter().find(|keyspace| !keyspace.logs()) {
            None => Ok(()),
            Some(_) => self.check_logged(),
        }
    }

    fn check_logged(&self) -> Result<()> {
        let mut keyspaces = self.operations.iter().map(|o| &self.keyspaces[o.keyspace as usize]);
        match keyspaces.find(|keyspace| !keyspace.logs()) {
            None => Ok(()),
            Some(keyspace) => Err(Error::invalid(format!(
                "keyspace '{}' has no log, so a write to it cannot be synced; commit it Buffered \
                 and flush the keyspace",
                keyspace.name
            ))),
        }
    }

    /// An error where an operation was bad or the batch is over a limit.
    pub fn check(&self, durability: Option<Durability>) -> Result<()> {
        // It stays refused: the batch may be given back and committed again.
        if let Some(error) = &self.refused {
            return Err(error.clone());
        }
        self.check_keyspaces(durability)?;
        if self.bytes.len() > limits::BATCH_BYTES_MAX {
            return Err(Error::invalid(format!(
                "the batch has {} bytes of keys and values, but may have {} at most; split it",
                self.bytes.len(),
                limits::BATCH_BYTES_MAX
            )));
        }
        if self.operations.len() > limits::BATCH_OPERATIONS_MAX {
            return Err(Error::invalid(format!(
                "the batch has {} operations, but may have {} at most; split it",
                self.operations.len(),
                limits::BATCH_OPERATIONS_MAX
            )));
        }
        Ok(())
    }

    /// FORMAT: appends the record of the operations that go to the log (`docs/formats/wal.md`) and
    /// answers with their number; nothing is appended where there are none.
    pub fn encode(&self, out: &mut Vec<u8>) -> u64 {
        let logged = self.iter().take_while(|write| write.keyspace.logs());
        let count = logged.count() as u64;
        if count > 0 {
            varint::put_u64(out, count);
            for write in self.iter().take(count as usize) {
                encode_head(write.action, write.keyspace.id, write.key, write.value.len(), out);
                out.extend_from_slice(write.value);
            }
        }
        count
    }
}

/// An error where `marker` cannot be stored with a flush of `keyspace`.
pub fn check_marker(keyspace: &KeyspaceCore, marker: &[u8]) -> Result<()> {
    if keyspace.logs() {
        return Err(Error::invalid(format!(
            "keyspace '{}' writes to the log, which keeps its place by itself; markers are for \
             keyspaces opened with log: false",
            keyspace.name
        )));
    }
    if marker.len() > limits::MARKER_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the marker has {} bytes, but may have {} at most",
            marker.len(),
            limits::MARKER_BYTES_MAX
        )));
    }
    Ok(())
}

/// FORMAT: appends everything of an operation but its value.
pub fn encode_head(
    action: Action,
    keyspace: u32,
    key: &[u8],
    value_bytes: usize,
    out: &mut Vec<u8>,
) {
    out.push(action as u8);
    varint::put_u64(out, keyspace.into());
    varint::put_bytes(out, key);
    varint::put_u64(out, value_bytes as u64);
}

impl Write<'_> {
    /// What points at its value, where that has a file of its own.
    #[inline]
    pub fn blob(&self) -> Option<BlobPointer> {
        if self.action == Action::PutBlob { BlobPointer::decode(self.value) } else { None }
    }
}

impl Logged<'_> {
    /// What points at its value, where that has a file of its own.
    pub fn blob(&self) -> Option<BlobPointer> {
        if self.action == Action::PutBlob { BlobPointer::decode(self.value) } else { None }
    }
}

/// One operation of a log record.
#[derive(Debug, PartialEq, Eq)]
pub struct Logged<'a> {
    /// What it does.
    pub action: Action,
    /// The keyspace's id.
    pub keyspace: u32,
    /// The key, or a range's first key.
    pub key: &'a [u8],
    /// The value, or the key behind a range's last one.
    pub value: &'a [u8],
}

/// Reads what [`Writes::encode`] wrote; the error says at which byte it is malformed.
pub fn decode(bytes: &[u8]) -> std::result::Result<Vec<Logged<'_>>, usize> {
    let mut decoder = Decoder::new(bytes);
    let count = decoder.varint_usize().ok_or(0usize)?;
    // No operation has fewer bytes, and no record is without one.
    if count == 0 || count > limits::BATCH_OPERATIONS_MAX || count > decoder.remaining() / 4 {
        return Err(0);
    }
    // What is reserved ahead stays below what was read.
    let mut writes = Vec::with_capacity(count.min(bytes.len() / size_of::<Logged<'_>>()));
    for _ in 0..count {
        let at = decoder.position();
        writes.push(decode_one(&mut decoder).ok_or(at)?);
    }
    if decoder.is_done() { Ok(writes) } else { Err(decoder.position()) }
}

fn decode_one<'a>(decoder: &mut Decoder<'a>) -> Option<Logged<'a>> {
    let action = Action::from_u8(decoder.u8()?)?;
    let keyspace = u32::try_from(decoder.varint()?).ok()?;
    let (key, value) = (decoder.bytes()?, decoder.bytes()?);
    let fits = key.len() <= limits::KEY_BYTES_MAX
        && match action {
            Action::Delete => value.is_empty(),
            Action::Put => value.len() <= limits::VALUE_BYTES_MAX,
            Action::DeleteRange => key < value && value.len() <= limits::KEY_BYTES_MAX,
            Action::PutBlob => BlobPointer::decode(value).is_some(),
        };
    fits.then_some(Logged { action, keyspace, key, value })
}

/// A batch that waits for whoever holds the commit lock.
#[derive(Debug)]
pub struct Request {
    /// What to write.
    pub writes: Writes,
    /// How durable it shall be; `None` for the store's default.
    pub durability: Option<Durability>,
    /// What came of it.
    pub outcome: Mutex<Option<Result<Committed>>>,
    /// Whether it was refused only because a long value has to be compared first.
    pub is_to_compare: AtomicBool,
    /// Whether it is not to be refused for that: long values are compared under the commit lock.
    pub compares_locked: bool,
}

impl Request {
    /// One without an outcome.
    pub fn new(writes: Writes, durability: Option<Durability>) -> Request {
        let (outcome, is_to_compare, compares_locked) = Default::default();
        Request { writes, durability, outcome, is_to_compare, compares_locked }
    }
}

/// What a commit came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// The newest sequence number that must be synced for the batch to be durable; 0 where nothing
    /// of it went to the log.
    pub logged_through: SequenceNumber,
}

#[cfg(test)]
#[path = "writes_tests.rs"]
mod tests;
