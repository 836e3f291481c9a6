//! What clients ask for: checked before anything is done.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message;
use prost::bytes::{Bytes, BytesMut};
use tonic::Status;
use umbel::Keyspace;
use umbel::limits::KEY_BYTES_MAX;
use umbel_proto::kv::{
    BatchRequest, DEFAULT_KEYSPACE, Entry, KeyRange, MultiGetRequest, OperationKind, ScanRequest,
};

use crate::budget::{Budget, Share};
use crate::failure;
use crate::kv_store::{Condition, KvStore, Operation, Range, Write};
use crate::limits::{
    APPENDS_BYTES_MAX, EVENT_BYTES_BESIDE, KV_BATCH_BYTES_MAX, KV_CONDITIONS_MAX, KV_KEYS_MAX,
    KV_OPERATIONS_MAX, KV_VALUE_BYTES_MAX,
};
use crate::planted::{Bug, planted};

/// The keyspace that is meant by a name.
pub fn name(given: &str) -> &str {
    if given.is_empty() { DEFAULT_KEYSPACE } else { given }
}

/// The keyspace of this name.
pub fn keyspace(kv: &KvStore, given: &str) -> Result<Keyspace, Status> {
    let name = name(given);
    let found = kv.keyspace(name).map_err(|error| failure::of_engine(&error))?;
    if planted(Bug::KeyspaceIsDefault) && found.is_none() && name != DEFAULT_KEYSPACE {
        return keyspace(kv, DEFAULT_KEYSPACE);
    }
    found.ok_or_else(|| {
        let shown: String = name.chars().take(failure::PATH_SHOWN).collect();
        Status::not_found(format!(
            "there is no keyspace '{shown}'; CreateKeyspace makes it, ListKeyspaces names those \
             there are"
        ))
    })
}

/// An error where this can be no key.
pub fn check_key(key: &[u8]) -> Result<(), Status> {
    if key.is_empty() {
        return Err(Status::invalid_argument("the key is empty, but must have a byte at least"));
    }
    check_bound("key", key)
}

/// An error where this can be no beginning or end of keys.
pub fn check_bound(what: &str, key: &[u8]) -> Result<(), Status> {
    if key.len() > KEY_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the {what} has {} bytes, but may have {KEY_BYTES_MAX} at most",
            key.len()
        )));
    }
    Ok(())
}

/// An error where this key cannot have this value.
pub fn check_put(key: &[u8], value: &[u8]) -> Result<(), Status> {
    check_key(key)?;
    check_value(value)
}

fn check_value(value: &[u8]) -> Result<(), Status> {
    if value.len() > KV_VALUE_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the value has {} bytes, but may have {KV_VALUE_BYTES_MAX} at most",
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
            "a range to delete has no end, which stands for no last key here as it does in a scan: \
             name a key behind the last one that is to go, as the byte FF is behind all texts",
        ));
    }
    if range.start >= range.end {
        return Err(Status::invalid_argument(
            "a range to delete ends before its first key: its end must be behind its start",
        ));
    }
    Ok(())
}

fn check_count(what: &str, count: usize, most: usize) -> Result<(), Status> {
    if count > most {
        return Err(Status::invalid_argument(format!(
            "there are {count} {what}, but may be {most} at most; split them"
        )));
    }
    Ok(())
}

/// An error where these cannot be asked for together.
pub fn check_keys(asked: &MultiGetRequest) -> Result<(), Status> {
    check_count("keys", asked.keys.len(), KV_KEYS_MAX)?;
    asked.keys.iter().try_for_each(|key| check_key(key))
}

/// The keys that a scan is of.
pub fn range(asked: &mut ScanRequest) -> Result<Range, Status> {
    check_bound("prefix", &asked.prefix)?;
    check_bound("start", &asked.start)?;
    check_bound("end", &asked.end)?;
    if planted(Bug::PrefixForgotten) {
        asked.prefix.clear();
    }
    let (start, end) = (std::mem::take(&mut asked.start), std::mem::take(&mut asked.end));
    Ok(Range::new(&asked.prefix, start, end))
}

fn kind_bytes(kind: &OperationKind) -> usize {
    match kind {
        OperationKind::Put(entry) => entry.key.len() + entry.value.len(),
        OperationKind::Delete(key) => key.len(),
        OperationKind::DeleteRange(range) => range.start.len() + range.end.len(),
    }
}

fn check_kind(kind: &OperationKind) -> Result<(), Status> {
    match kind {
        OperationKind::Put(entry) => check_put(&entry.key, &entry.value),
        OperationKind::Delete(key) => check_key(key),
        OperationKind::DeleteRange(range) => check_range(range),
    }
}

