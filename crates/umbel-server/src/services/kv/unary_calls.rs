//! Key-value calls with one request and one response message.

use std::sync::Arc;

use prost::bytes::Bytes;
use tonic::{Request, Response, Status};
use umbel::Error;
use umbel::limits::KEYSPACES_MAX;
use umbel_proto::kv::{
    BatchResponse, CreateKeyspaceRequest, CreateKeyspaceResponse, DEFAULT_KEYSPACE, DeleteRequest,
    DeleteResponse, DropKeyspaceRequest, DropKeyspaceResponse, Entry, FoundValue, GetRequest,
    GetResponse, ListKeyspacesResponse, MultiGetRequest, MultiGetResponse, OperationKind,
    PutRequest, PutResponse,
};

use crate::access_control::users::ADMINS_GROUP;
use crate::auth::authorization::{Caller, active_user};
use crate::grpc::response_stream::{
    ResponseStream, respond_within_quota, stream_steps, with_pending_page,
};
use crate::kv_store::{ReadError, check_value_size};
use crate::limits::{KV_VALUE_BYTES_MAX, OPERATOR_KEYSPACES_MAX};
use crate::protocol::grpc_status;
use crate::resources::outbound_call_share::OutboundShare;
use crate::services::kv::kv_call_context::KvCallContext;
use crate::services::kv::request_checks::{self, BatchMessage, KvBatch};

/// Response with one message, which may be large.
type UnaryResult<A> = Result<Response<ResponseStream<A>>, Status>;

/// Reads the value of a key.
pub async fn get(call: KvCallContext, request: Request<GetRequest>) -> UnaryResult<GetResponse> {
    let held = call.service.outbound_quota.held_for(request.extensions());
    let GetRequest { keyspace, key } = request.into_inner();
    request_checks::check_key(&key)?;
    let keyspace = request_checks::find_keyspace(&call.kv, &keyspace)?;
    let reservation = held.reserve_page().await?;
    let read = move || {
        let found = keyspace.get_with(&key, |value| {
            Ok::<_, ReadError>(Bytes::copy_from_slice(check_value_size(&key, value)?))
        })?;
        found.transpose()
    };
    let (value, reservation) = call.kv.read(1, reservation, read).await?;
    held.charge(reservation, value.as_ref().map_or(0, Bytes::len));
    Ok(unary_response(GetResponse { value }, held))
}

/// Reads the values of several keys.
pub async fn multi_get(
    call: KvCallContext,
    request: Request<MultiGetRequest>,
) -> UnaryResult<MultiGetResponse> {
    let held = call.service.outbound_quota.held_for(request.extensions());
    let request = request.into_inner();
    request_checks::check_keys(&request)?;
    let keyspace = request_checks::find_keyspace(&call.kv, &request.keyspace)?;
    // The keys stay in memory while they wait for quota.
    let mut share = call.service.receive_quota.new_share();
    if !share.grow(request.keys.iter().map(Vec::len).sum()) {
        return Err(grpc_status::receive_quota_exhausted());
    }
    let reservation = held.reserve_page().await?;
    let (snapshot, keys) = (call.kv.snapshot(), request.keys.len());
    let read = move || {
        let mut values = vec![FoundValue::default(); request.keys.len()];
        let mut bytes = 0;
        keyspace.multi_get_with_at(&snapshot, &request.keys, |number, value| {
            bytes += value.map_or(0, <[u8]>::len);
            if bytes <= KV_VALUE_BYTES_MAX {
                values[number].value = value.map(Bytes::copy_from_slice);
            }
        })?;
        drop(share);
        Ok::<_, ReadError>((MultiGetResponse { values, sequence: snapshot.sequence() }, bytes))
    };
    let ((answer, bytes), reservation) = call.kv.read(keys, reservation, read).await?;
    if bytes > KV_VALUE_BYTES_MAX {
        return Err(Status::resource_exhausted(format!(
            "the values have {bytes} bytes together; the limit of one response is \
             {KV_VALUE_BYTES_MAX}; read fewer keys at once, or scan"
        )));
    }
    held.charge(reservation, bytes);
    Ok(unary_response(answer, held))
}

/// Responds with one message. The response's quota is returned once the response is written.
fn unary_response<A: Send + 'static>(
    answer: A,
    held: OutboundShare,
) -> Response<ResponseStream<A>> {
    let unsent = held.unsent_page();
    let answers = stream_steps((Some(answer), held), |(answer, held)| async move {
        match answer {
            Some(answer) => (vec![Ok(answer)], Some((None, held))),
            None => (Vec::new(), None),
        }
    });
    with_pending_page(answers, unsent)
}

