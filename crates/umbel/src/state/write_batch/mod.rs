//! The operations of a batch, and their encoding in the WAL.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use umbel_base::{BlobPointer, Decoder, Error, Result, SequenceNumber, ValueKind, limits, varint};

use crate::options::Durability;
use crate::state::keyspace_state::KeyspaceState;

/// Kind of an operation of a batch. The numbers are stored in the WAL and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// Deletes a key.
    Delete = 0,
    /// Sets the value of a key.
    Put = 1,
    /// Deletes the keys from a first key (inclusive) to a second key (exclusive).
    DeleteRange = 2,
    /// Sets a long value of a key. The numbers 3 and 4 are reserved.
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

    /// Whether the operation lets a compaction free disk space.
    pub fn frees_space(self) -> bool {
        matches!(self, Action::Delete | Action::DeleteRange)
    }

    /// The kind of the entry that the operation makes; `None` for a range delete.
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
struct EncodedOperation {
    action: Action,
    keyspace: u32,
    start: usize,
    key_bytes: usize,
    value_bytes: usize,
}

/// Condition under which a batch is committed.
#[derive(Debug)]
pub enum Condition {
    /// The key was not written after this sequence number.
    UnchangedSince(SequenceNumber),
    /// The key has no value.
    Absent,
    /// The key has this value.
    Value(Vec<u8>, ComparedPointer),
}

/// Pointer to the long value that was last found equal to a condition's value. A comparison reads
/// the long value's file, outside the commit lock unless other writers keep replacing the value.
pub type ComparedPointer = Option<BlobPointer>;

/// Maximum capacity that a cleared batch keeps.
const RETAINED_BYTES_MAX: usize = 64 << 10;
const RETAINED_OPERATIONS_MAX: usize = 1024;

/// The operations of a batch. The error of the first invalid operation is kept, and the commit
/// returns it.
#[derive(Debug, Default)]
pub struct WriteBatch {
    keyspaces: Vec<Arc<KeyspaceState>>,
    operations: Vec<EncodedOperation>,
    bytes: Vec<u8>,
    /// Long values, and the offsets in `bytes` of the pointers to them.
    long_values: Vec<(usize, Vec<u8>)>,
    conditions: Vec<(u32, Vec<u8>, Condition)>,
    markers: Vec<(u32, Vec<u8>)>,
    error: Option<Error>,
}

/// An operation of a batch as it is applied.
#[derive(Debug)]
pub struct WriteOperation<'a> {
    /// Kind of the operation.
    pub action: Action,
    /// Keyspace of the operation.
    pub keyspace: &'a Arc<KeyspaceState>,
    /// The key, or a range's first key.
    pub key: &'a [u8],
    /// The value, or the exclusive end of a range.
    pub value: &'a [u8],
}

/// Returns an error if a key exceeds the limit.
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

/// Returns an error if a value exceeds the limit.
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

/// Returns an error if an operation exceeds a limit.
pub fn check_operation(action: Action, key: &[u8], value: &[u8]) -> Result<()> {
    check_key(key)?;
    match action {
        // The other end of the range is a key too.
        Action::DeleteRange => check_key(value),
        Action::Put | Action::Delete | Action::PutBlob => check_value(value),
    }
}

impl WriteBatch {
    fn index_of(&mut self, keyspace: &Arc<KeyspaceState>) -> u32 {
        // The keyspace used last is nearly always used again.
        let found = self.keyspaces.iter().rposition(|known| Arc::ptr_eq(known, keyspace));
        let index = found.unwrap_or_else(|| {
            self.keyspaces.push(Arc::clone(keyspace));
            self.keyspaces.len() - 1
        });
        index as u32
    }

    fn note_error(&mut self, checked: Result<()>) -> bool {
        if let Err(error) = checked {
            self.error.get_or_insert(error);
            return true;
        }
        false
    }

    /// Adds an operation to the batch.
    pub fn push(
        &mut self,
        action: Action,
        keyspace: &Arc<KeyspaceState>,
        key: &[u8],
        value: &[u8],
    ) {
        if self.note_error(check_operation(action, key, value)) {
            return;
        }
        let start = self.bytes.len();
        let keyspace = self.index_of(keyspace);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let (key_bytes, value_bytes) = (key.len(), value.len());
        self.operations.push(EncodedOperation { action, keyspace, start, key_bytes, value_bytes });
    }

    /// Adds a put of a long value to the batch.
    pub fn push_long_value(&mut self, keyspace: &Arc<KeyspaceState>, key: &[u8], value: &[u8]) {
        if self.note_error(check_operation(Action::Put, key, value)) {
            return;
        }
        self.push(Action::PutBlob, keyspace, key, &[0; BlobPointer::BYTES]);
        self.long_values.push((self.bytes.len() - BlobPointer::BYTES, value.to_vec()));
    }

