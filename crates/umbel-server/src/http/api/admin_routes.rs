//! Routes of `/admin`: scavenges, backups, shutdown, promotion and certificates.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::LOCATION;
use serde_json::{Map, Value, json};
use tonic::Code;

use crate::auth::authorization::Caller;
use crate::event_store::backups::{self, BackupPhase, BackupState};
use crate::event_store::scavenging::{
    ScavengeOptions, ScavengePhase, ScavengeStart, ScavengeState, file_names, report_json,
};
use crate::event_store::work_history::{StopReason, WorkKind, WorkOrigin};
use crate::http::api::api_request::ApiRequest;
use crate::http::api::api_response::{
    ApiError, ApiResult, HttpResponse, json_response, set_header,
};
use crate::http::api::route_table::Operation;
use crate::http::console::query_string::QueryString;
use crate::limits::{BACKUP_RATE_MIN, PROMOTION_TIME};
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;
use crate::services::operations;

/// Runs an operation of this page.
pub async fn run(
    service: &Arc<ServerContext>,
    operation: Operation,
    request: &ApiRequest,
) -> ApiResult {
    match operation {
        Operation::StartScavenge => start_scavenge(service, request).await,
        Operation::CurrentScavenge => Ok(ok(current_scavenge(service))),
        Operation::LastScavenge => Ok(ok(last_scavenge(service))),
        Operation::ReadScavenge => read_scavenge(service, request.parameter(0)),
        Operation::StopScavenge => stop_scavenge(service, request.parameter(0)),
        Operation::ScavengeHistory => {
            Ok(ok(json!({ "scavenges": service.scavenge_history.to_json() })))
        }
        Operation::BackupHistory => {
            Ok(ok(json!({ "backups": service.backups.history().to_json() })))
        }
        Operation::StartBackup => start_backup(service, request),
        Operation::ReadBackup => read_backup(service, request.parameter(0)),
        Operation::StopBackup => stop_backup(service, request.parameter(0)),
        Operation::Shutdown => {
            operations::shutdown(Arc::clone(service), &request.caller()).await?;
            Ok(ok(json!({ "success": true })))
        }
        Operation::Promote => promote(service, &request.caller()).await,
        _ => reload_config(service, &request.caller()).await,
    }
}

fn ok(value: Value) -> HttpResponse {
    json_response(StatusCode::OK, &value)
}

fn scavenge_link(id: &str) -> String {
    format!("/admin/scavenge/{id}")
}

/// The origin of work that the caller starts.
fn origin(request: &ApiRequest) -> WorkOrigin {
    WorkOrigin::of_user(request.caller().user_name())
}

async fn start_scavenge(service: &ServerContext, request: &ApiRequest) -> ApiResult {
    let query = request.query();
    let number = |name: &str, least: u64, default: u64| {
        let number = query.number(name)?.unwrap_or(default);
        let fits = |number: &u32| u64::from(*number) >= least;
        let wrong =
            || ApiError::bad_request(format!("{name} is {number}, but must be at least {least}"));
        u32::try_from(number).ok().filter(fits).ok_or_else(wrong)
    };
    let percent = |name: &str, least: u64| {
        let percent = query.number(name)?;
        match percent.filter(|percent| !(least..=100).contains(percent)) {
            Some(wrong) => {
                Err(ApiError::bad_request(format!("{name} is {wrong}, but must be {least} to 100")))
            }
            None => Ok(percent),
        }
    };
    let options = ScavengeOptions {
        threads: number("threads", 1, 1)?,
        first_chunk: number("startFromChunk", 0, 0)?,
        removes_all: query.choice("removeAll", [("true", true), ("false", false)])? == Some(true),
        busy_percent: percent("throttlePercent", 1)?,
        bytes_per_second: bytes_per_second(query, 1)?,
        dead_percent_min: percent("thresholdPercent", 0)?.unwrap_or(0),
    };
    match service.start_scavenge(options, origin(request)).await? {
        ScavengeStart::Started(id) => {
            let link = scavenge_link(&id);
            let mut response = ok(json!({ "scavengeId": id, "scavengeLink": link }));
            set_header(&mut response, LOCATION, &link);
            Ok(response)
        }
        ScavengeStart::InProgress(id) => {
            let error = ApiError::new(StatusCode::CONFLICT, "a scavenge is already running");
            let link = scavenge_link(&id);
            Err(error.with_detail("scavengeId", id.into()).with_detail("scavengeLink", link.into()))
        }
    }
}

