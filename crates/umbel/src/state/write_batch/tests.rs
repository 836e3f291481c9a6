//! Tests of the payload of WAL records.

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_filter::{HashSecret, KeyHasher};

use super::*;
use crate::options::{KeyspaceOptions, OptionCaps};
use crate::test_support::format_examples;
use crate::version::Version;

/// Pointer to a long value of 1.5 MiB in file 9.
const POINTER: &[u8] = &[
    9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x18, 0, 0, 0, 0, 0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,
    0xa8,
];

fn keyspace(id: u32, log: bool) -> Arc<KeyspaceState> {
    let options = KeyspaceOptions { log, memtable_bytes: 4 << 10, ..KeyspaceOptions::default() };
    let unlimited = u64::MAX;
    let caps = OptionCaps {
        memtable_bytes: unlimited,
        table_bytes: unlimited,
        last_table_bytes: unlimited,
        level_bytes_base: unlimited,
    };
    let keys = KeyHasher::keyed(HashSecret::from_seed([1; 16]));
    Arc::new(KeyspaceState::new(id, format!("k{id}"), options, keys, caps, Version::default()))
}

fn logged(
    action: Action,
    keyspace: u32,
    key: &'static str,
    value: &'static str,
) -> LoggedWrite<'static> {
    LoggedWrite { action, keyspace, key: key.as_bytes(), value: value.as_bytes() }
}

