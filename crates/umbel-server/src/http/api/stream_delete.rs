//! The route of `/streams` that deletes or tombstones a stream.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::CACHE_CONTROL;
use hyper::http::HeaderValue;
use tonic::body::Body;
use umbel_events::{Error, ExpectedVersion, StreamState};

use crate::access_control::acl::StreamAction;
use crate::event_store::Deletion;
use crate::http::api::api_request::ApiRequest;
use crate::http::api::api_response::{ApiError, ApiResult, HttpResponse};
use crate::http::api::stream_append::{
    EXPECTED_VERSION, conflict, expected_version, stream_name, with_current_version,
};
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
    match service.store.delete(deletion, stream.clone(), expected).await {
        Ok(_) => Ok(no_content()),
        Err(error) => Err(refusal(service, stream, expected, error).await),
    }
}

/// The response to a delete that the store refused.
async fn refusal(
    service: &Arc<ServerContext>,
    stream: String,
    expected: ExpectedVersion,
    error: Error,
) -> ApiError {
    if expected == ExpectedVersion::Exists && matches!(error, Error::StreamDeleted { .. }) {
        let state = service.store.blocking(move |store| store.stream_state(&stream)).await;
        return match state {
            Ok(state) => deleted_refusal(state, &error),
            Err(error) => grpc_status::status(&error).into(),
        };
    }
    let needs_revision = matches!(expected, ExpectedVersion::Exact(_));
    match error {
        Error::WrongExpectedVersion { current: None, .. } if !needs_revision => {
            with_current_version(ApiError::not_found("there is no stream with this name"), None)
        }
        Error::WrongExpectedVersion { current, .. } => conflict(expected, current),
        error => grpc_status::status(&error).into(),
    }
}

/// The response to a delete of an existing stream that was deleted. The state was read after the
/// refusal, so an append can have created the stream again.
fn deleted_refusal(state: StreamState, error: &Error) -> ApiError {
    match state {
        StreamState::Tombstoned => grpc_status::status(error).into(),
        StreamState::Deleted { last } => {
            let error = ApiError::not_found("the stream with this name is deleted");
            with_current_version(error, Some(last))
        }
        StreamState::Missing => {
            with_current_version(ApiError::not_found("there is no stream with this name"), None)
        }
        StreamState::Live { last, .. } => {
            let why = "an append created the deleted stream again meanwhile; decide again";
            with_current_version(ApiError::new(StatusCode::CONFLICT, why), Some(last))
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: a delete that raced with an append answered 410, as for a tombstone.
    #[test]
    fn only_a_tombstone_is_gone() {
        let error = Error::StreamDeleted { stream: "cart".into() };
        for (state, status, version) in [
            (StreamState::Tombstoned, StatusCode::GONE, None),
            (StreamState::Deleted { last: 7 }, StatusCode::NOT_FOUND, Some("7")),
            (StreamState::Missing, StatusCode::NOT_FOUND, Some("-1")),
            (StreamState::Live { first: 8, last: 9 }, StatusCode::CONFLICT, Some("9")),
        ] {
            let response = deleted_refusal(state, &error).into_response();
            assert_eq!(response.status(), status, "{state:?}");
            let shown = response.headers().get("kurrent-currentversion");
            assert_eq!(shown.map(|value| value.to_str().unwrap()), version, "{state:?}");
        }
    }
}
