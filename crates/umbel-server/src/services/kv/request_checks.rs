//! Checks of key-value requests, made before any part of a request is executed.

use std::collections::HashMap;
use std::sync::Arc;

use prost::bytes::{Buf, Bytes, BytesMut};
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};
use tonic::Status;
use umbel::Keyspace;
use umbel::limits::{KEY_BYTES_MAX, KEYSPACE_NAME_BYTES_MAX};
use umbel_base::fail_point;
use umbel_proto::kv::{
    BatchRequest, Condition, DEFAULT_KEYSPACE, Entry, KeyRange, MultiGetRequest, Operation,
    OperationKind, ScanRequest,
};

use crate::grpc::message_limits::RequestMessage;
use crate::kv_store::{KvStore, ScanRange, WriteCondition, WriteOperation, WriteRequest};
use crate::limits::{
    APPENDS_BYTES_MAX, EVENT_OVERHEAD_BYTES, KV_BATCH_BYTES_MAX, KV_CONDITIONS_MAX, KV_KEYS_MAX,
    KV_OPERATIONS_MAX, KV_VALUE_BYTES_MAX,
};
use crate::protocol::grpc_status;
use crate::protocol::message_reader::{self, MessageReader};
use crate::resources::deferred_drop::{DeferredDrop, PartCount};
use crate::resources::inbound_quota::{InboundQuota, QuotaShare};

/// Name of the keyspace that a request means; an empty name means the default.
pub fn keyspace_name(given: &str) -> &str {
    if given.is_empty() { DEFAULT_KEYSPACE } else { given }
}

/// Finds the keyspace of this name.
pub fn find_keyspace(kv: &KvStore, given: &str) -> Result<Keyspace, Status> {
    let name = keyspace_name(given);
    let found = kv.keyspace(name).map_err(|error| grpc_status::engine_status(&error))?;
    fail_point!("kv-replace-missing-keyspace", found.is_none() && name != DEFAULT_KEYSPACE, |_| {
        find_keyspace(kv, DEFAULT_KEYSPACE)
    });
    found.ok_or_else(|| no_keyspace(name))
}

fn no_keyspace(name: &str) -> Status {
    let shown: String = name.chars().take(grpc_status::PATH_CHARS_MAX).collect();
    Status::not_found(format!(
        "there is no keyspace '{shown}'; CreateKeyspace creates a keyspace, ListKeyspaces lists \
         existing keyspaces"
    ))
}

/// Fails if no keyspace can have this name. A batch keeps the names of its keyspaces twice.
fn check_keyspace_name(name: &str) -> Result<(), Status> {
    if name.len() > KEYSPACE_NAME_BYTES_MAX { Err(no_keyspace(name)) } else { Ok(()) }
}

/// Fails if these bytes cannot be a key.
pub fn check_key(key: &[u8]) -> Result<(), Status> {
    if key.is_empty() {
        return Err(Status::invalid_argument("the key is empty; it must have at least one byte"));
    }
    check_bound("key", key)
}

/// Fails if these bytes cannot be a bound of a range.
pub fn check_bound(what: &str, key: &[u8]) -> Result<(), Status> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the {what} has {} bytes; the limit is {KEY_BYTES_MAX}",
            key.len()
        )));
    }
    Ok(())
}

/// Fails if this key cannot have this value.
pub fn check_put(key: &[u8], value: &[u8]) -> Result<(), Status> {
    check_key(key)?;
    check_value(value)
}

fn check_value(value: &[u8]) -> Result<(), Status> {
    if value.len() > KV_VALUE_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the value has {} bytes; the limit is {KV_VALUE_BYTES_MAX}",
            value.len()
        )));
    }
    Ok(())
}

fn check_range(range: &KeyRange) -> Result<(), Status> {
    check_bound("start of the range", &range.start)?;
    check_bound("end of the range", &range.end)?;
    if range.end.is_empty() {
        return Err(Status::invalid_argument(
            "a range to delete has no end, but needs an end, unlike the range of a scan: name a \
             key after the last key to delete, such as the byte FF, which follows all UTF-8 text",
        ));
    }
    if range.start >= range.end {
        return Err(Status::invalid_argument(
            "a range to delete is empty: its end must be greater than its start",
        ));
    }
    Ok(())
}