/// The rate limit of a scavenge or a backup, which would not end with a lower one.
fn bytes_per_second(query: &QueryString, least: u64) -> Result<Option<u64>, ApiError> {
    match query.number("bytesPerSecond")? {
        Some(rate) if rate < least => Err(ApiError::bad_request(format!(
            "bytesPerSecond is {rate}, but must be at least {least}"
        ))),
        rate => Ok(rate),
    }
}

fn current_scavenge(service: &ServerContext) -> Value {
    match service.scavenger.last_state() {
        Some(state) if state.phase == ScavengePhase::InProgress => {
            json!({ "scavengeId": state.id, "scavengeLink": scavenge_link(&state.id) })
        }
        _ => json!({}),
    }
}

fn last_scavenge(service: &ServerContext) -> Value {
    match service.scavenger.last_state() {
        Some(state) => scavenge_json(&state),
        None => json!({ "scavengeResult": "Unknown" }),
    }
}

fn read_scavenge(service: &ServerContext, id: &str) -> ApiResult {
    if let Some(state) = service.scavenger.state(id) {
        return Ok(ok(scavenge_json(&state)));
    }
    // An earlier run of the server may have started it.
    let missing = || ApiError::not_found("the history has no scavenge with this id");
    let record = service.scavenge_history.record(id).ok_or_else(missing)?;
    let mut value = record.to_json(WorkKind::Scavenge);
    value["scavengeLink"] = scavenge_link(id).into();
    Ok(ok(value))
}

fn scavenge_json(state: &ScavengeState) -> Value {
    let ScavengeState { id, phase, removes_all, report, .. } = state;
    let (result, error) = match phase {
        ScavengePhase::InProgress => ("InProgress", None),
        ScavengePhase::Success => ("Success", None),
        ScavengePhase::Stopped => ("Stopped", None),
        ScavengePhase::Errored(error) => ("Errored", Some(error)),
    };
    let mut value = Value::Object(report_json(report, *removes_all));
    value["scavengeId"] = json!(id);
    value["scavengeLink"] = scavenge_link(id).into();
    value["scavengeResult"] = result.into();
    value["error"] = json!(error);
    value["filesKept"] = json!(file_names(&report.files_kept));
    value["filesWithOtherNames"] = json!(file_names(&report.files_with_other_names));
    value
}

fn stop_scavenge(service: &ServerContext, id: &str) -> ApiResult {
    let current = match id {
        "current" => current_scavenge(service)["scavengeId"].as_str().map(str::to_string),
        id => Some(id.to_string()),
    };
    let Some(id) = current else { return Err(ApiError::not_found("no scavenge is running")) };
    service.scavenger.stop(&id, StopReason::Requested)?;
    Ok(ok(json!({ "scavengeId": id, "scavengeLink": scavenge_link(&id) })))
}

fn backup_link(id: &str) -> String {
    format!("/admin/backup/{id}")
}

fn start_backup(service: &ServerContext, request: &ApiRequest) -> ApiResult {
    let rate = bytes_per_second(request.query(), BACKUP_RATE_MIN)?;
    let id = service.start_backup(origin(request), rate).map_err(|status| {
        let running = service.backups.running_state();
        let is_running = status.code() == Code::AlreadyExists;
        let error = ApiError::from(status);
        match running.filter(|_| is_running) {
            Some(state) => error
                .with_detail("backupLink", backup_link(&state.id).into())
                .with_detail("backupId", state.id.into()),
            None => error,
        }
    })?;
    let link = backup_link(&id);
    let value = json!({ "backupId": id, "backupLink": link });
    let mut response = json_response(StatusCode::ACCEPTED, &value);
    set_header(&mut response, LOCATION, &link);
    Ok(response)
}