    /// Whether the batch has long values.
    pub fn has_long_values(&self) -> bool {
        !self.long_values.is_empty()
    }

    /// Calls `write` for each long value, and stores the pointer that it returns in the operation.
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

    /// Adds a condition to the batch.
    pub fn require(&mut self, keyspace: &Arc<KeyspaceState>, key: &[u8], condition: Condition) {
        if !self.note_error(check_key(key)) {
            let keyspace = self.index_of(keyspace);
            self.conditions.push((keyspace, key.to_vec(), condition));
        }
    }

    /// Clears the batch, but keeps as much capacity as the small operations of most batches need.
    pub fn clear(&mut self) {
        if self.bytes.capacity() > RETAINED_BYTES_MAX
            || self.operations.capacity() > RETAINED_OPERATIONS_MAX
        {
            *self = WriteBatch::default();
            return;
        }
        let WriteBatch {
            keyspaces,
            operations,
            bytes,
            long_values,
            conditions,
            markers,
            error: refused,
        } = self;
        keyspaces.clear();
        operations.clear();
        bytes.clear();
        long_values.clear();
        conditions.clear();
        markers.clear();
        *refused = None;
    }

    /// Clears the conditions of the batch.
    pub fn clear_conditions(&mut self) {
        self.conditions.clear();
    }

    /// Sets the marker of a keyspace without WAL.
    pub fn set_marker(&mut self, keyspace: &Arc<KeyspaceState>, marker: &[u8]) {
        if self.note_error(check_marker(keyspace, marker)) {
            return;
        }
        let keyspace = self.index_of(keyspace);
        self.markers.push((keyspace, marker.to_vec()));
    }

    /// Number of operations in the batch.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Bytes of keys and values; a long value counts with the bytes of its pointer.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes of keys and values as the caller passed them.
    pub fn bytes_given(&self) -> usize {
        let given: usize = self.long_values.iter().map(|(_, value)| value.len()).sum();
        self.bytes.len() - self.long_values.len() * BlobPointer::BYTES + given
    }

    /// The keyspaces to which the batch's operations, markers and conditions belong.
    pub fn keyspaces(&self) -> &[Arc<KeyspaceState>] {
        &self.keyspaces
    }

    /// The markers that the batch sets.
    pub fn markers(&self) -> impl Iterator<Item = (&Arc<KeyspaceState>, &[u8])> {
        self.markers.iter().map(|(index, marker)| (&self.keyspaces[*index as usize], &marker[..]))
    }

    /// The conditions that the commit checks.
    pub fn conditions(&self) -> impl Iterator<Item = (&Arc<KeyspaceState>, &[u8], &Condition)> {
        self.conditions
            .iter()
            .map(|(index, key, condition)| (&self.keyspaces[*index as usize], &key[..], condition))
    }

    /// Calls `compare` for each condition on a value. `compare` compares the key's present value
    /// and stores the pointer of an equal long value. Ends with the first error.
    pub fn compare_values(
        &mut self,
        mut compare: impl FnMut(&KeyspaceState, &[u8], &[u8], &mut ComparedPointer) -> Result<()>,
    ) -> Result<()> {
        for (keyspace, key, condition) in &mut self.conditions {
            if let Condition::Value(value, compared) = condition {
                compare(&self.keyspaces[*keyspace as usize], key, value, compared)?;
            }
        }
        Ok(())
    }

