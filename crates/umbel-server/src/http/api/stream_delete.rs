//! The route of `/streams` that deletes or tombstones a stream.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::CACHE_CONTROL;
use hyper::http::HeaderValue;
use tonic::body::Body;
use umbel_events::{Error, ExpectedVersion};

use crate::access_control::acl::StreamAction;
use crate::event_store::Deletion;
use crate::http::api::api_request::ApiRequest;
use crate::http::api::api_response::{ApiError, ApiResult, HttpResponse};
use crate::http::api::stream_append::{EXPECTED_VERSION, conflict, expected_version, stream_name};
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;

const HARD_DELETE: [&str; 2] = ["kurrent-harddelete", "es-harddelete"];

/// Deletes the stream of a request, or tombstones it if a header says so.
pub async fn run(service: &Arc<ServerContext>, request: &ApiRequest) -> ApiResult {
    let stream = stream_name(request)?;
    let expected = expected_version(request.header(EXPECTED_VERSION)?)?;
    let deletion = deletion(request.header(HARD_DELETE)?)?;
    let caller = request.caller();
    service.authorizer.authorize(&service.store, &caller, StreamAction::Delete, &stream).await?;
    match service.store.delete(deletion, stream, expected).await {
        Ok(_) => Ok(no_content()),
        Err(Error::WrongExpectedVersion { .. }) if expected == ExpectedVersion::Any => {
            Err(ApiError::not_found("there is no stream with this name"))
        }
        Err(Error::WrongExpectedVersion { current, .. }) => Err(conflict(expected, current)),
        Err(error) => Err(grpc_status::status(&error).into()),
    }
}

/// Parses the header that requests a tombstone.
fn deletion(text: Option<&str>) -> Result<Deletion, ApiError> {
    match text {
        None => Ok(Deletion::Soft),
        Some(text) if text.eq_ignore_ascii_case("false") => Ok(Deletion::Soft),
        Some(text) if text.eq_ignore_ascii_case("true") => Ok(Deletion::Tombstone),
        Some(_) => {
            Err(ApiError::bad_request("the header Kurrent-HardDelete must be true or false"))
        }
    }
}

fn no_content() -> HttpResponse {
    let mut response = HttpResponse::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