fn encode_logged(writes: &[LoggedWrite<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    varint::put_u64(&mut bytes, writes.len() as u64);
    for write in writes {
        encode_head(write.action, write.keyspace, write.key, write.value.len(), &mut bytes);
        bytes.extend_from_slice(write.value);
    }
    bytes
}

/// Returns the encoding of a batch whose second operation goes to a keyspace without a WAL, and the
/// logged writes.
fn batch() -> (Vec<u8>, Vec<LoggedWrite<'static>>) {
    let (plants, counts, cache) = (keyspace(0, true), keyspace(300, true), keyspace(2, false));
    let mut writes = WriteBatch::default();
    writes.push(Action::Put, &plants, b"basil", b"green");
    writes.push(Action::Put, &cache, b"basil", b"not in the log");
    writes.push(Action::Delete, &counts, b"mint", b"");
    writes.push(Action::DeleteRange, &plants, b"sage", b"thyme");
    writes.push_long_value(&plants, b"yew", b"a value with a file of its own");
    let placed = writes.place_long_values(|value| {
        assert_eq!(value.len(), 30);
        Ok(BlobPointer::decode(POINTER).expect("it is one"))
    });
    placed.unwrap();
    let mut bytes = Vec::new();
    assert_eq!(writes.encode(&mut bytes), 4);
    let expected = vec![
        logged(Action::Put, 0, "basil", "green"),
        logged(Action::Delete, 300, "mint", ""),
        logged(Action::DeleteRange, 0, "sage", "thyme"),
        LoggedWrite { action: Action::PutBlob, keyspace: 0, key: b"yew", value: POINTER },
    ];
    (bytes, expected)
}

#[test]
fn format_document_matches_encoding() {
    let (bytes, expected) = batch();
    assert_eq!(decode(&bytes), Ok(expected));
    format_examples::assert_shows("wal.md", "payload", &bytes);
}

#[test]
fn batch_without_logged_operations_encodes_nothing() {
    let mut writes = WriteBatch::default();
    writes.push(Action::Put, &keyspace(2, false), b"basil", b"green");
    let mut bytes = Vec::new();
    assert_eq!((writes.encode(&mut bytes), bytes.len()), (0, 0));
}

#[test]
fn truncated_or_extended_payload_is_rejected() {
    let (mut bytes, _) = batch();
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    bytes.push(0);
    assert_eq!(decode(&bytes), Err(bytes.len() - 1));
}

#[test]
fn invalid_payloads_are_rejected() {
    let refused = |bytes: &[u8], at: usize| assert_eq!(decode(bytes), Err(at), "{bytes:?}");
    assert!(decode(&[1, 0, 0, 1, b'k', 0]).is_ok());
    refused(&[0], 0);
    assert!(decode(&[&[1, 5, 0, 1, b'k', 24], POINTER].concat()).is_ok());
    refused(&[&[1, 5, 0, 1, b'k', 23], &POINTER[..23]].concat(), 1);
    refused(&[&[1, 5, 0, 1, b'k', 24], &[0; 8][..], &POINTER[8..]].concat(), 1);
    for action in (3..=255).filter(|&action| action != Action::PutBlob as u8) {
        refused(&[1, action, 0, 1, b'k', 0], 1);
    }
    refused(&[1, 0, 0, 1, b'k', 1, b'v'], 1);
    refused(&[1, 2, 0, 1, b'k', 1, b'k'], 1);
    refused(&[1, 0, 0x80, 0, 1, b'k', 0], 1);
    refused(&[1, 0, 0x80, 0x80, 0x80, 0x80, 0x10, 1, b'k', 0], 1);
    refused(&[2, 0, 0, 1, b'k', 0, 1, 0, 1, b'k', 9], 6);
    let long = vec![b'k'; limits::KEY_BYTES_MAX + 1];
    let delete = |key| LoggedWrite { action: Action::Delete, keyspace: 0, key, value: b"" };
    assert!(decode(&encode_logged(&[delete(&long[1..])])).is_ok());
    refused(&encode_logged(&[delete(&long)]), 1);
    let range = LoggedWrite { action: Action::DeleteRange, keyspace: 0, key: b"a", value: &long };
    refused(&encode_logged(&[range]), 1);
}

#[test]
fn excessive_count_is_rejected_before_allocation() {
    for count in [2, 1 << 20, limits::BATCH_OPERATIONS_MAX as u64 + 1, u64::MAX >> 1, u64::MAX] {
        let mut bytes = Vec::new();
        varint::put_u64(&mut bytes, count);
        bytes.extend([1, 0, 1, b'k', 0]);
        assert_eq!(decode(&bytes), Err(0), "{count} operations");
    }
    // Exceeds the limit although the bytes would hold the operations.
    let mut bytes = Vec::new();
    let count = limits::BATCH_OPERATIONS_MAX + 1;
    varint::put_u64(&mut bytes, count as u64);
    bytes.resize(bytes.len() + 4 * count, 0);
    assert_eq!(decode(&bytes), Err(0));
}

fn any_write() -> impl Strategy<Value = (Action, u32, Vec<u8>, Vec<u8>)> {
    use Action::{Delete, DeleteRange, Put, PutBlob};
    let action = prop_oneof![Just(Delete), Just(Put), Just(DeleteRange), Just(PutBlob)];
    let few = vec(any::<u8>(), 0..9);
    (action, any::<u32>(), few.clone(), few).prop_map(|(action, keyspace, key, value)| {
        let value = match action {
            Put => value,
            PutBlob => POINTER.to_vec(),
            Delete => Vec::new(),
            DeleteRange => [&key[..], &value, b"~"].concat(),
        };
        (action, keyspace, key, value)
    })
}

fn as_logged(write: &(Action, u32, Vec<u8>, Vec<u8>)) -> LoggedWrite<'_> {
    let (action, keyspace, key, value) = write;
    LoggedWrite { action: *action, keyspace: *keyspace, key, value }
}

proptest! {
    #[test]
    fn payloads_round_trip(writes in vec(any_write(), 1..9)) {
        let writes: Vec<_> = writes.iter().map(as_logged).collect();
        let bytes = encode_logged(&writes);
        prop_assert_eq!(decode(&bytes), Ok(writes));
    }

    #[test]
    fn changed_bytes_are_rejected_or_canonical(
        at: prop::sample::Index,
        byte: u8,
    ) {
        let (mut bytes, _) = batch();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(writes) = decode(&bytes) {
            prop_assert_eq!(encode_logged(&writes), bytes);
        }
    }

    #[test]
    fn any_bytes_are_rejected_or_canonical(bytes in vec(0u8..8, 0..40)) {
        if let Ok(writes) = decode(&bytes) {
            prop_assert_eq!(encode_logged(&writes), bytes);
        }
    }
}
