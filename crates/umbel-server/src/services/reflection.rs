//! Reflection: services and their message definitions, for clients without definition files. It
//! covers the services with a definition here: the key-value service, if served, and itself.

use std::convert::Infallible;

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic_reflection::server::{Builder, Error};
use umbel_proto::kv::DESCRIPTORS;

use crate::grpc::request_body::RequestBody;
use crate::server_context::ServerContext;

/// Maximum bytes of a request. Each is kept until its call ends, and repeated in its response.
const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Serves a call of either version. The responder is built for each call, since a client calls
/// once.
pub async fn call(
    service: &ServerContext,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    let mut builder = Builder::configure();
    if service.kv.is_some() {
        builder = builder.register_encoded_file_descriptor_set(DESCRIPTORS);
    }
    let is_alpha = request.uri().path().starts_with("/grpc.reflection.v1alpha.");
    let answered: Result<Result<hyper::Response<Body>, Infallible>, Error> = if is_alpha {
        match builder.build_v1alpha() {
            Ok(built) => {
                let mut built = built.max_decoding_message_size(REQUEST_BYTES_MAX);
                Ok(built.call(request).await)
            }
            Err(error) => Err(error),
        }
    } else {
        match builder.build_v1() {
            Ok(built) => {
                let mut built = built.max_decoding_message_size(REQUEST_BYTES_MAX);
                Ok(built.call(request).await)
            }
            Err(error) => Err(error),
        }
    };
    match answered {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(error) => {
            Status::internal(format!("the reflection service could not be built: {error}"))
                .into_http()
        }
    }
}