fn check_count(what: &str, count: usize, limit: usize) -> Result<(), Status> {
    if count > limit {
        return Err(Status::invalid_argument(format!(
            "there are {count} {what}; the limit is {limit}; split the request"
        )));
    }
    Ok(())
}

/// Fails if these keys exceed the limits of one request.
pub fn check_keys(request: &MultiGetRequest) -> Result<(), Status> {
    check_count("keys", request.keys.len(), KV_KEYS_MAX)?;
    request.keys.iter().try_for_each(|key| check_key(key))
}

/// Range of keys of a scan.
pub fn scan_range(request: &mut ScanRequest) -> Result<ScanRange, Status> {
    check_bound("prefix", &request.prefix)?;
    check_bound("start", &request.start)?;
    check_bound("end", &request.end)?;
    let (start, end) = (std::mem::take(&mut request.start), std::mem::take(&mut request.end));
    Ok(ScanRange::new(scan_prefix(request), start, end))
}

fn scan_prefix(request: &ScanRequest) -> &[u8] {
    fail_point!("kv-scan-ignore-prefix", |_| &[][..]);
    &request.prefix
}

fn kind_bytes(kind: &OperationKind) -> usize {
    match kind {
        OperationKind::Put(entry) => entry.key.len() + entry.value.len(),
        OperationKind::Delete(key) => key.len(),
        OperationKind::DeleteRange(range) => range.start.len() + range.end.len(),
    }
}

/// Returns the bytes of an operation's keys and value. Fails if the operation is invalid.
fn check_kind(kind: Option<&OperationKind>) -> Result<usize, Status> {
    fail_point!("kv-accept-missing-kind", kind.is_none(), |_| Ok(0));
    let nothing =
        || Status::invalid_argument("the operation has neither put, delete nor delete_range");
    let kind = kind.ok_or_else(nothing)?;
    match kind {
        OperationKind::Put(entry) => check_put(&entry.key, &entry.value),
        OperationKind::Delete(key) => check_key(key),
        OperationKind::DeleteRange(range) => check_range(range),
    }?;
    Ok(kind_bytes(kind))
}

/// An atomic write whose operations and conditions are valid, whatever the store contains.
#[derive(Debug, Default)]
pub struct KvBatch {
    /// Names of the keyspaces.
    keyspaces: Vec<String>,
    /// Operations, with the indexes of their keyspaces.
    operations: DeferredDrop<Vec<(u32, OperationKind)>>,
    /// Conditions, with the indexes of their keyspaces.
    conditions: Vec<(u32, Condition)>,
    /// Bytes of all keys and values.
    bytes: usize,
    /// Whether the write is acknowledged only after a sync.
    sync: bool,
}

impl PartCount for Vec<(u32, OperationKind)> {
    fn part_count(&self) -> usize {
        self.len()
    }
}

/// Maximum number of operations and conditions of a batch whose write a worker builds.
const SHORT_BATCH_MAX: usize = 4096;

/// Parts of a batch with the names of their keyspaces.
#[cfg(test)]
type InKeyspaces<T> = Vec<(String, T)>;

/// A batch as a request message, or the reason to refuse it.
#[derive(Debug)]
pub struct BatchMessage(pub Result<KvBatch, Status>);

/// Numbers of the fields of `BatchRequest`.
const OPERATIONS: u32 = 1;
const CONDITIONS: u32 = 2;
const SYNC: u32 = 3;

impl RequestMessage for BatchMessage {
    const MAY_BE_LONG: bool = true;

    /// Reads each operation from the bytes of the message, since a vector of all of them takes up
    /// to a hundred times as much. The first pass checks and counts; the second one copies.
    fn from_bytes(message: Bytes) -> Result<BatchMessage, Status> {
        let mut sizes = BatchSizes::default();
        let checked = read_parts(&message, |part| sizes.check(part))?;
        if let Err(refusal) = checked.and_then(|()| sizes.check_operations()) {
            return Ok(BatchMessage(Err(refusal)));
        }
        let mut batch = KvBatch::with_sizes(&sizes);
        let mut copies = BytesMut::with_capacity(sizes.bytes);
        let mut indexes = HashMap::new();
        let copied = read_parts(&message, |part| {
            batch.add(part, &mut copies, &mut indexes);
            Ok(())
        })?;
        Ok(BatchMessage(copied.map(|()| batch)))
    }

