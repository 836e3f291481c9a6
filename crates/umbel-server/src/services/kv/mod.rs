//! `umbel.kv.v1.KeyValue`: keys and values over the network. `docs/key-value.md` says what each
//! call promises.

mod calls;
mod lease;
mod permit;
mod request;
mod scan;
mod watch;

use std::sync::Arc;

use tonic::body::Body;
use tonic::{Code, Status};
use umbel_proto::kv::SERVICE;

use crate::asked::Asked;
use crate::deadline::Deadline;
use crate::failure;
use crate::handler::{Handler, grpc};
use crate::kv_store::KvStore;
use crate::limits::{KV_BATCH_BYTES_MAX, KV_VALUE_BYTES_MAX};
use crate::service::Service;

pub use request::check;

/// What every call needs.
#[derive(Debug, Clone)]
struct Call {
    service: Arc<Service>,
    kv: Arc<KvStore>,
    deadline: Deadline,
}

/// The names of the calls.
#[cfg(test)]
pub const CALLS: [&str; 9] = [
    "Get",
    "MultiGet",
    "Put",
    "Delete",
    "Batch",
    "Scan",
    "Watch",
    "ListKeyspaces",
    "CreateKeyspace",
];

/// Serves a call.
pub async fn call(
    service: Arc<Service>,
    deadline: Deadline,
    request: hyper::Request<Asked>,
) -> hyper::Response<Body> {
    let Some(kv) = service.kv.clone() else { return not_enabled().into_http() };
    let call = Call { service, kv, deadline };
    let response = served(call, request).await;
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() == Code::OutOfRange => too_large(&status).into_http(),
        _ => response,
    }
}

async fn served(call: Call, request: hyper::Request<Asked>) -> hyper::Response<Body> {
    let path = request.uri().path();
    let name = path.strip_prefix('/').and_then(|path| path.strip_prefix(SERVICE));
    match name.unwrap_or_default() {
        // An answer of one message that may be large is taken as a stream of one is.
        "/Get" => {
            let get = Handler::new(move |asked| calls::get(call, asked));
            grpc().server_streaming(get, request).await
        }
        "/MultiGet" => {
            let get = Handler::new(move |asked| calls::multi_get(call, asked));
            grpc().server_streaming(get, request).await
        }
        "/Put" => grpc().unary(Handler::new(move |put| calls::put(call, put)), request).await,
        "/Delete" => {
            let delete = Handler::new(move |asked| calls::delete(call, asked));
            grpc().unary(delete, request).await
        }
        "/Batch" => {
            let batch = Handler::new(move |asked| calls::batch(call, asked));
            grpc().unary(batch, request).await
        }
        "/Scan" => {
            let scan = Handler::new(move |asked| scan::scan(call, asked));
            grpc().server_streaming(scan, request).await
        }
        "/Watch" => {
            let watch = Handler::new(move |asked| watch::watch(call, asked));
            grpc().server_streaming(watch, request).await
        }
        "/ListKeyspaces" => {
            let list = Handler::new(move |asked| calls::keyspaces(call, asked));
            grpc().unary(list, request).await
        }
        "/CreateKeyspace" => {
            let create = Handler::new(move |asked| calls::create_keyspace(call, asked));
            grpc().unary(create, request).await
        }
        _ => failure::not_served(request.uri().path()).into_http(),
    }
}

/// The server was not told to serve keys and values.
fn not_enabled() -> Status {
    Status::unimplemented(
        "keys and values are not served here: start the server with --kv, or with kv = true in \
         its file, or with UMBEL_KV=1",
    )
}

/// A message is over the limit of all messages.
fn too_large(status: &Status) -> Status {
    Status::invalid_argument(format!(
        "{}; a value may have {KV_VALUE_BYTES_MAX} bytes, a batch {KV_BATCH_BYTES_MAX}",
        status.message()
    ))
}
