//! The calls about projections. What servers of this kind have built in is made of the index here:
//! it can be stopped, started, reset and asked what it does. Programs of users are not run.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, stream};
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tonic::body::Body;
use tonic::{Request, Response, Status};
use umbel_proto::projections::{
    CreateMode, CreateReq, Details, NamedReq, StatisticsMode, StatisticsReq, StatisticsResp,
    ValueResp,
};

use crate::asked::Asked;
use crate::failure;
use crate::gates::{self, Change, Gate, View};
use crate::handler::{Handler, grpc};
use crate::service::Service;

/// What such servers have built in, in their order.
const BUILT_IN: [&str; 5] =
    ["$streams", "$stream_by_category", "$by_category", "$by_event_type", "$by_correlation_id"];

const RUNNING: &str = "Running";
const STOPPED: &str = "Stopped";
const CONTINUOUS: &str = "Continuous";

/// What is said of those that are built in elsewhere and not here.
const NOT_KEPT: &str = "is not kept by this server; $by_category, $by_event_type and $streams are";

type Statistics = Pin<Box<dyn Stream<Item = Result<StatisticsResp, Status>> + Send>>;

/// Serves a call.
pub async fn call(service: Arc<Service>, request: hyper::Request<Asked>) -> hyper::Response<Body> {
    let path = request.uri().path();
    match path.strip_prefix("/event_store.client.projections.Projections/") {
        Some("Create") => grpc().unary(Handler::new(create), request).await,
        Some("Update") => {
            let update = Handler::new(|asked| fixed(asked, "changed"));
            grpc().unary(update, request).await
        }
        Some("Delete") => {
            let delete = Handler::new(|asked| fixed(asked, "deleted"));
            grpc().unary(delete, request).await
        }
        Some("Statistics") => {
            let statistics = Handler::new(move |asked| statistics(service, asked));
            grpc().server_streaming(statistics, request).await
        }
        Some("Disable") => changing(service, Change::Disable, request).await,
        Some("Enable") => changing(service, Change::Enable, request).await,
        Some("Reset") => changing(service, Change::Reset, request).await,
        Some("State" | "Result") => grpc().unary(Handler::new(value), request).await,
        // There is no subsystem that could hang: the views are part of the index.
        Some("RestartSubsystem") => grpc().unary(Handler::saying::<(), _>(()), request).await,
        _ => failure::not_served(path).into_http(),
    }
}

async fn changing(
    service: Arc<Service>,
    change: Change,
    request: hyper::Request<Asked>,
) -> hyper::Response<Body> {
    let change = Handler::new(move |asked| changed(service, change, asked));
    grpc().unary(change, request).await
}