/// Writes the value of a key.
pub async fn put(
    call: KvCallContext,
    request: Request<PutRequest>,
) -> Result<Response<PutResponse>, Status> {
    let PutRequest { keyspace, key, value, sync } = request.into_inner();
    request_checks::check_put(&key, &value)?;
    let entry = Entry { key: key.into(), value: value.into() };
    let sequence = write_one(&call, keyspace, OperationKind::Put(entry), sync).await?;
    Ok(Response::new(PutResponse { sequence }))
}

/// Deletes a key.
pub async fn delete(
    call: KvCallContext,
    request: Request<DeleteRequest>,
) -> Result<Response<DeleteResponse>, Status> {
    let DeleteRequest { keyspace, key, sync } = request.into_inner();
    request_checks::check_key(&key)?;
    let sequence = write_one(&call, keyspace, OperationKind::Delete(key.into()), sync).await?;
    Ok(Response::new(DeleteResponse { sequence }))
}

/// Writes a batch, entirely or not at all.
pub async fn batch(
    call: KvCallContext,
    request: Request<BatchMessage>,
) -> Result<Response<BatchResponse>, Status> {
    let sequence = write(&call, request.into_inner().0?).await?;
    Ok(Response::new(BatchResponse { sequence }))
}

async fn write_one(
    call: &KvCallContext,
    keyspace: String,
    kind: OperationKind,
    sync: bool,
) -> Result<u64, Status> {
    write(call, KvBatch::of_one(keyspace, kind, sync)?).await
}

async fn write(call: &KvCallContext, batch: KvBatch) -> Result<u64, Status> {
    let (kv, quota) = (Arc::clone(&call.kv), Arc::clone(&call.service.append_quota));
    let is_long = batch.is_long();
    let build = move || request_checks::parse_write(&kv, &quota, batch);
    let write = match is_long {
        true => {
            tokio::task::spawn_blocking(build).await.map_err(|_| grpc_status::shutting_down())?
        }
        false => build(),
    }?;
    let written = call.kv.submit(write).await.unwrap_or(Err(Error::Closed));
    written.map_err(|error| grpc_status::engine_status(&error))
}

/// Lists the names of all keyspaces.
pub async fn keyspaces(
    call: KvCallContext,
    request: Request<()>,
) -> Result<Response<ListKeyspacesResponse>, Status> {
    let held = call.service.outbound_quota.held_for(request.extensions());
    let list = async move { Ok(ListKeyspacesResponse { names: call.kv.keyspaces() }) };
    respond_within_quota(held, list).await
}

/// Creates a keyspace.
pub async fn create_keyspace(
    call: KvCallContext,
    request: Request<CreateKeyspaceRequest>,
) -> Result<Response<CreateKeyspaceResponse>, Status> {
    let keyspaces_max = match Caller::from_extensions(request.extensions()) {
        Caller::User(user) if !active_user(&user)?.is_in(ADMINS_GROUP) => OPERATOR_KEYSPACES_MAX,
        _ => KEYSPACES_MAX,
    };
    let name = request_checks::keyspace_name(&request.into_inner().name).to_string();
    let created = call.kv.create_keyspace(name, keyspaces_max).await;
    match created.map_err(|error| grpc_status::engine_status(&error))? {
        Some(created) => Ok(Response::new(CreateKeyspaceResponse { created })),
        None => Err(Status::resource_exhausted(format!(
            "the store has {keyspaces_max} keyspaces or more, which is the limit for users \
             outside $admins; drop keyspaces, or create this one as an administrator"
        ))),
    }
}

/// Drops a keyspace.
pub async fn drop_keyspace(
    call: KvCallContext,
    request: Request<DropKeyspaceRequest>,
) -> Result<Response<DropKeyspaceResponse>, Status> {
    let name = request_checks::keyspace_name(&request.into_inner().name).to_string();
    if name == DEFAULT_KEYSPACE {
        return Err(Status::failed_precondition(format!(
            "the keyspace '{DEFAULT_KEYSPACE}' always exists; delete its keys instead"
        )));
    }
    let dropped = call.kv.drop_keyspace(name).await.unwrap_or(Err(Error::Closed));
    let dropped = dropped.map_err(|error| grpc_status::engine_status(&error))?;
    Ok(Response::new(DropKeyspaceResponse { dropped }))
}
