//! The calls that are answered with one message.

use prost::bytes::Bytes;
use tonic::{Request, Response, Status};
use umbel::Error;
use umbel_proto::kv::{
    BatchRequest, BatchResponse, CreateKeyspaceRequest, CreateKeyspaceResponse, DeleteRequest,
    DeleteResponse, Entry, FoundValue, GetRequest, GetResponse, ListKeyspacesResponse,
    MultiGetRequest, MultiGetResponse, Operation, OperationKind, PutRequest, PutResponse,
};

use super::{Call, request};
use crate::answers::{Answers, counted, in_steps, one_counted};
use crate::failure;
use crate::kv_store::{ReadFailed, fitting};
use crate::limits::KV_VALUE_BYTES_MAX;
use crate::unread::Held;

/// An answer of one message that may be large.
type One<A> = Result<Response<Answers<A>>, Status>;

/// The value of a key.
pub async fn get(call: Call, asked: Request<GetRequest>) -> One<GetResponse> {
    let held = call.service.unread.held_for(asked.extensions());
    let GetRequest { keyspace, key } = asked.into_inner();
    request::check_key(&key)?;
    let keyspace = request::keyspace(&call.kv, &keyspace)?;
    let room = held.room().await?;
    let read = move || {
        let found = keyspace.get_with(&key, |value| {
            Ok::<_, ReadFailed>(Bytes::copy_from_slice(fitting(&key, value)?))
        })?;
        found.transpose()
    };
    let (value, room) = call.kv.read(1, room, read).await?;
    held.hold(room, value.as_ref().map_or(0, Bytes::len));
    Ok(one(GetResponse { value }, held))
}

/// The values of several keys.
pub async fn multi_get(call: Call, asked: Request<MultiGetRequest>) -> One<MultiGetResponse> {
    let held = call.service.unread.held_for(asked.extensions());
    let asked = asked.into_inner();
    request::check_keys(&asked)?;
    let keyspace = request::keyspace(&call.kv, &asked.keyspace)?;
    // They are there for as long as they wait for room.
    let mut share = call.service.receiving.share();
    if !share.grow(asked.keys.iter().map(Vec::len).sum()) {
        return Err(failure::no_room_for_messages());
    }
    let room = held.room().await?;
    let (snapshot, keys) = (call.kv.snapshot(), asked.keys.len());
    let read = move || {
        let mut values = vec![FoundValue::default(); asked.keys.len()];
        let mut bytes = 0;
        keyspace.multi_get_with_at(&snapshot, &asked.keys, |number, value| {
            bytes += value.map_or(0, <[u8]>::len);
            if bytes <= KV_VALUE_BYTES_MAX {
                values[number].value = value.map(Bytes::copy_from_slice);
            }
        })?;
        drop(share);
        Ok::<_, ReadFailed>((MultiGetResponse { values, sequence: snapshot.sequence() }, bytes))
    };
    let ((answer, bytes), room) = call.kv.read(keys, room, read).await?;
    if bytes > KV_VALUE_BYTES_MAX {
        return Err(Status::resource_exhausted(format!(
            "the values have {bytes} bytes together, but may have {KV_VALUE_BYTES_MAX} in one \
             answer; ask for fewer keys at once, or scan"
        )));
    }
    held.hold(room, bytes);
    Ok(one(answer, held))
}

/// An answer of one message. What it holds is given back once it was written.
fn one<A: Send + 'static>(answer: A, held: Held) -> Response<Answers<A>> {
    let unsent = held.unsent();
    let answers = in_steps((Some(answer), held), |(answer, held)| async move {
        match answer {
            Some(answer) => (vec![Ok(answer)], Some((None, held))),
            None => (Vec::new(), None),
        }
    });
    counted(answers, unsent)
}

/// Gives a key a value.
pub async fn put(call: Call, asked: Request<PutRequest>) -> Result<Response<PutResponse>, Status> {
    let PutRequest { keyspace, key, value, sync } = asked.into_inner();
    request::check_put(&key, &value)?;
    let entry = Entry { key: key.into(), value: value.into() };
    let sequence = write_one(&call, keyspace, OperationKind::Put(entry), sync).await?;
    Ok(Response::new(PutResponse { sequence }))
}

/// Takes a key's value away.
pub async fn delete(
    call: Call,
    asked: Request<DeleteRequest>,
) -> Result<Response<DeleteResponse>, Status> {
    let DeleteRequest { keyspace, key, sync } = asked.into_inner();
    request::check_key(&key)?;
    let sequence = write_one(&call, keyspace, OperationKind::Delete(key.into()), sync).await?;
    Ok(Response::new(DeleteResponse { sequence }))
}

/// Writes several things, or nothing.
pub async fn batch(
    call: Call,
    asked: Request<BatchRequest>,
) -> Result<Response<BatchResponse>, Status> {
    let sequence = write(&call, asked.into_inner()).await?;
    Ok(Response::new(BatchResponse { sequence }))
}

async fn write_one(
    call: &Call,
    keyspace: String,
    kind: OperationKind,
    sync: bool,
) -> Result<u64, Status> {
    let operations = vec![Operation { keyspace, kind: Some(kind) }];
    write(call, BatchRequest { operations, conditions: Vec::new(), sync }).await
}

async fn write(call: &Call, batch: BatchRequest) -> Result<u64, Status> {
    let write = request::write(&call.kv, &call.service.budget, batch)?;
    let written = call.kv.submit(write).await.unwrap_or(Err(Error::Closed));
    written.map_err(|error| failure::of_engine(&error))
}

/// The names of all keyspaces.
pub async fn keyspaces(
    call: Call,
    asked: Request<()>,
) -> Result<Response<ListKeyspacesResponse>, Status> {
    let held = call.service.unread.held_for(asked.extensions());
    let list = async move { Ok(ListKeyspacesResponse { names: call.kv.keyspaces() }) };
    one_counted(held, list).await
}

/// Makes a keyspace.
pub async fn create_keyspace(
    call: Call,
    asked: Request<CreateKeyspaceRequest>,
) -> Result<Response<CreateKeyspaceResponse>, Status> {
    let name = request::name(&asked.into_inner().name).to_string();
    let created = call.kv.create_keyspace(name).await;
    let created = created.map_err(|error| failure::of_engine(&error))?;
    Ok(Response::new(CreateKeyspaceResponse { created }))
}