fn read_backup(service: &ServerContext, id: &str) -> ApiResult {
    let state = match id {
        "last" => service.backups.last_state(),
        "current" => {
            let running = service.backups.running_state();
            Some(running.ok_or_else(|| ApiError::not_found("no backup is running"))?)
        }
        id => service.backups.state(id),
    };
    let Some(BackupState { id, progress, phase, omits_keys_and_values }) = state else {
        // An earlier run of the server may have started it.
        let history = service.backups.history();
        let (record, missing) = match id {
            "last" => (history.last_record(), "the history has no backup yet"),
            id => (history.record(id), "the history has no backup with this id"),
        };
        let record = record.ok_or_else(|| ApiError::not_found(missing))?;
        let mut value = record.to_json(WorkKind::Backup);
        value["backupLink"] = backup_link(&record.id).into();
        return Ok(ok(value));
    };
    let mut value = match &phase {
        BackupPhase::Success(report) => backups::report_json(report),
        _ => Map::new(),
    };
    value.insert("backupLink".into(), backup_link(&id).into());
    value.insert("backupId".into(), id.into());
    value.insert("directory".into(), json!(service.backups.directory()));
    let (bytes, total) = progress.map_or((0, 0), |progress| (progress.bytes, progress.total_bytes));
    value.insert("bytes".into(), bytes.into());
    value.insert("totalBytes".into(), total.into());
    let (outcome, reason) = phase.outcome();
    if let Some(reason) = reason {
        value.insert("error".into(), reason.into());
    }
    value.insert("backupResult".into(), outcome.name().into());
    value.insert(backups::OMITS_KEYS_AND_VALUES.into(), omits_keys_and_values.into());
    Ok(ok(Value::Object(value)))
}

fn stop_backup(service: &ServerContext, id: &str) -> ApiResult {
    let id = match id {
        "current" => {
            let stopped = service.backups.stop_running(StopReason::Requested);
            stopped.ok_or_else(|| ApiError::not_found("no backup is running"))?
        }
        id => {
            service.backups.stop(id, StopReason::Requested)?;
            id.to_string()
        }
    };
    Ok(ok(json!({ "backupId": id, "backupLink": backup_link(&id) })))
}

async fn promote(service: &ServerContext, caller: &Caller) -> ApiResult {
    let Some(node) = service.replica.clone() else {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "this server has its event store alone: only a node of a replicated log can be \
             promoted (umbel serve --store URL --node NAME)",
        ));
    };
    tracing::info!(by = caller.user_name(), "promotion requested");
    match tokio::task::spawn_blocking(move || node.promote(PROMOTION_TIME)).await {
        Ok(Ok(epoch)) => Ok(ok(json!({ "success": true, "epoch": epoch }))),
        Ok(Err(refusal)) => Err(ApiError::new(StatusCode::CONFLICT, refusal)),
        Err(_) => Err(grpc_status::shutting_down().into()),
    }
}

async fn reload_config(service: &ServerContext, caller: &Caller) -> ApiResult {
    let Some(tls) = &service.tls else {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "the server has no certificates, which are what a reload loads; other options need a \
             restart",
        ));
    };
    tracing::info!(by = caller.user_name(), "certificate reload requested");
    let tls = Arc::clone(tls);
    match tokio::task::spawn_blocking(move || tls.reload_on_request()).await {
        Ok(Ok(())) => Ok(ok(json!({ "success": true }))),
        Ok(Err(refusal)) => Err(ApiError::new(StatusCode::CONFLICT, refusal)),
        Err(_) => Err(grpc_status::shutting_down().into()),
    }
}
