//! Calls of the second protocol by their paths.

use std::sync::Arc;

use tonic::body::Body;

use crate::grpc::grpc_dispatch::{Handler, grpc_dispatch};
use crate::grpc::request_body::RequestBody;
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;
use crate::services::streams::append_records::append_records;
use crate::services::streams::append_session::append_session;

/// Serves a call.
pub async fn call(
    service: Arc<ServerContext>,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    match request.uri().path() {
        "/kurrentdb.protocol.v2.streams.StreamsService/AppendSession" => {
            let append = Handler::new(move |parts| append_session(service, parts));
            grpc_dispatch().client_streaming(append, request).await
        }
        "/kurrentdb.protocol.v2.streams.StreamsService/AppendRecords" => {
            let append = Handler::new(move |request| append_records(service, request));
            // Read as a stream of one message, so that our code sees an oversized one.
            grpc_dispatch().client_streaming(append, request).await
        }
        path => grpc_status::unknown_method(path).into_http(),
    }
}
