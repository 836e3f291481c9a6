//! Reflection: which services there are, and what their messages look like, for clients that have
//! no definition files. It tells of what has a definition here: keys and values, where they are
//! served, and itself.

use std::convert::Infallible;

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic_reflection::server::{Builder, Error};
use umbel_proto::kv::DESCRIPTORS;

use crate::asked::Asked;
use crate::service::Service;

/// Longest question. Each is kept until its call ends, and told again in its answer.
const QUESTION_BYTES_MAX: usize = 64 << 10;

/// Serves a call of either version. What answers is made for each: a client asks once.
pub async fn call(service: &Service, request: hyper::Request<Asked>) -> hyper::Response<Body> {
    let mut builder = Builder::configure();
    if service.kv.is_some() {
        builder = builder.register_encoded_file_descriptor_set(DESCRIPTORS);
    }
    let is_alpha = request.uri().path().starts_with("/grpc.reflection.v1alpha.");
    let answered: Result<Result<hyper::Response<Body>, Infallible>, Error> = if is_alpha {
        match builder.build_v1alpha() {
            Ok(built) => {
                let mut built = built.max_decoding_message_size(QUESTION_BYTES_MAX);
                Ok(built.call(request).await)
            }
            Err(error) => Err(error),
        }
    } else {
        match builder.build_v1() {
            Ok(built) => {
                let mut built = built.max_decoding_message_size(QUESTION_BYTES_MAX);
                Ok(built.call(request).await)
            }
            Err(error) => Err(error),
        }
    };
    match answered {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(error) => Status::internal(format!("no service can be told of: {error}")).into_http(),
    }
}
