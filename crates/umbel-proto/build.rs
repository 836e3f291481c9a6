//! Generates the messages from the definitions in `proto`, and compiles the definitions to the
//! descriptors that servers send to clients.

use std::error::Error;
use std::path::PathBuf;

use protox::prost_reflect::{Cardinality, DescriptorPool, Kind};

/// Package of the messages that share types.
const CLIENT: &str = "event_store.client";

/// Definition files that no other definition file imports.
const DEFINITIONS: [&str; 11] = [
    "event_store/client/gossip.proto",
    "event_store/client/monitoring.proto",
    "event_store/client/operations.proto",
    "event_store/client/persistent_subscriptions.proto",
    "event_store/client/projections.proto",
    "event_store/client/server_features.proto",
    "event_store/client/users.proto",
    "kurrent/rpc/errors.proto",
    "kurrentdb/protocol/v2/streams/errors.proto",
    "kurrentdb/protocol/v2/streams/streams.proto",
    "umbel/kv/v1/key_value.proto",
];

/// A message that has the fields of another message and shares its type.
struct SharedType {
    message: &'static str,
    twin: &'static str,
    rust_path: &'static str,
}

const fn shared(message: &'static str, twin: &'static str, rust_path: &'static str) -> SharedType {
    SharedType { message, twin, rust_path }
}

/// Messages that share the type of another message.
const SHARED: [SharedType; 16] = [
    shared(
        "streams.ReadResp.FellBehind",
        "streams.ReadResp.CaughtUp",
        "streams::read_resp::Progress",
    ),
    shared("streams.TombstoneReq", "streams.DeleteReq", "streams::DeleteReq"),
    shared("streams.TombstoneResp", "streams.DeleteResp", "streams::DeleteResp"),
    shared(
        "persistent_subscriptions.UpdateReq",
        "persistent_subscriptions.CreateReq",
        "persistent::CreateReq",
    ),
    shared(
        "persistent_subscriptions.TruncateParkedReq",
        "persistent_subscriptions.ReplayParkedReq",
        "persistent::ReplayParkedReq",
    ),
    shared("projections.UpdateReq", "projections.EnableReq", "projections::ProjectionReq"),
    shared("projections.DeleteReq", "projections.EnableReq", "projections::ProjectionReq"),
    shared("projections.DisableReq", "projections.EnableReq", "projections::ProjectionReq"),
    shared("projections.ResetReq", "projections.EnableReq", "projections::ProjectionReq"),
    shared("projections.StateReq", "projections.EnableReq", "projections::ProjectionReq"),
    shared("projections.ResultReq", "projections.EnableReq", "projections::ProjectionReq"),
    shared("projections.ResultResp", "projections.StateResp", "projections::StateResp"),
    shared("users.UpdateReq", "users.CreateReq", "users::UserReq"),
    shared("users.DeleteReq", "users.DetailsReq", "users::LoginReq"),
    shared("users.DisableReq", "users.DetailsReq", "users::LoginReq"),
    shared("users.EnableReq", "users.DetailsReq", "users::LoginReq"),
];

/// Fields and messages whose bytes share the memory of the frame that they were decoded from. All
/// other fields are copied out of the frame, so that a small message does not keep a large frame in
/// memory.
const SHARED_BYTES: [&str; 8] = [
    ".event_store.client.StreamIdentifier",
    ".event_store.client.streams",
    ".umbel.kv.v1.Change.delete",
    ".umbel.kv.v1.Entry",
    ".umbel.kv.v1.FoundValue",
    ".umbel.kv.v1.GetResponse",
    ".umbel.kv.v1.KeyRange",
    ".umbel.kv.v1.Operation.delete",
];

/// Messages that contain passwords. The module `users` implements `Debug` for these messages.
const SECRET: [&str; 3] = [
    ".event_store.client.users.CreateReq.Options",
    ".event_store.client.users.ChangePasswordReq.Options",
    ".event_store.client.users.ResetPasswordReq.Options",
];

/// Oneofs of responses, whose first variant is an event.
const RESPONSES: [&str; 2] = [
    ".event_store.client.streams.ReadResp.content",
    ".event_store.client.persistent_subscriptions.ReadResp.content",
];

const LARGE_VARIANT: &str = "#[expect(clippy::large_enum_variant, reason = \"nearly every \
                             response is an event; a box would be one more allocation for each\")]";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true).open_files(DEFINITIONS)?;
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(folder.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;

    let messages = compiler.descriptor_pool();
    let mut config = prost_build::Config::new();
    config.btree_map(["."]).bytes(SHARED_BYTES).skip_debug(SECRET).include_file("messages.rs");
    for response in RESPONSES {
        config.enum_attribute(response, LARGE_VARIANT);
    }
    for SharedType { message, twin, rust_path } in SHARED {
        let [message, twin] = [message, twin].map(|name| format!("{CLIENT}.{name}"));
        if fields(&messages, &message)? != fields(&messages, &twin)? {
            return Err(format!("{message} and {twin} cannot share a type").into());
        }
        config.extern_path(format!(".{message}"), format!("crate::{rust_path}"));
    }
    for message in messages.all_messages() {
        if message.fields().len() == 0 && message.package_name() != "google.protobuf" {
            config.extern_path(format!(".{}", message.full_name()), "()");
        }
    }
    config.compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

/// Numbers and types of a message's fields.
fn fields(messages: &DescriptorPool, name: &str) -> Result<Vec<(u32, Kind, Cardinality)>, String> {
    let message = messages.get_message_by_name(name).ok_or(format!("{name} is not defined"))?;
    Ok(message.fields().map(|field| (field.number(), field.kind(), field.cardinality())).collect())
}
