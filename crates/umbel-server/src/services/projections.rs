//! Calls about projections. The index implements the built-in projections as views: a client can
//! stop, start and reset them, and read their state. The server runs no projections that users
//! write.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, stream};
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tonic::body::Body;
use tonic::{Request, Response, Status};
use umbel_base::fail_point;
use umbel_proto::projections::{
    CreateMode, CreateReq, Details, ProjectionReq, StateResp, StatisticsMode, StatisticsReq,
    StatisticsResp,
};

use crate::event_store::system_projections::{
    self, ProjectionCommand, ProjectionState, SystemProjection,
};
use crate::grpc::grpc_dispatch::{Handler, grpc_dispatch};
use crate::grpc::request_body::RequestBody;
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;

/// Built-in projections of KurrentDB, in its order.
const BUILT_IN: [&str; 5] =
    ["$streams", "$stream_by_category", "$by_category", "$by_event_type", "$by_correlation_id"];

const RUNNING: &str = "Running";
const STOPPED: &str = "Stopped";
const CONTINUOUS: &str = "Continuous";

/// Message about built-in projections of KurrentDB that Umbel does not have.
const UNSUPPORTED: &str =
    "is not kept by this server; $by_category, $by_event_type and $streams are";

type Statistics = Pin<Box<dyn Stream<Item = Result<StatisticsResp, Status>> + Send>>;

/// Serves a call.
pub async fn call(
    service: Arc<ServerContext>,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    let path = request.uri().path();
    match path.strip_prefix("/event_store.client.projections.Projections/") {
        Some("Create") => grpc_dispatch().unary(Handler::new(create), request).await,
        Some("Update") => {
            let update = Handler::new(|request| reject_change(request, "changed"));
            grpc_dispatch().unary(update, request).await
        }
        Some("Delete") => {
            let delete = Handler::new(|request| reject_change(request, "deleted"));
            grpc_dispatch().unary(delete, request).await
        }
        Some("Statistics") => {
            let statistics = Handler::new(move |request| statistics(service, request));
            grpc_dispatch().server_streaming(statistics, request).await
        }
        Some("Disable") => handle_change(service, ProjectionCommand::Disable, request).await,
        Some("Enable") => handle_change(service, ProjectionCommand::Enable, request).await,
        Some("Reset") => handle_change(service, ProjectionCommand::Reset, request).await,
        Some("State" | "Result") => grpc_dispatch().unary(Handler::new(value), request).await,
        // No subsystem could hang: the views are part of the index.
        Some("RestartSubsystem") => {
            grpc_dispatch().unary(Handler::constant::<(), _>(()), request).await
        }
        _ => grpc_status::unknown_method(path).into_http(),
    }
}

async fn handle_change(
    service: Arc<ServerContext>,
    change: ProjectionCommand,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    let change = Handler::new(move |request| apply_command(service, change, request));
    grpc_dispatch().unary(change, request).await
}

async fn create(request: Request<CreateReq>) -> Result<Response<()>, Status> {
    let options = request.into_inner().options.ok_or_else(missing_options)?;
    let name = match options.mode {
        Some(CreateMode::Transient(named) | CreateMode::Continuous(named)) => named.name,
        Some(CreateMode::OneTime(())) => String::new(),
        None => {
            return Err(Status::invalid_argument(
                "the request has no mode of the projection; set one_time, transient or continuous",
            ));
        }
    };
    if BUILT_IN.contains(&&*name) {
        return Err(Status::already_exists(format!("Projection '{name}' already exists")));
    }
    Err(Status::unimplemented(
        "projections in JavaScript are not run here; subscribe to the events, filtered or by a \
         view such as $ce-CATEGORY, and keep the result in your program",
    ))
}

/// Refuses to change or delete a built-in projection.
async fn reject_change(
    request: Request<ProjectionReq>,
    what: &str,
) -> Result<Response<()>, Status> {
    let name = projection_name(request.into_inner())?;
    Err(Status::failed_precondition(format!(
        "Projection '{name}' is built in and cannot be {what}; it can be disabled"
    )))
}

