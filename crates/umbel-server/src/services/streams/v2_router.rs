//! The calls of the second protocol, by their paths.

use std::sync::Arc;

use tonic::body::Body;

use crate::append_records::append_records;
use crate::append_session::append_session;
use crate::asked::Asked;
use crate::failure;
use crate::handler::{Handler, grpc};
use crate::service::Service;

/// Serves a call.
pub async fn call(service: Arc<Service>, request: hyper::Request<Asked>) -> hyper::Response<Body> {
    match request.uri().path() {
        "/kurrentdb.protocol.v2.streams.StreamsService/AppendSession" => {
            let append = Handler::new(move |parts| append_session(service, parts));
            grpc().client_streaming(append, request).await
        }
        "/kurrentdb.protocol.v2.streams.StreamsService/AppendRecords" => {
            let append = Handler::new(move |asked| append_records(service, asked));
            // As a stream of one message, of which it is seen here where it is too long.
            grpc().client_streaming(append, request).await
        }
        path => failure::not_served(path).into_http(),
    }
}
