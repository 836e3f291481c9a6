//! Checks that the messages of the key-value service have the fields of its definition.

use std::collections::BTreeMap;
use std::fmt::Debug;

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};
use prost_types::field_descriptor_proto::Type;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use umbel_proto::DESCRIPTORS;
use umbel_proto::kv::*;

use super::wire_reader::check_golden;

fn file() -> FileDescriptorProto {
    let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    set.file.into_iter().find(|file| file.package() == PACKAGE).unwrap()
}

#[test]
fn service_name_matches_the_paths() {
    let file = file();
    let service = &file.service[0];
    assert_eq!(format!("{}.{}", file.package(), service.name()), SERVICE);
    let streams = service.method.iter().filter(|method| method.server_streaming());
    let streams: Vec<&str> = streams.map(|method| method.name()).collect();
    assert_eq!(streams, ["Scan", "Watch"]);
    assert!(service.method.iter().all(|method| !method.client_streaming()));
}

/// The fields of a message by their numbers, with the encoding of each field.
type Fields = BTreeMap<u32, WireType>;

fn of_bytes(mut bytes: &[u8], fields: &mut Fields) {
    while !bytes.is_empty() {
        let (number, wire_type) = decode_key(&mut bytes).unwrap();
        skip_field(wire_type, number, &mut bytes, DecodeContext::default()).unwrap();
        fields.insert(number, wire_type);
    }
}

/// Encoded fields of each message, from values that together set all fields.
struct MessageFields(BTreeMap<&'static str, Fields>);

impl MessageFields {
    fn record<M: Message + Default + PartialEq + Debug>(
        &mut self,
        name: &'static str,
        values: &[M],
    ) {
        let mut fields = Fields::new();
        for value in values {
            let bytes = value.encode_to_vec();
            assert_eq!(M::decode(&bytes[..]).as_ref(), Ok(value));
            check_golden::<M>(&bytes);
            of_bytes(&bytes, &mut fields);
        }
        assert!(self.0.insert(name, fields).is_none(), "{name} is recorded twice");
    }
}

/// Records the messages of a watch.
fn watches(recorded: &mut MessageFields) {
    let bytes = || b"a".to_vec().into();
    let entry = || Entry { key: bytes(), value: bytes() };
    let range = || KeyRange { start: bytes(), end: bytes() };
    let change = |kind| Change { kind: Some(kind) };
    let response = |event| WatchResponse { event: Some(event) };
    let watch = WatchRequest {
        keyspace: "k".to_string(),
        prefix: b"a".to_vec(),
        with_entries: true,
        keys_only: true,
    };
    recorded.record("WatchRequest", &[watch]);
    let changes = [
        change(ChangeKind::Put(entry())),
        change(ChangeKind::Delete(bytes())),
        change(ChangeKind::DeleteRange(range())),
    ];
    recorded.record("Change", &changes);
    let changes = Changes { sequence: 1, changes: changes.to_vec() };
    recorded.record("Changes", std::slice::from_ref(&changes));
    let entries = Entries { entries: vec![entry()] };
    recorded.record("Entries", std::slice::from_ref(&entries));
    recorded.record("Started", &[Started { sequence: 1 }]);
    let events = [
        response(WatchEvent::Entries(entries)),
        response(WatchEvent::Started(Started { sequence: 1 })),
        response(WatchEvent::Changes(changes)),
    ];
    recorded.record("WatchResponse", &events);
}

fn recorded() -> MessageFields {
    let mut recorded = MessageFields(BTreeMap::new());
    let (keyspace, key, value) = (|| "k".to_string(), || b"a".to_vec(), || b"v".to_vec());
    let bytes = || key().into();
    let entry = || Entry { key: bytes(), value: bytes() };
    let range = || KeyRange { start: bytes(), end: bytes() };
    let done = |kind| Operation { keyspace: keyspace(), kind: Some(kind) };
    recorded.record("Entry", &[entry()]);
    recorded.record("KeyRange", &[range()]);
    recorded.record("GetRequest", &[GetRequest { keyspace: keyspace(), key: key() }]);
    recorded.record("GetResponse", &[GetResponse { value: Some(bytes()) }]);
    recorded
        .record("MultiGetRequest", &[MultiGetRequest { keyspace: keyspace(), keys: vec![key()] }]);
    let found = FoundValue { value: Some(bytes()) };
    recorded.record("FoundValue", std::slice::from_ref(&found));
    recorded.record("MultiGetResponse", &[MultiGetResponse { values: vec![found], sequence: 1 }]);
    let put = PutRequest { keyspace: keyspace(), key: key(), value: value(), sync: true };
    recorded.record("PutRequest", &[put]);
    recorded.record("PutResponse", &[PutResponse { sequence: 1 }]);
    recorded.record("DeleteResponse", &[DeleteResponse { sequence: 1 }]);
    recorded.record("BatchResponse", &[BatchResponse { sequence: 1 }]);
    let delete = DeleteRequest { keyspace: keyspace(), key: key(), sync: true };
    recorded.record("DeleteRequest", &[delete]);
    let operations = vec![
        done(OperationKind::Put(entry())),
        done(OperationKind::Delete(bytes())),
        done(OperationKind::DeleteRange(range())),
    ];
    recorded.record("Operation", &operations);
    let condition = Condition { keyspace: keyspace(), key: key(), value: Some(value()) };
    recorded.record("Condition", std::slice::from_ref(&condition));
    let batch = BatchRequest { operations, conditions: vec![condition], sync: true };
    recorded.record("BatchRequest", &[batch]);
    let scan = ScanRequest {
        keyspace: keyspace(),
        prefix: key(),
        start: key(),
        end: key(),
        reverse: true,
        limit: 1,
        keys_only: true,
    };
    recorded.record("ScanRequest", &[scan]);
    recorded.record("ScanResponse", &[ScanResponse { entries: vec![entry()], sequence: 1 }]);
    watches(&mut recorded);
    recorded.record("ListKeyspacesRequest", &[()]);
    recorded.record("ListKeyspacesResponse", &[ListKeyspacesResponse { names: vec![keyspace()] }]);
    recorded.record("CreateKeyspaceRequest", &[CreateKeyspaceRequest { name: keyspace() }]);
    recorded.record("CreateKeyspaceResponse", &[CreateKeyspaceResponse { created: true }]);
    recorded.record("DropKeyspaceRequest", &[DropKeyspaceRequest { name: keyspace() }]);
    recorded.record("DropKeyspaceResponse", &[DropKeyspaceResponse { dropped: true }]);
    recorded
}

fn wire_type(kind: Type) -> WireType {
    match kind {
        Type::Bool | Type::Uint64 => WireType::Varint,
        Type::String | Type::Bytes | Type::Message => WireType::LengthDelimited,
        other => panic!("say how {other:?} is written"),
    }
}

#[test]
fn the_messages_have_the_fields_of_the_definition() {
    let file = file();
    let defined = file.message_type.iter().map(|message| {
        let field = |field: &prost_types::FieldDescriptorProto| {
            (u32::try_from(field.number()).unwrap(), wire_type(field.r#type()))
        };
        (message.name(), message.field.iter().map(field).collect())
    });
    assert_eq!(recorded().0, defined.collect::<BTreeMap<&str, Fields>>());
}
