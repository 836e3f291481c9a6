//! Routes of `/admin`: scavenges, backups, shutdown and certificates.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::LOCATION;
use serde_json::{Map, Value, json};
use tonic::Code;

use crate::event_store::backups::BackupState;
use crate::event_store::scavenging::{
    ScavengeOptions, ScavengePhase, ScavengeStart, ScavengeState, file_names,
};
use crate::http::api::api_request::ApiRequest;
use crate::http::api::api_response::{
    ApiError, ApiResult, HttpResponse, json_response, set_header,
};
use crate::http::api::route_table::Operation;
use crate::http::console::query_string::QueryString;
use crate::server_context::ServerContext;
use crate::services::operations;

/// Runs an operation of this page.
pub async fn run(
    service: &Arc<ServerContext>,
    operation: Operation,
    request: &ApiRequest,
) -> ApiResult {
    match operation {
        Operation::StartScavenge => start_scavenge(service, request.query()),
        Operation::CurrentScavenge => Ok(ok(current_scavenge(service))),
        Operation::LastScavenge => Ok(ok(last_scavenge(service))),
        Operation::ReadScavenge => read_scavenge(service, request.parameter(0)),
        Operation::StopScavenge => stop_scavenge(service, request.parameter(0)),
        Operation::StartBackup => start_backup(service),
        Operation::ReadBackup => read_backup(service, request.parameter(0)),
        Operation::Shutdown => {
            operations::shutdown(Arc::clone(service)).await?;
            Ok(ok(json!({ "success": true })))
        }
        _ => reload_config(service),
    }
}

fn ok(value: Value) -> HttpResponse {
    json_response(StatusCode::OK, &value)
}

fn scavenge_link(id: &str) -> String {
    format!("/admin/scavenge/{id}")
}

fn start_scavenge(service: &ServerContext, query: &QueryString) -> ApiResult {
    let number = |name: &str, least: u64, default: u64| {
        let number = query.number(name)?.unwrap_or(default);
        let fits = |number: &u32| u64::from(*number) >= least;
        let wrong =
            || ApiError::bad_request(format!("{name} is {number}, but must be at least {least}"));
        u32::try_from(number).ok().filter(fits).ok_or_else(wrong)
    };
    if number("throttlePercent", 1, 100)? != 100 {
        return Err(ApiError::bad_request(
            "throttlePercent must be 100: `umbel scavenge --busy PERCENT` limits a scavenge",
        ));
    }
    let options = ScavengeOptions {
        threads: number("threads", 1, 1)?,
        first_chunk: number("startFromChunk", 0, 0)?,
        removes_all: query.choice("removeAll", [("true", true), ("false", false)])? == Some(true),
    };
    match service.scavenger.start(options)? {
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
    let missing = || ApiError::not_found("this run of the server has no scavenge with this id");
    let state = service.scavenger.state(id).ok_or_else(missing)?;
    Ok(ok(scavenge_json(&state)))
}

fn scavenge_json(state: &ScavengeState) -> Value {
    let ScavengeState { id, phase, removes_all, report } = state;
    let (result, error) = match phase {
        ScavengePhase::InProgress => ("InProgress", None),
        ScavengePhase::Success => ("Success", None),
        ScavengePhase::Stopped => ("Stopped", None),
        ScavengePhase::Errored(error) => ("Errored", Some(error)),
    };
    json!({
        "scavengeId": id,
        "scavengeLink": scavenge_link(id),
        "scavengeResult": result,
        "error": error,
        "chunks": report.chunks,
        "chunksExamined": report.chunks_examined,
        "chunksRewritten": report.chunks_rewritten,
        "events": report.events,
        "eventsRemoved": report.events_removed,
        "eventsStubbed": report.events_stubbed,
        "bytesFreed": report.bytes_freed,
        "resumedFrom": report.resumed_from,
        "removesAll": removes_all,
        "hiddenEventsLeft": report.hidden_events_left,
        "filesKept": file_names(&report.files_kept),
        "filesWithOtherNames": file_names(&report.files_with_other_names),
    })
}

fn stop_scavenge(service: &ServerContext, id: &str) -> ApiResult {
    let current = match id {
        "current" => current_scavenge(service)["scavengeId"].as_str().map(str::to_string),
        id => Some(id.to_string()),
    };
    let Some(id) = current else { return Err(ApiError::not_found("no scavenge is running")) };
    service.scavenger.stop(&id)?;
    Ok(ok(json!({ "scavengeId": id, "scavengeLink": scavenge_link(&id) })))
}

fn backup_link(id: &str) -> String {
    format!("/admin/backup/{id}")
}

fn start_backup(service: &ServerContext) -> ApiResult {
    let id = service.backups.start_with_id().map_err(|status| {
        let running = service.backups.last_state().filter(|state| state.result.is_none());
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
        id => service.backups.state(id),
    };
    let missing = || ApiError::not_found("this run of the server has no backup with this id");
    let BackupState { id, progress, result } = state.ok_or_else(missing)?;
    let mut value = Map::new();
    value.insert("backupLink".into(), backup_link(&id).into());
    value.insert("backupId".into(), id.into());
    value.insert("directory".into(), json!(service.backups.directory()));
    let (bytes, total) = progress.map_or((0, 0), |progress| (progress.bytes, progress.total_bytes));
    value.insert("bytes".into(), bytes.into());
    value.insert("totalBytes".into(), total.into());
    let outcome = match &result {
        None => "InProgress",
        Some(Err(error)) => {
            value.insert("error".into(), error.as_str().into());
            "Errored"
        }
        Some(Ok(report)) => {
            value.insert("through".into(), report.through.0.to_string().into());
            value.insert("number".into(), report.number.into());
            value.insert("files".into(), report.files.into());
            value.insert("backupBytes".into(), report.bytes.into());
            value.insert("copiedFiles".into(), report.copied_files.into());
            value.insert("copiedBytes".into(), report.copied_bytes.into());
            "Success"
        }
    };
    value.insert("backupResult".into(), outcome.into());
    Ok(ok(Value::Object(value)))
}

fn reload_config(service: &ServerContext) -> ApiResult {
    let Some(tls) = &service.tls else {
        return Err(ApiError::new(
            StatusCode::CONFLICT,
            "the server has no certificates, which are what a reload loads; other options need a \
             restart",
        ));
    };
    tls.request_reload();
    Ok(ok(json!({ "success": true })))
}
