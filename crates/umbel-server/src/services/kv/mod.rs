//! `umbel.kv.v1.KeyValue`: the key-value service. `docs/reference/key-value.md` documents
//! each call.

mod kv_call_context;
mod kv_scan;
mod kv_watch;
mod operator_permission;
mod request_checks;
mod snapshot_lease;
mod unary_calls;

use std::sync::Arc;

use tonic::body::Body;
use tonic::{Code, Status};
use umbel_proto::kv::SERVICE;

use crate::grpc::grpc_dispatch::{Handler, grpc_dispatch};
use crate::grpc::request_body::RequestBody;
use crate::limits::{KV_BATCH_BYTES_MAX, KV_VALUE_BYTES_MAX};
use crate::protocol::deadline::Deadline;
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;

use kv_call_context::KvCallContext;

pub use request_checks::{BatchMessage, check_decoding};

/// Names of the calls.
#[cfg(test)]
pub const CALLS: [&str; 10] = [
    "Get",
    "MultiGet",
    "Put",
    "Delete",
    "Batch",
    "Scan",
    "Watch",
    "ListKeyspaces",
    "CreateKeyspace",
    "DropKeyspace",
];

/// Serves a call.
pub async fn call(
    service: Arc<ServerContext>,
    deadline: Deadline,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    let Some(kv) = service.kv.clone() else { return not_enabled().into_http() };
    let call = KvCallContext { service, kv, deadline };
    let response = route(call, request).await;
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() == Code::OutOfRange => too_large(&status).into_http(),
        _ => response,
    }
}

async fn route(call: KvCallContext, request: hyper::Request<RequestBody>) -> hyper::Response<Body> {
    let path = request.uri().path();
    let name = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE));
    match name.unwrap_or_default() {
        // A single response that may be large is sent as a stream of one message.
        "/Get" => {
            let get = Handler::new(move |request| unary_calls::get(call, request));
            grpc_dispatch().server_streaming(get, request).await
        }
        "/MultiGet" => {
            let get = Handler::new(move |request| unary_calls::multi_get(call, request));
            grpc_dispatch().server_streaming(get, request).await
        }
        "/Put" => {
            grpc_dispatch()
                .unary(Handler::new(move |put| unary_calls::put(call, put)), request)
                .await
        }
        "/Delete" => {
            let delete = Handler::new(move |request| unary_calls::delete(call, request));
            grpc_dispatch().unary(delete, request).await
        }
        "/Batch" => {
            let batch = Handler::new(move |request| unary_calls::batch(call, request));
            grpc_dispatch().unary(batch, request).await
        }
        "/Scan" => {
            let scan = Handler::new(move |request| kv_scan::scan(call, request));
            grpc_dispatch().server_streaming(scan, request).await
        }
        "/Watch" => {
            let watch = Handler::new(move |request| kv_watch::watch(call, request));
            grpc_dispatch().server_streaming(watch, request).await
        }
        "/ListKeyspaces" => {
            let list = Handler::new(move |request| unary_calls::keyspaces(call, request));
            grpc_dispatch().unary(list, request).await
        }
        "/CreateKeyspace" => {
            let create = Handler::new(move |request| unary_calls::create_keyspace(call, request));
            grpc_dispatch().unary(create, request).await
        }
        "/DropKeyspace" => {
            let drop = Handler::new(move |request| unary_calls::drop_keyspace(call, request));
            grpc_dispatch().unary(drop, request).await
        }
        _ => grpc_status::unknown_method(request.uri().path()).into_http(),
    }
}

/// Status: the key-value service is not enabled.
fn not_enabled() -> Status {
    Status::unimplemented(
        "the key-value store is off: start the server with --kv, with kv = true in its \
         configuration file, or with UMBEL_KV=1",
    )
}

/// Status of a message over the size limit.
fn too_large(status: &Status) -> Status {
    Status::invalid_argument(format!(
        "{}; a value may have {KV_VALUE_BYTES_MAX} bytes, a batch {KV_BATCH_BYTES_MAX}",
        status.message()
    ))
}
