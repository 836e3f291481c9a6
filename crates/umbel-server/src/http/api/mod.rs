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
use crate::http::api::api_request::ApiRequest;
use crate::http::api::api_response::{ApiError, ApiResult, HttpResponse, json_text_response};
use crate::http::api::route_table::{Operation, RouteMatch};
use crate::http::request_origin::{check_host, is_own_origin};
use crate::server_context::ServerContext;

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
    run(service, route.operation, ApiRequest::new(request, parameters)?).await
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