    fn memory_bytes(&self) -> usize {
        let Ok(batch) = &self.0 else { return 0 };
        let operations = batch.operations.capacity() * size_of::<(u32, OperationKind)>();
        let conditions = batch.conditions.capacity() * size_of::<(u32, Condition)>();
        batch.bytes + operations + conditions
    }
}

/// A part of a batch.
enum BatchPart {
    Operation(Operation),
    Condition(Condition),
    Sync(bool),
}

/// Hands each part of a batch to `handle`, until it refuses one. The outer error is about malformed
/// bytes.
fn read_parts(
    message: &Bytes,
    handle: impl FnMut(BatchPart) -> Result<(), Status> + Send + Sync,
) -> Result<Result<(), Status>, Status> {
    let mut reader = BatchReader { handle, outcome: Ok(()) };
    message_reader::read_message(message.clone(), &mut reader)?;
    Ok(reader.outcome)
}

/// Reader of a `BatchRequest`.
struct BatchReader<F> {
    handle: F,
    outcome: Result<(), Status>,
}

impl<F: FnMut(BatchPart) -> Result<(), Status> + Send + Sync> MessageReader for BatchReader<F> {
    fn read_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        bytes: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let part = match tag {
            // The parts of a refused batch are not decoded.
            OPERATIONS | CONDITIONS if self.outcome.is_err() => {
                return message_reader::skip_nested(tag, wire_type, bytes, context);
            }
            OPERATIONS => {
                let mut operation = Operation::default();
                encoding::message::merge(wire_type, &mut operation, bytes, context)?;
                BatchPart::Operation(operation)
            }
            CONDITIONS => {
                let mut condition = Condition::default();
                encoding::message::merge(wire_type, &mut condition, bytes, context)?;
                BatchPart::Condition(condition)
            }
            SYNC => {
                let mut sync = false;
                encoding::bool::merge(wire_type, &mut sync, bytes, context)?;
                BatchPart::Sync(sync)
            }
            _ => return encoding::skip_field(wire_type, tag, bytes, context),
        };
        if self.outcome.is_ok() {
            self.outcome = (self.handle)(part);
        }
        Ok(())
    }
}

/// Numbers and bytes of a batch's parts.
#[derive(Debug, Default)]
struct BatchSizes {
    operations: usize,
    conditions: usize,
    bytes: usize,
}

impl BatchSizes {
    /// Counts a part; fails if it is invalid or exceeds a limit.
    fn check(&mut self, part: BatchPart) -> Result<(), Status> {
        match part {
            BatchPart::Operation(operation) => {
                let number = self.operations;
                self.operations += 1;
                check_count("operations", self.operations, KV_OPERATIONS_MAX)?;
                let placed = |status| at_index("operation", number, &status);
                check_keyspace_name(&operation.keyspace)?;
                self.bytes += check_kind(operation.kind.as_ref()).map_err(placed)?;
            }
            BatchPart::Condition(condition) => {
                let number = self.conditions;
                self.conditions += 1;
                check_count("conditions", self.conditions, KV_CONDITIONS_MAX)?;
                let placed = |status| at_index("condition", number, &status);
                let value = condition.value.as_deref().unwrap_or_default();
                check_keyspace_name(&condition.keyspace)?;
                check_key(&condition.key).and_then(|()| check_value(value)).map_err(placed)?;
                self.bytes += condition.key.len() + value.len();
            }
            BatchPart::Sync(_) => {}
        }
        if self.bytes > KV_BATCH_BYTES_MAX {
            return Err(Status::invalid_argument(format!(
                "the batch has more than {KV_BATCH_BYTES_MAX} bytes of keys and values, which is \
                 the limit; split the batch"
            )));
        }
        Ok(())
    }

    fn check_operations(&self) -> Result<(), Status> {
        if self.operations == 0 {
            return Err(Status::invalid_argument("the batch has no operations"));
        }
        Ok(())
    }
}

impl KvBatch {
    /// Creates a batch of one operation; fails if it is invalid.
    pub fn of_one(keyspace: String, kind: OperationKind, sync: bool) -> Result<KvBatch, Status> {
        let bytes = check_kind(Some(&kind)).map_err(|status| at_index("operation", 0, &status))?;
        let kind = copy_operation(kind, &mut BytesMut::with_capacity(bytes));
        let operations = vec![(0, kind)].into();
        Ok(KvBatch { keyspaces: vec![keyspace], operations, bytes, sync, ..KvBatch::default() })
    }

