//! Reflection: services and their message definitions, for clients without definition files.
//! Reflection covers all services of the server, including the key-value service if it is served.

use std::convert::Infallible;
use std::sync::OnceLock;

use prost::Message;
use prost_types::FileDescriptorSet;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service as _};
use tonic_reflection::server::Builder;
use umbel_env::ProcessLocal;
use umbel_proto::{DESCRIPTORS, kv};

use crate::grpc::request_body::RequestBody;
use crate::limits::RECEIVE_BYTES_FREE;
use crate::server_context::ServerContext;

/// Maximum bytes of a request, which counts against no quota. A request stays in memory until its
/// call ends, and is repeated in the response.
const REQUEST_BYTES_MAX: usize = RECEIVE_BYTES_FREE;

type Responder = Box<
    dyn Fn(hyper::Request<RequestBody>) -> BoxFuture<hyper::Response<Body>, Infallible>
        + Send
        + Sync,
>;

/// Responders of both versions of reflection.
struct Responders {
    v1: Responder,
    v1alpha: Responder,
}

/// Responders of servers with and without the key-value service. The first call builds the
/// responders.
#[derive(Default)]
struct BuiltResponders {
    with_kv: OnceLock<Result<Responders, Status>>,
    without_kv: OnceLock<Result<Responders, Status>>,
}

/// A forked child builds its own responders, since a thread of the parent may have been building
/// them at the fork.
static RESPONDERS: ProcessLocal<BuiltResponders> = ProcessLocal::new();

impl Responders {
    fn new(serves_kv: bool) -> Result<Responders, Status> {
        let mut definitions = FileDescriptorSet::decode(DESCRIPTORS).map_err(build_error)?;
        definitions.file.retain(|file| serves_kv || file.package() != kv::PACKAGE);
        let builder = || Builder::configure().register_file_descriptor_set(definitions.clone());
        let v1 = builder().build_v1().map_err(build_error)?;
        let v1 = v1.max_decoding_message_size(REQUEST_BYTES_MAX);
        let v1alpha = builder().build_v1alpha().map_err(build_error)?;
        let v1alpha = v1alpha.max_decoding_message_size(REQUEST_BYTES_MAX);
        Ok(Responders {
            v1: Box::new(move |request| v1.clone().call(request)),
            v1alpha: Box::new(move |request| v1alpha.clone().call(request)),
        })
    }
}

fn build_error(error: impl std::fmt::Display) -> Status {
    Status::internal(format!("the reflection service could not be built: {error}"))
}

/// Serves a call of either version.
pub async fn call(
    service: &ServerContext,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    let (serves_kv, built) = (service.kv.is_some(), RESPONDERS.get());
    let responders = if serves_kv { &built.with_kv } else { &built.without_kv };
    let responders = match responders.get_or_init(|| Responders::new(serves_kv)) {
        Ok(responders) => responders,
        Err(status) => return status.clone().into_http(),
    };
    let is_alpha = request.uri().path().starts_with("/grpc.reflection.v1alpha.");
    let responder = if is_alpha { &responders.v1alpha } else { &responders.v1 };
    match responder(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}