async fn apply_command(
    service: Arc<ServerContext>,
    change: ProjectionCommand,
    request: Request<ProjectionReq>,
) -> Result<Response<()>, Status> {
    let name = projection_name(request.into_inner())?;
    let Some(view) = system_projections::by_name(&name) else {
        return match change {
            ProjectionCommand::Enable => {
                Err(Status::unimplemented(format!("Projection '{name}' {UNSUPPORTED}")))
            }
            ProjectionCommand::Disable | ProjectionCommand::Reset => Ok(Response::new(())),
        };
    };
    let ids = [service.event_id()?, service.event_id()?, service.event_id()?];
    // The change completes even if its client leaves.
    let changing = tokio::spawn(async move {
        service.system_projections.apply(&service.store, view, change, ids).await
    });
    match changing.await {
        Ok(Ok(())) => Ok(Response::new(())),
        Ok(Err(error)) => Err(grpc_status::status(&error)),
        Err(_) => Err(grpc_status::shutting_down()),
    }
}

/// Returns the state or result of a built-in projection, which is always empty.
async fn value(request: Request<ProjectionReq>) -> Result<Response<StateResp>, Status> {
    projection_name(request.into_inner())?;
    let state = Some(Value { kind: Some(Kind::StructValue(Struct::default())) });
    Ok(Response::new(StateResp { state }))
}

async fn statistics(
    service: Arc<ServerContext>,
    request: Request<StatisticsReq>,
) -> Result<Response<Statistics>, Status> {
    let mode = request.into_inner().options.and_then(|options| options.mode);
    let names = match mode.ok_or_else(missing_options)? {
        StatisticsMode::Name(name) => vec![check_name(name)?],
        StatisticsMode::All(()) | StatisticsMode::Continuous(()) => {
            BUILT_IN.map(str::to_string).to_vec()
        }
        StatisticsMode::Transient(()) | StatisticsMode::OneTime(()) => Vec::new(),
    };
    let mut answers = Vec::with_capacity(names.len());
    for name in names {
        let details = match system_projections::by_name(&name) {
            Some(view) => projection_details(&service, name, view).await,
            None => unsupported_details(name),
        };
        answers.push(Ok(StatisticsResp { details: Some(details) }));
    }
    Ok(Response::new(Box::pin(stream::iter(answers))))
}

async fn projection_details(
    service: &ServerContext,
    name: String,
    view: SystemProjection,
) -> Details {
    let ProjectionState { visible_through: through, version, epoch } =
        service.system_projections.state(view).await;
    let visible = service.store.visible_position();
    let position = through.unwrap_or(visible).min(visible);
    let progress = if visible == 0 { 100.0 } else { position as f32 / visible as f32 * 100.0 };
    let position = format!("C:{position}/P:{position}");
    Details {
        version: i64::try_from(version).unwrap_or(i64::MAX),
        epoch: i64::try_from(epoch).unwrap_or(i64::MAX),
        effective_name: name.clone(),
        name,
        status: status_text(through.is_some()).to_string(),
        mode: CONTINUOUS.to_string(),
        last_checkpoint: position.clone(),
        position,
        progress,
        ..Details::default()
    }
}

fn status_text(is_stopped: bool) -> &'static str {
    fail_point!("server-report-stopped-view-running", |_| RUNNING);
    if is_stopped { STOPPED } else { RUNNING }
}

fn unsupported_details(name: String) -> Details {
    Details {
        effective_name: name.clone(),
        status: STOPPED.to_string(),
        state_reason: format!("it {UNSUPPORTED}"),
        mode: CONTINUOUS.to_string(),
        name,
        ..Details::default()
    }
}

/// Reads the name in a request; fails if no projection has this name.
fn projection_name(request: ProjectionReq) -> Result<String, Status> {
    check_name(request.options.ok_or_else(missing_options)?.name)
}

/// Returns the name; fails if no projection has this name.
fn check_name(name: String) -> Result<String, Status> {
    if BUILT_IN.contains(&&*name) {
        return Ok(name);
    }
    let shown: String = name.chars().take(grpc_status::PATH_CHARS_MAX).collect();
    Err(Status::not_found(format!("Projection '{shown}' not found")))
}

fn missing_options() -> Status {
    Status::invalid_argument("the request has no options, so it names no projection")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_that_can_be_stopped_is_built_in() {
        let kept = BUILT_IN.iter().filter(|name| system_projections::by_name(name).is_some());
        assert_eq!(kept.count(), 3);
        assert_eq!(system_projections::by_name("$streams"), Some(SystemProjection::Streams));
        assert_eq!(check_name("$by_category".to_string()).unwrap(), "$by_category");
        let status = check_name("mine".to_string()).unwrap_err();
        assert_eq!(status.message(), "Projection 'mine' not found");
        assert!(check_name("x".repeat(1 << 20)).unwrap_err().message().len() < 300);
    }
}