/// An error where a batch cannot be done, whatever the store holds; else the bytes of its keys and
/// values.
fn check_batch(batch: &BatchRequest) -> Result<usize, Status> {
    check_count("operations", batch.operations.len(), KV_OPERATIONS_MAX)?;
    check_count("conditions", batch.conditions.len(), KV_CONDITIONS_MAX)?;
    if batch.operations.is_empty() {
        return Err(Status::invalid_argument("the batch has no operations"));
    }
    let mut bytes = 0;
    for (number, operation) in (0..).zip(&batch.operations) {
        let placed = |status| at("operation", number, &status);
        if operation.kind.is_none() && planted(Bug::KindUnsaid) {
            continue;
        }
        let nothing = || Status::invalid_argument("it says neither put, delete nor delete_range");
        let kind = operation.kind.as_ref().ok_or_else(nothing).map_err(placed)?;
        check_kind(kind).map_err(placed)?;
        bytes += kind_bytes(kind);
    }
    for (number, condition) in (0..).zip(&batch.conditions) {
        let placed = |status| at("condition", number, &status);
        let value = condition.value.as_deref().unwrap_or_default();
        check_key(&condition.key).and_then(|()| check_value(value)).map_err(placed)?;
        bytes += condition.key.len() + value.len();
    }
    if bytes > KV_BATCH_BYTES_MAX {
        return Err(Status::invalid_argument(format!(
            "the batch has {bytes} bytes of keys and values, but may have {KV_BATCH_BYTES_MAX} at \
             most; split it"
        )));
    }
    Ok(bytes)
}

fn at(what: &str, number: usize, status: &Status) -> Status {
    Status::new(status.code(), format!("{what} {number}: {}", status.message()))
}

/// What a batch writes.
pub fn write(kv: &KvStore, budget: &Arc<Budget>, batch: BatchRequest) -> Result<Write, Status> {
    let bytes = check_batch(&batch)?;
    let count = batch.operations.len() + batch.conditions.len();
    let share = share(budget, bytes + count * EVENT_BYTES_BESIDE)?;
    let mut known: HashMap<String, Keyspace> = HashMap::new();
    let mut find = |name: String| match known.get(&name) {
        Some(keyspace) => Ok(keyspace.clone()),
        None => {
            let keyspace = keyspace(kv, &name)?;
            known.insert(name, keyspace.clone());
            Ok::<_, Status>(keyspace)
        }
    };
    let mut operations = Vec::with_capacity(batch.operations.len());
    let mut copies = BytesMut::with_capacity(bytes);
    for operation in batch.operations {
        let keyspace = find(operation.keyspace)?;
        let kind = operation.kind.map(|kind| copied(kind, &mut copies));
        operations.extend(kind.map(|kind| Operation { keyspace, kind }));
    }
    let mut conditions = Vec::with_capacity(batch.conditions.len());
    let skipped = usize::from(planted(Bug::ConditionSkipped));
    for condition in batch.conditions.into_iter().skip(skipped) {
        let keyspace = find(condition.keyspace)?;
        conditions.push(Condition { keyspace, key: condition.key, value: condition.value });
    }
    Ok(Write { operations, conditions, sync: batch.sync, share })
}

/// The same in the memory that is counted: the message it came in may have been far longer.
fn copied(kind: OperationKind, copies: &mut BytesMut) -> OperationKind {
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

fn share(budget: &Arc<Budget>, bytes: usize) -> Result<Share, Status> {
    let mut share = budget.share();
    if share.grow(bytes) {
        return Ok(share);
    }
    Err(Status::resource_exhausted(format!(
        "writes that have come hold {APPENDS_BYTES_MAX} bytes, which is what they may; try again"
    )))
}

/// Any bytes, read as a batch and as a scan: what is let through must be within the limits. For
/// fuzzing only.
pub fn check(input: &[u8]) {
    if let Ok(batch) = BatchRequest::decode(input)
        && let Ok(bytes) = check_batch(&batch)
    {
        assert!(bytes <= input.len() && batch.operations.iter().all(|o| o.kind.is_some()));
    }
    if let Ok(mut asked) = ScanRequest::decode(input) {
        let prefix = asked.prefix.clone();
        if let Ok(range) = range(&mut asked) {
            assert!(range.start >= prefix, "it begins where its prefix does, or behind");
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
    fn what_no_batch_can_be_is_told_with_its_place() {
        let fine = || put(vec![1], vec![2; 3]);
        assert_eq!(check_batch(&of(vec![fine(), fine()])).unwrap(), 8);
        assert!(refused(&of(vec![])).contains("no operations"));
        let said = refused(&of(vec![fine(), put(vec![], vec![])]));
        assert!(said.contains("operation 1: the key is empty"), "{said}");
        assert!(refused(&of(vec![kv::Operation::default()])).contains("operation 0: it says"));
        let long = put(vec![0; KEY_BYTES_MAX + 1], vec![]);
        assert!(refused(&of(vec![long])).contains("65537 bytes, but may have 65536"));
        let large = put(vec![1], vec![0; KV_VALUE_BYTES_MAX + 1]);
        assert!(refused(&of(vec![large])).contains("value has"));
        let together = vec![put(vec![1], vec![0; KV_VALUE_BYTES_MAX]); 3];
        assert!(refused(&of(together)).contains("split it"));
        let many = vec![fine(); KV_OPERATIONS_MAX + 1];
        assert!(refused(&of(many)).contains("100001 operations"));
        let range = |end: Vec<u8>| {
            let range = KeyRange { start: vec![2].into(), end: end.into() };
            let kind = Some(OperationKind::DeleteRange(range));
            refused(&of(vec![kv::Operation { keyspace: String::new(), kind }]))
        };
        assert!(range(vec![2]).contains("behind its start"));
        // Story: an empty end, which a scan takes for the last key, was "before its first key".
        assert!(range(vec![]).contains("has no end"));
        let condition = kv::Condition::default();
        let batch = BatchRequest { conditions: vec![condition], ..of(vec![fine()]) };
        assert!(refused(&batch).contains("condition 0: the key is empty"));
    }
}