    /// Whether a thread that may be busy builds the write.
    pub fn is_long(&self) -> bool {
        self.operations.len() + self.conditions.len() > SHORT_BATCH_MAX
    }

    /// The operations and conditions with their keyspaces, and whether to sync.
    #[cfg(test)]
    pub fn parts(&self) -> (InKeyspaces<OperationKind>, InKeyspaces<Condition>, bool) {
        let name = |index: u32| self.keyspaces[index as usize].clone();
        let operations = self.operations.iter().map(|(index, kind)| (name(*index), kind.clone()));
        let conditions = self.conditions.iter().map(|(index, it)| (name(*index), it.clone()));
        (operations.collect(), conditions.collect(), self.sync)
    }

    fn with_sizes(sizes: &BatchSizes) -> KvBatch {
        KvBatch {
            operations: Vec::with_capacity(sizes.operations).into(),
            conditions: Vec::with_capacity(sizes.conditions),
            bytes: sizes.bytes,
            ..KvBatch::default()
        }
    }

    /// Adds a part that was checked.
    fn add(&mut self, part: BatchPart, copies: &mut BytesMut, indexes: &mut HashMap<String, u32>) {
        match part {
            BatchPart::Operation(Operation { keyspace, kind }) => {
                let index = self.keyspace_index(keyspace, indexes);
                let kind = kind.map(|kind| copy_operation(kind, copies));
                self.operations.extend(kind.map(|kind| (index, kind)));
            }
            BatchPart::Condition(mut condition) => {
                let keyspace = std::mem::take(&mut condition.keyspace);
                let index = self.keyspace_index(keyspace, indexes);
                self.conditions.push((index, condition));
            }
            BatchPart::Sync(sync) => self.sync = sync,
        }
    }

    fn keyspace_index(&mut self, name: String, indexes: &mut HashMap<String, u32>) -> u32 {
        // Nearly all batches have one keyspace.
        if self.keyspaces.last() == Some(&name) {
            return self.keyspaces.len() as u32 - 1;
        }
        if let Some(index) = indexes.get(&name) {
            return *index;
        }
        let index = self.keyspaces.len() as u32;
        self.keyspaces.push(name.clone());
        indexes.insert(name, index);
        index
    }
}

fn at_index(what: &str, number: usize, status: &Status) -> Status {
    Status::new(status.code(), format!("{what} {number}: {}", status.message()))
}

fn take_conditions(batch: &mut KvBatch) -> Vec<(u32, Condition)> {
    let conditions = &mut batch.conditions;
    fail_point!("kv-skip-first-condition", !conditions.is_empty(), |_| conditions.split_off(1));
    std::mem::take(conditions)
}

/// Builds the write of a batch.
pub fn parse_write(
    kv: &KvStore,
    budget: &Arc<InboundQuota>,
    mut batch: KvBatch,
) -> Result<WriteRequest, Status> {
    let count = batch.operations.len() + batch.conditions.len();
    let share = reserve_share(budget, batch.bytes + count * EVENT_OVERHEAD_BYTES)?;
    let keyspaces: Result<Vec<Keyspace>, Status> =
        batch.keyspaces.iter().map(|name| find_keyspace(kv, name)).collect();
    let keyspaces = keyspaces?;
    let keyspace = |index: u32| keyspaces[index as usize].clone();
    let conditions = take_conditions(&mut batch).into_iter().map(|(index, condition)| {
        WriteCondition { keyspace: keyspace(index), key: condition.key, value: condition.value }
    });
    let conditions = conditions.collect();
    let operations = batch.operations.into_inner().into_iter();
    let operations =
        operations.map(|(index, kind)| WriteOperation { keyspace: keyspace(index), kind });
    let operations = operations.collect();
    Ok(WriteRequest { operations, conditions, sync: batch.sync, share })
}

