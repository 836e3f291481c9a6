//! Routes of `/auto-scavenge`, with the paths and members of KurrentDB.

use std::sync::Arc;

use hyper::StatusCode;
use serde_json::json;

use crate::event_store::auto_scavenge::{AutoScavengeChange, AutoScavengeState};
use crate::http::api::api_request::ApiRequest;
use crate::http::api::api_response::{ApiResult, json_response};
use crate::http::api::route_table::Operation;
use crate::server_context::ServerContext;

/// Runs an operation of these routes.
pub async fn run(
    service: &Arc<ServerContext>,
    operation: Operation,
    mut request: ApiRequest,
) -> ApiResult {
    let auto_scavenge = &service.auto_scavenge;
    match operation {
        Operation::AutoScavengeEnabled => {
            return Ok(json_response(StatusCode::OK, &json!({ "enabled": true })));
        }
        Operation::ConfigureAutoScavenge => {
            let change: AutoScavengeChange = request.json(service).await?;
            let caller = request.caller();
            auto_scavenge.configure(&service.store, change, caller.user_name()).await?;
        }
        Operation::PauseAutoScavenge => {
            auto_scavenge.pause(&service.store, request.caller().user_name()).await?;
        }
        Operation::ResumeAutoScavenge => {
            auto_scavenge.resume(&service.store, request.caller().user_name()).await?;
        }
        _ => {}
    }
    // A pause is accepted, and complete once the running scavenge has stopped.
    let is_pausing = operation == Operation::PauseAutoScavenge
        && auto_scavenge.status().state == AutoScavengeState::Pausing;
    let status = if is_pausing { StatusCode::ACCEPTED } else { StatusCode::OK };
    Ok(json_response(status, &auto_scavenge.status().to_json()))
}
