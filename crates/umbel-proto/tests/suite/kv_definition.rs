//! The definition of the key-value service, its compiled form and the messages say the same.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};
use prost_types::field_descriptor_proto::Type;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use umbel_proto::kv::*;

/// The variable with which the compiled form is written anew: `1`.
const WRITE: &str = "UMBEL_WRITE_DESCRIPTORS";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("proto")
}

fn compiled() -> Vec<u8> {
    let mut compiler = protox::Compiler::new([folder()]).unwrap();
    compiler.include_source_info(true).open_file("umbel/kv/v1/key_value.proto").unwrap();
    compiler.encode_file_descriptor_set()
}

fn file() -> FileDescriptorProto {
    let mut set = FileDescriptorSet::decode(&compiled()[..]).unwrap();
    assert_eq!(set.file.len(), 1, "it imports nothing");
    set.file.remove(0)
}

#[test]
fn what_servers_tell_of_the_definition_is_the_definition() {
    let compiled = compiled();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(folder().join("umbel/kv/v1/key_value.descriptors"), &compiled).unwrap();
        return;
    }
    assert!(
        compiled == DESCRIPTORS,
        "the definition was changed: write its compiled form anew with {WRITE}=1 cargo test -p \
         umbel-proto definition"
    );
}

#[test]
fn the_service_is_called_as_in_paths() {
    let file = file();
    let service = &file.service[0];
    assert_eq!(format!("{}.{}", file.package(), service.name()), SERVICE);
    let streams = service.method.iter().filter(|method| method.server_streaming());
    let streams: Vec<&str> = streams.map(|method| method.name()).collect();
    assert_eq!(streams, ["Scan", "Watch"]);
    assert!(service.method.iter().all(|method| !method.client_streaming()));
}

/// The fields of a message by their numbers, and how each is written.
type Fields = BTreeMap<u32, WireType>;

fn of_bytes(mut bytes: &[u8], fields: &mut Fields) {
    while !bytes.is_empty() {
        let (number, wire_type) = decode_key(&mut bytes).unwrap();
        skip_field(wire_type, number, &mut bytes, DecodeContext::default()).unwrap();
        fields.insert(number, wire_type);
    }
}

/// What is compared: the name of a message, and values of it that have all fields together.
struct Said(BTreeMap<&'static str, Fields>);

impl Said {
    fn says<M: Message + Default + PartialEq + Debug>(&mut self, name: &'static str, values: &[M]) {
        let mut fields = Fields::new();
        for value in values {
            let bytes = value.encode_to_vec();
            assert_eq!(M::decode(&bytes[..]).as_ref(), Ok(value));
            of_bytes(&bytes, &mut fields);
        }
        assert!(self.0.insert(name, fields).is_none(), "{name} is said twice");
    }
}

/// What is compared of watches.
fn watches(said: &mut Said) {
    let bytes = || b"a".to_vec().into();
    let entry = || Entry { key: bytes(), value: bytes() };
    let range = || KeyRange { start: bytes(), end: bytes() };
    let change = |kind| Change { kind: Some(kind) };
    let told = |event| WatchResponse { event: Some(event) };
    let watch = WatchRequest {
        keyspace: "k".to_string(),
        prefix: b"a".to_vec(),
        with_entries: true,
        keys_only: true,
    };
    said.says("WatchRequest", &[watch]);
    let changes = [
        change(ChangeKind::Put(entry())),
        change(ChangeKind::Delete(bytes())),
        change(ChangeKind::DeleteRange(range())),
    ];
    said.says("Change", &changes);
    let changes = Changes { sequence: 1, changes: changes.to_vec() };
    said.says("Changes", std::slice::from_ref(&changes));
    let entries = Entries { entries: vec![entry()] };
    said.says("Entries", std::slice::from_ref(&entries));
    said.says("Started", &[Started { sequence: 1 }]);
    let events = [
        told(WatchEvent::Entries(entries)),
        told(WatchEvent::Started(Started { sequence: 1 })),
        told(WatchEvent::Changes(changes)),
    ];
    said.says("WatchResponse", &events);
}

fn said() -> Said {
    let mut said = Said(BTreeMap::new());
    let (keyspace, key, value) = (|| "k".to_string(), || b"a".to_vec(), || b"v".to_vec());
    let bytes = || key().into();
    let entry = || Entry { key: bytes(), value: bytes() };
    let range = || KeyRange { start: bytes(), end: bytes() };
    let done = |kind| Operation { keyspace: keyspace(), kind: Some(kind) };
    said.says("Entry", &[entry()]);
    said.says("KeyRange", &[range()]);
    said.says("GetRequest", &[GetRequest { keyspace: keyspace(), key: key() }]);
    said.says("GetResponse", &[GetResponse { value: Some(bytes()) }]);
    said.says("MultiGetRequest", &[MultiGetRequest { keyspace: keyspace(), keys: vec![key()] }]);
    let found = FoundValue { value: Some(bytes()) };
    said.says("FoundValue", std::slice::from_ref(&found));
    said.says("MultiGetResponse", &[MultiGetResponse { values: vec![found], sequence: 1 }]);
    let put = PutRequest { keyspace: keyspace(), key: key(), value: value(), sync: true };
    said.says("PutRequest", &[put]);
    said.says("PutResponse", &[PutResponse { sequence: 1 }]);
    said.says("DeleteResponse", &[DeleteResponse { sequence: 1 }]);
    said.says("BatchResponse", &[BatchResponse { sequence: 1 }]);
    let delete = DeleteRequest { keyspace: keyspace(), key: key(), sync: true };
    said.says("DeleteRequest", &[delete]);
    let operations = vec![
        done(OperationKind::Put(entry())),
        done(OperationKind::Delete(bytes())),
        done(OperationKind::DeleteRange(range())),
    ];
    said.says("Operation", &operations);
    let condition = Condition { keyspace: keyspace(), key: key(), value: Some(value()) };
    said.says("Condition", std::slice::from_ref(&condition));
    let batch = BatchRequest { operations, conditions: vec![condition], sync: true };
    said.says("BatchRequest", &[batch]);
    let scan = ScanRequest {
        keyspace: keyspace(),
        prefix: key(),
        start: key(),
        end: key(),
        reverse: true,
        limit: 1,
        keys_only: true,
    };
    said.says("ScanRequest", &[scan]);
    said.says("ScanResponse", &[ScanResponse { entries: vec![entry()], sequence: 1 }]);
    watches(&mut said);
    said.says("ListKeyspacesRequest", &[()]);
    said.says("ListKeyspacesResponse", &[ListKeyspacesResponse { names: vec![keyspace()] }]);
    said.says("CreateKeyspaceRequest", &[CreateKeyspaceRequest { name: keyspace() }]);
    said.says("CreateKeyspaceResponse", &[CreateKeyspaceResponse { created: true }]);
    said
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
    assert_eq!(said().0, defined.collect::<BTreeMap<&str, Fields>>());
}