/// Copies an operation out of its message, which may be far longer than the memory that counts for
/// the write.
fn copy_operation(kind: OperationKind, copies: &mut BytesMut) -> OperationKind {
    let mut copy = |bytes: Bytes| {
        copies.extend_from_slice(&bytes);
        copies.split().freeze()
    };
    match kind {
        OperationKind::Put(Entry { key, value }) => {
            OperationKind::Put(Entry { key: copy(key), value: copy(value) })
        }
        OperationKind::Delete(key) => OperationKind::Delete(copy(key)),
        OperationKind::DeleteRange(KeyRange { start, end }) => {
            OperationKind::DeleteRange(KeyRange { start: copy(start), end: copy(end) })
        }
    }
}

fn reserve_share(budget: &Arc<InboundQuota>, bytes: usize) -> Result<QuotaShare, Status> {
    let mut share = budget.new_share();
    if share.grow(bytes) {
        return Ok(share);
    }
    Err(Status::resource_exhausted(format!(
        "writes in flight hold {APPENDS_BYTES_MAX} bytes, which is their quota; try again"
    )))
}

/// Decodes any bytes as a batch and as a scan; accepted requests must be within the limits. For
/// fuzzing only.
pub fn check_decoding(input: &[u8]) {
    if let Ok(BatchMessage(Ok(batch))) = BatchMessage::from_bytes(Bytes::copy_from_slice(input)) {
        let decoded = BatchRequest::decode(input).expect("it is a message");
        let operations: Vec<_> = decoded.operations.iter().map(|it| it.kind.as_ref()).collect();
        let read: Vec<_> = batch.operations.iter().map(|(_, kind)| Some(kind)).collect();
        assert!(batch.bytes <= input.len() && read == operations);
        assert_eq!((batch.conditions.len(), batch.sync), (decoded.conditions.len(), decoded.sync));
    }
    if let Ok(mut request) = ScanRequest::decode(input) {
        let prefix = request.prefix.clone();
        if let Ok(range) = scan_range(&mut request) {
            assert!(range.start >= prefix, "it starts at its prefix or after it");
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use umbel_proto::kv::Entry;

    use super::*;

    fn put(key: Vec<u8>, value: Vec<u8>) -> Operation {
        let entry = Entry { key: key.into(), value: value.into() };
        Operation { keyspace: String::new(), kind: Some(OperationKind::Put(entry)) }
    }

    fn read(batch: &BatchRequest) -> Result<KvBatch, Status> {
        BatchMessage::from_bytes(batch.encode_to_vec().into()).unwrap().0
    }

    fn refused(batch: &BatchRequest) -> String {
        let status = read(batch).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        status.message().to_string()
    }

    fn of(operations: Vec<Operation>) -> BatchRequest {
        BatchRequest { operations, ..BatchRequest::default() }
    }

    #[test]
    fn invalid_batch_is_rejected_with_the_operation_number() {
        let fine = || put(vec![1], vec![2; 3]);
        assert_eq!(read(&of(vec![fine(), fine()])).unwrap().bytes, 8);
        assert!(refused(&of(vec![])).contains("no operations"));
        let message = refused(&of(vec![fine(), put(vec![], vec![])]));
        assert!(message.contains("operation 1: the key is empty"), "{message}");
        assert!(
            refused(&of(vec![Operation::default()])).contains("operation 0: the operation has")
        );
        let long = put(vec![0; KEY_BYTES_MAX + 1], vec![]);
        assert!(refused(&of(vec![long])).contains("65537 bytes; the limit is 65536"));
        let large = put(vec![1], vec![0; KV_VALUE_BYTES_MAX + 1]);
        assert!(refused(&of(vec![large])).contains("value has"));
        let together = vec![put(vec![1], vec![0; KV_VALUE_BYTES_MAX]); 3];
        assert!(refused(&of(together)).contains("split the batch"));
        let many = vec![fine(); KV_OPERATIONS_MAX + 1];
        assert!(refused(&of(many)).contains("100001 operations"));
        let range = |end: Vec<u8>| {
            let range = KeyRange { start: vec![2].into(), end: end.into() };
            let kind = Some(OperationKind::DeleteRange(range));
            refused(&of(vec![Operation { keyspace: String::new(), kind }]))
        };
        assert!(range(vec![2]).contains("greater than its start"));
        // Story: an empty end, which a scan takes for the last key, was "before its first key".
        assert!(range(vec![]).contains("has no end"));
        let condition = Condition::default();
        let batch = BatchRequest { conditions: vec![condition], ..of(vec![fine()]) };
        assert!(refused(&batch).contains("condition 0: the key is empty"));
    }
}