    /// The operations of the batch, those for the WAL first.
    pub fn iter(&self) -> impl Iterator<Item = WriteOperation<'_>> {
        let logged = |wanted: bool| {
            let keep = move |w: &WriteOperation<'_>| w.keyspace.uses_wal() == wanted;
            self.operations.iter().map(|operation| self.write(operation)).filter(keep)
        };
        logged(true).chain(logged(false))
    }

    /// Whether the batch only deletes, so that a compaction can free disk space.
    pub fn frees_space(&self) -> bool {
        self.iter().all(|write| write.action.frees_space())
    }

    fn write(&self, operation: &EncodedOperation) -> WriteOperation<'_> {
        let middle = operation.start + operation.key_bytes;
        WriteOperation {
            action: operation.action,
            keyspace: &self.keyspaces[operation.keyspace as usize],
            key: &self.bytes[operation.start..middle],
            value: &self.bytes[middle..middle + operation.value_bytes],
        }
    }

    /// Returns an error if a keyspace was dropped, a marker cannot be stored, or `durability` is
    /// `Synced` for a keyspace without a WAL. The result stays valid only under the commit lock.
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
        match self.keyspaces.iter().find(|keyspace| !keyspace.uses_wal()) {
            None => Ok(()),
            Some(_) => self.check_logged(),
        }
    }

    fn check_logged(&self) -> Result<()> {
        let mut keyspaces = self.operations.iter().map(|o| &self.keyspaces[o.keyspace as usize]);
        match keyspaces.find(|keyspace| !keyspace.uses_wal()) {
            None => Ok(()),
            Some(keyspace) => Err(Error::invalid(format!(
                "keyspace '{}' has no log, so a write to it cannot be synced; commit it Buffered \
                 and flush the keyspace",
                keyspace.name
            ))),
        }
    }

    /// Returns an error if an operation is invalid or the batch exceeds a limit.
    pub fn check(&self, durability: Option<Durability>) -> Result<()> {
        // The batch stays rejected: it may be returned and committed again.
        if let Some(error) = &self.error {
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

    /// FORMAT: appends to `out` the record of the operations that go to the WAL
    /// (`docs/formats/wal.md`), and returns the number of these operations. Appends nothing if no
    /// operation goes to the WAL.
    pub fn encode(&self, out: &mut Vec<u8>) -> u64 {
        let logged = self.iter().take_while(|write| write.keyspace.uses_wal());
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

/// Returns an error if `marker` cannot be stored with a flush of `keyspace`.
pub fn check_marker(keyspace: &KeyspaceState, marker: &[u8]) -> Result<()> {
    if keyspace.uses_wal() {
        return Err(Error::invalid(format!(
            "keyspace '{}' writes to the log, which needs no marker; markers are for keyspaces \
             opened with log: false",
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

/// FORMAT: appends an operation to `out`, without its value.
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

impl WriteOperation<'_> {
    /// Pointer to the operation's value if that is a long value.
    #[inline]
    pub fn blob(&self) -> Option<BlobPointer> {
        if self.action == Action::PutBlob { BlobPointer::decode(self.value) } else { None }
    }
}

impl LoggedWrite<'_> {
    /// Pointer to the operation's value if that is a long value.
    pub fn blob(&self) -> Option<BlobPointer> {
        if self.action == Action::PutBlob { BlobPointer::decode(self.value) } else { None }
    }
}

/// An operation of a WAL record.
#[derive(Debug, PartialEq, Eq)]
pub struct LoggedWrite<'a> {
    /// Kind of the operation.
    pub action: Action,
    /// Id of the operation's keyspace.
    pub keyspace: u32,
    /// The key, or a range's first key.
    pub key: &'a [u8],
    /// The value, or the exclusive end of a range.
    pub value: &'a [u8],
}

/// Reads the output of [`WriteBatch::encode`]. The error is the offset at which the bytes are
/// malformed.
pub fn decode(bytes: &[u8]) -> std::result::Result<Vec<LoggedWrite<'_>>, usize> {
    let mut decoder = Decoder::new(bytes);
    let count = decoder.varint_usize().ok_or(0usize)?;
    // No operation has fewer bytes, and no record is empty.
    if count == 0 || count > limits::BATCH_OPERATIONS_MAX || count > decoder.remaining() / 4 {
        return Err(0);
    }
    // The capacity reserved in advance stays below the bytes read.
    let mut writes = Vec::with_capacity(count.min(bytes.len() / size_of::<LoggedWrite<'_>>()));
    for _ in 0..count {
        let at = decoder.position();
        writes.push(decode_one(&mut decoder).ok_or(at)?);
    }
    if decoder.is_done() { Ok(writes) } else { Err(decoder.position()) }
}

fn decode_one<'a>(decoder: &mut Decoder<'a>) -> Option<LoggedWrite<'a>> {
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
    fits.then_some(LoggedWrite { action, keyspace, key, value })
}

/// A batch that waits for the holder of the commit lock.
#[derive(Debug)]
pub struct CommitRequest {
    /// The batch to commit.
    pub writes: WriteBatch,
    /// Durability of the batch; `None` for the store's default.
    pub durability: Option<Durability>,
    /// Result of the commit; `None` until it is done.
    pub outcome: Mutex<Option<Result<CommitOutcome>>>,
    /// Whether the commit failed only because a long value must be compared first.
    pub needs_compare: AtomicBool,
    /// Whether long values are compared under the commit lock, so that the commit does not fail for
    /// lack of a comparison.
    pub compares_under_lock: bool,
}

impl CommitRequest {
    /// Creates a request without an outcome.
    pub fn new(writes: WriteBatch, durability: Option<Durability>) -> CommitRequest {
        let (outcome, is_to_compare, compares_locked) = Default::default();
        CommitRequest {
            writes,
            durability,
            outcome,
            needs_compare: is_to_compare,
            compares_under_lock: compares_locked,
        }
    }
}

/// Result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitOutcome {
    /// The newest sequence number that must be synced to make the batch durable; 0 if no operation
    /// went to the WAL.
    pub logged_through: SequenceNumber,
}

#[cfg(test)]
mod tests;
