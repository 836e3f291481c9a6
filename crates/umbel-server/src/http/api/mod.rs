//! The HTTP API for operators and scripts, in KurrentDB's JSON where KurrentDB has it.
//!
//! [`route_table`] lists the routes. Each requires the permission of a call of clients. Pages of
//! other sites cannot use the API: the host name and the origin of a request are checked as for the
//! console. Positions beyond KurrentDB's forms are text, because JavaScript rounds large numbers.

pub mod admin_routes;
pub mod api_request;
pub mod api_response;
pub mod auto_scavenge_routes;
pub mod event_json;
pub mod event_list;
pub mod group_routes;
pub mod openapi;
pub mod route_table;
pub mod stream_append;
pub mod stream_delete;
pub mod stream_pages;
pub mod user_routes;

use std::sync::Arc;

use hyper::http::uri::Authority;
use hyper::{Method, StatusCode};
use tonic::Status;

use crate::grpc::request_body::RequestBody;
use crate::http::api::api_request::{ApiRequest, check_encoding};
use crate::http::api::api_response::{ApiError, ApiResult, HttpResponse, json_text_response};
use crate::http::api::route_table::{Operation, RequestSchema, Route, RouteMatch};
use crate::http::console::query_string::QueryString;
use crate::http::request_origin::{check_host, is_own_origin};
use crate::protocol::truncate_text::truncate_text;
use crate::server_context::ServerContext;

/// Maximum length of the name of an unknown query parameter in an error.
const SHOWN_NAME_BYTES_MAX: usize = 100;

/// Serves an authorized request that was sent to this host name.
pub async fn handle(
    service: Arc<ServerContext>,
    request: hyper::Request<RequestBody>,
    reached: Option<Authority>,
) -> HttpResponse {
    answer(&service, request, reached).await.unwrap_or_else(ApiError::into_response)
}

/// The response to a caller without access.
pub fn access_denied(refusal: Status) -> HttpResponse {
    ApiError::from(refusal).into_response()
}

async fn answer(
    service: &Arc<ServerContext>,
    request: hyper::Request<RequestBody>,
    reached: Option<Authority>,
) -> ApiResult {
    check_encoding(request.uri().path())?;
    let (route, parameters) = match route_table::find(request.method(), request.uri().path()) {
        RouteMatch::Route(route, parameters) => (route, parameters),
        RouteMatch::Methods(methods) => return Err(ApiError::method_not_allowed(&methods)),
        RouteMatch::None => {
            return Err(ApiError::not_found("no route has this path; see /openapi.json"));
        }
    };
    let forbidden = |why: &str| ApiError::new(StatusCode::FORBIDDEN, why);
    check_host(service, reached.as_ref()).map_err(|why| forbidden(why.trim_end()))?;
    let is_change = route.method != Method::GET;
    if is_change && !is_own_origin(request.headers(), reached.as_ref(), service.is_encrypted) {
        return Err(forbidden("pages of other sites cannot make changes"));
    }
    let mut request = ApiRequest::new(request, parameters)?;
    if is_change {
        check_query(route, request.query())?;
        if route.body == RequestSchema::None {
            request.receive_nothing(service).await?;
        }
    }
    run(service, route.operation, request).await
}

/// Checks that the route knows each query parameter of a request that changes something. If a
/// misspelled `removeAll` were ignored, the scavenge would leave the data that it must remove.
fn check_query(route: &Route, query: &QueryString) -> Result<(), ApiError> {
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in query.pairs() {
        let shown = truncate_text(name, SHOWN_NAME_BYTES_MAX);
        if !route.query.iter().any(|(known, _)| *known == name) {
            let names: Vec<&str> = route.query.iter().map(|(known, _)| *known).collect();
            let known = match names.is_empty() {
                true => "it has none".to_string(),
                false => format!("the parameters are {}", names.join(", ")),
            };
            let (method, path) = (&route.method, route.path);
            let why = format!("{shown} is no query parameter of {method} {path}; {known}");
            return Err(ApiError::bad_request(why));
        }
        if value.is_empty() {
            return Err(ApiError::bad_request(format!("the query parameter {shown} has no value")));
        }
        if seen.contains(&name) {
            let why = format!("the query parameter {shown} is given twice; send one value");
            return Err(ApiError::bad_request(why));
        }
        seen.push(name);
    }
    Ok(())
}

async fn run(service: &Arc<ServerContext>, operation: Operation, request: ApiRequest) -> ApiResult {
    match operation {
        Operation::StartScavenge
        | Operation::CurrentScavenge
        | Operation::LastScavenge
        | Operation::ReadScavenge
        | Operation::StopScavenge
        | Operation::ScavengeHistory
        | Operation::BackupHistory
        | Operation::StartBackup
        | Operation::ReadBackup
        | Operation::StopBackup
        | Operation::Shutdown
        | Operation::Promote
        | Operation::ReloadConfig => admin_routes::run(service, operation, &request).await,
        Operation::AutoScavengeEnabled
        | Operation::AutoScavengeStatus
        | Operation::ConfigureAutoScavenge
        | Operation::PauseAutoScavenge
        | Operation::ResumeAutoScavenge => {
            auto_scavenge_routes::run(service, operation, request).await
        }
        Operation::ListUsers
        | Operation::CreateUser
        | Operation::ReadCurrentUser
        | Operation::ReadUser
        | Operation::UpdateUser
        | Operation::DeleteUser
        | Operation::EnableUser
        | Operation::DisableUser
        | Operation::ResetPassword
        | Operation::ChangePassword => user_routes::run(service, operation, request).await,
        Operation::ListGroups
        | Operation::ListGroupsOfSource
        | Operation::ReadGroup
        | Operation::CreateGroup
        | Operation::UpdateGroup
        | Operation::DeleteGroup
        | Operation::ReplayParked
        | Operation::RestartGroups => group_routes::run(service, operation, request).await,
        Operation::ReadNewest | Operation::ReadEvent | Operation::ReadPage => {
            stream_pages::run(service, operation, &request).await
        }
        Operation::Append => stream_append::run(service, request).await,
        Operation::DeleteStream => stream_delete::run(service, &request).await,
        Operation::OpenApi => Ok(json_text_response(openapi::document())),
    }
}