async fn create(request: Request<CreateReq>) -> Result<Response<()>, Status> {
    let options = request.into_inner().options.ok_or_else(no_options)?;
    let name = match options.mode {
        Some(CreateMode::Transient(named) | CreateMode::Continuous(named)) => named.name,
        Some(CreateMode::OneTime(())) => String::new(),
        None => {
            return Err(Status::invalid_argument(
                "the request does not say how the projection runs; say one_time, transient or \
                 continuous",
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

/// What is built in can be neither changed nor deleted.
async fn fixed(request: Request<NamedReq>, what: &str) -> Result<Response<()>, Status> {
    let name = named(request.into_inner())?;
    Err(Status::failed_precondition(format!(
        "Projection '{name}' is built in and cannot be {what}; it can be disabled"
    )))
}

async fn changed(
    service: Arc<Service>,
    change: Change,
    request: Request<NamedReq>,
) -> Result<Response<()>, Status> {
    let name = named(request.into_inner())?;
    let Some(view) = gates::view(&name) else {
        return match change {
            Change::Enable => Err(Status::unimplemented(format!("Projection '{name}' {NOT_KEPT}"))),
            Change::Disable | Change::Reset => Ok(Response::new(())),
        };
    };
    let ids = [service.event_id()?, service.event_id()?, service.event_id()?];
    // Whoever asked may go away; the change is done to its end all the same.
    let changing =
        tokio::spawn(async move { service.gates.change(&service.store, view, change, ids).await });
    match changing.await {
        Ok(Ok(())) => Ok(Response::new(())),
        Ok(Err(error)) => Err(failure::status(&error)),
        Err(_) => Err(failure::stopping()),
    }
}

/// The state or the result of what is built in: it has none.
async fn value(request: Request<NamedReq>) -> Result<Response<ValueResp>, Status> {
    named(request.into_inner())?;
    let value = Some(Value { kind: Some(Kind::StructValue(Struct::default())) });
    Ok(Response::new(ValueResp { value }))
}

async fn statistics(
    service: Arc<Service>,
    request: Request<StatisticsReq>,
) -> Result<Response<Statistics>, Status> {
    let mode = request.into_inner().options.and_then(|options| options.mode);
    let names = match mode.ok_or_else(no_options)? {
        StatisticsMode::Name(name) => vec![known(name)?],
        StatisticsMode::All(()) | StatisticsMode::Continuous(()) => {
            BUILT_IN.map(str::to_string).to_vec()
        }
        StatisticsMode::Transient(()) | StatisticsMode::OneTime(()) => Vec::new(),
    };
    let mut answers = Vec::with_capacity(names.len());
    for name in names {
        let details = match gates::view(&name) {
            Some(view) => of_view(&service, name, view).await,
            None => not_kept(name),
        };
        answers.push(Ok(StatisticsResp { details: Some(details) }));
    }
    Ok(Response::new(Box::pin(stream::iter(answers))))
}

async fn of_view(service: &Service, name: String, view: View) -> Details {
    let Gate { through, version, epoch } = service.gates.gate(view).await;
    let visible = service.store.visible();
    let position = through.unwrap_or(visible).min(visible);
    let progress = if visible == 0 { 100.0 } else { position as f32 / visible as f32 * 100.0 };
    let position = format!("C:{position}/P:{position}");
    #[cfg(feature = "canary")]
    let through = through.filter(|_| !umbel_base::canary::Switch::ServerViewSaidToRun.is_on());
    Details {
        version: i64::try_from(version).unwrap_or(i64::MAX),
        epoch: i64::try_from(epoch).unwrap_or(i64::MAX),
        effective_name: name.clone(),
        name,
        status: if through.is_some() { STOPPED } else { RUNNING }.to_string(),
        mode: CONTINUOUS.to_string(),
        last_checkpoint: position.clone(),
        position,
        progress,
        ..Details::default()
    }
}

fn not_kept(name: String) -> Details {
    Details {
        effective_name: name.clone(),
        status: STOPPED.to_string(),
        state_reason: format!("it {NOT_KEPT}"),
        mode: CONTINUOUS.to_string(),
        name,
        ..Details::default()
    }
}

/// The name in a request, where it is that of a projection.
fn named(request: NamedReq) -> Result<String, Status> {
    known(request.options.ok_or_else(no_options)?.name)
}

/// The name, where it is that of a projection.
fn known(name: String) -> Result<String, Status> {
    if BUILT_IN.contains(&&*name) {
        return Ok(name);
    }
    let shown: String = name.chars().take(failure::PATH_SHOWN).collect();
    Err(Status::not_found(format!("Projection '{shown}' not found")))
}

fn no_options() -> Status {
    Status::invalid_argument("the request has no options, so it names no projection")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_view_that_can_be_stopped_is_built_in() {
        let kept = BUILT_IN.iter().filter(|name| gates::view(name).is_some());
        assert_eq!(kept.count(), 3);
        assert_eq!(gates::view("$streams"), Some(View::Streams));
        assert_eq!(known("$by_category".to_string()).unwrap(), "$by_category");
        let status = known("mine".to_string()).unwrap_err();
        assert_eq!(status.message(), "Projection 'mine' not found");
        assert!(known("x".repeat(1 << 20)).unwrap_err().message().len() < 300);
    }
}
