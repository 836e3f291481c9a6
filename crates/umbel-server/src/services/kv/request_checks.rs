//! Checks of key-value requests, made before any part of a request is executed.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message;
use prost::bytes::{Bytes, BytesMut};
use tonic::Status;
use umbel::Keyspace;
use umbel::limits::KEY_BYTES_MAX;
use umbel_base::fail_point;
use umbel_proto::kv::{
    BatchRequest, Condition, DEFAULT_KEYSPACE, Entry, KeyRange, MultiGetRequest, OperationKind,
    ScanRequest,
};

use crate::kv_store::{KvStore, ScanRange, WriteCondition, WriteOperation, WriteRequest};
use crate::limits::{
    APPENDS_BYTES_MAX, EVENT_OVERHEAD_BYTES, KV_BATCH_BYTES_MAX, KV_CONDITIONS_MAX, KV_KEYS_MAX,
    KV_OPERATIONS_MAX, KV_VALUE_BYTES_MAX,
};
use crate::protocol::grpc_status;
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
    found.ok_or_else(|| {
        let shown: String = name.chars().take(grpc_status::PATH_CHARS_MAX).collect();
        Status::not_found(format!(
            "there is no keyspace '{shown}'; CreateKeyspace creates a keyspace, ListKeyspaces \
             lists existing keyspaces"
        ))
    })
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

/// Returns the bytes of a batch's keys and values. Fails if the batch is invalid, whatever the
/// store contains.
fn check_batch(batch: &BatchRequest) -> Result<usize, Status> {
    check_count("operations", batch.operations.len(), KV_OPERATIONS_MAX)?;
    check_count("conditions", batch.conditions.len(), KV_CONDITIONS_MAX)?;
    if batch.operations.is_empty() {
        return Err(Status::invalid_argument("the batch has no operations"));
    }
    let mut bytes = 0;
    for (number, operation) in (0..).zip(&batch.operations) {
        let placed = |status| at_index("operation", number, &status);
        bytes += check_kind(operation.kind.as_ref()).map_err(placed)?;
    }
    for (number, condition) in (0..).zip(&batch.conditions) {
        let placed = |status| at_index("condition", number, &status);
        let value = condition.value.as_deref().unwrap_or_default();
        check_key(&condition.key).and_then(|()| check_value(value)).map_err(placed)?;
        bytes += condition.key.len() + value.len();
    }
    if bytes > KV_BATCH_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the batch has {bytes} bytes of keys and values; the limit is {KV_BATCH_BYTES_MAX}; \
             split the batch"
        )));
    }
    Ok(bytes)
}

fn at_index(what: &str, number: usize, status: &Status) -> Status {
    Status::new(status.code(), format!("{what} {number}: {}", status.message()))
}

fn take_conditions(batch: &mut BatchRequest) -> Vec<Condition> {
    let conditions = &mut batch.conditions;
    fail_point!("kv-skip-first-condition", !conditions.is_empty(), |_| conditions.split_off(1));
    std::mem::take(conditions)
}

/// Builds the write of a batch.
pub fn parse_write(
    kv: &KvStore,
    budget: &Arc<InboundQuota>,
    mut batch: BatchRequest,
) -> Result<WriteRequest, Status> {
    let bytes = check_batch(&batch)?;
    let count = batch.operations.len() + batch.conditions.len();
    let share = reserve_share(budget, bytes + count * EVENT_OVERHEAD_BYTES)?;
    let mut known: HashMap<String, Keyspace> = HashMap::new();
    let mut find = |name: String| match known.get(&name) {
        Some(keyspace) => Ok(keyspace.clone()),
        None => {
            let keyspace = find_keyspace(kv, &name)?;
            known.insert(name, keyspace.clone());
            Ok::<_, Status>(keyspace)
        }
    };
    let mut operations = Vec::with_capacity(batch.operations.len());
    let mut copies = BytesMut::with_capacity(bytes);
    for operation in std::mem::take(&mut batch.operations) {
        let keyspace = find(operation.keyspace)?;
        let kind = operation.kind.map(|kind| copy_operation(kind, &mut copies));
        operations.extend(kind.map(|kind| WriteOperation { keyspace, kind }));
    }
    let mut conditions = Vec::with_capacity(batch.conditions.len());
    for condition in take_conditions(&mut batch) {
        let keyspace = find(condition.keyspace)?;
        conditions.push(WriteCondition { keyspace, key: condition.key, value: condition.value });
    }
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
    if let Ok(batch) = BatchRequest::decode(input)
        && let Ok(bytes) = check_batch(&batch)
    {
        assert!(bytes <= input.len() && batch.operations.iter().all(|o| o.kind.is_some()));
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
    use umbel_proto::kv::{self, Entry};

    use super::*;

    fn put(key: Vec<u8>, value: Vec<u8>) -> kv::Operation {
        let entry = Entry { key: key.into(), value: value.into() };
        kv::Operation { keyspace: String::new(), kind: Some(OperationKind::Put(entry)) }
    }

    fn refused(batch: &BatchRequest) -> String {
        let status = check_batch(batch).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        status.message().to_string()
    }

    fn of(operations: Vec<kv::Operation>) -> BatchRequest {
        BatchRequest { operations, ..BatchRequest::default() }
    }

    #[test]
    fn invalid_batch_is_rejected_with_the_operation_number() {
        let fine = || put(vec![1], vec![2; 3]);
        assert_eq!(check_batch(&of(vec![fine(), fine()])).unwrap(), 8);
        assert!(refused(&of(vec![])).contains("no operations"));
        let message = refused(&of(vec![fine(), put(vec![], vec![])]));
        assert!(message.contains("operation 1: the key is empty"), "{message}");
        assert!(
            refused(&of(vec![kv::Operation::default()])).contains("operation 0: the operation has")
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
            refused(&of(vec![kv::Operation { keyspace: String::new(), kind }]))
        };
        assert!(range(vec![2]).contains("greater than its start"));
        // Story: an empty end, which a scan takes for the last key, was "before its first key".
        assert!(range(vec![]).contains("has no end"));
        let condition = Condition::default();
        let batch = BatchRequest { conditions: vec![condition], ..of(vec![fine()]) };
        assert!(refused(&batch).contains("condition 0: the key is empty"));
    }
}
