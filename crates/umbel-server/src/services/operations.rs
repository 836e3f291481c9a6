//! Calls for operators: scavenge, shutdown, and no-ops for operations of a cluster.

use std::sync::Arc;

use tonic::body::Body;
use tonic::{Request, Response, Status};
use umbel_proto::operations::{
    ScavengeResp, ScavengeResult, SetNodePriorityReq, StartScavengeReq, StopScavengeReq,
};

use crate::auth::authorization::Caller;
use crate::event_store::scavenging::{ScavengeOptions, ScavengeStart};
use crate::event_store::work_history::{StopReason, WorkOrigin};
use crate::grpc::grpc_dispatch::{Handler, grpc_dispatch};
use crate::grpc::request_body::RequestBody;
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;
use crate::services::persistent_subscriptions;

/// Serves a call.
pub async fn call(
    service: Arc<ServerContext>,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    let path = request.uri().path();
    match path.strip_prefix("/event_store.client.operations.Operations/") {
        Some("StartScavenge") => {
            let start = Handler::new(move |request| start_scavenge(service, request));
            grpc_dispatch().unary(start, request).await
        }
        Some("StopScavenge") => {
            let stop = Handler::new(move |request| stop_scavenge(service, request));
            grpc_dispatch().unary(stop, request).await
        }
        Some("Shutdown") => {
            let shutdown = Handler::new(move |request: Request<()>| async move {
                shutdown(service, &Caller::from_extensions(request.extensions())).await
            });
            grpc_dispatch().unary(shutdown, request).await
        }
        // The index is compacted all the time; there is nothing to begin.
        Some("MergeIndexes") => {
            grpc_dispatch().unary(Handler::constant::<(), _>(()), request).await
        }
        // The single node leads whatever its priority.
        Some("SetNodePriority") => {
            grpc_dispatch().unary(Handler::constant::<SetNodePriorityReq, _>(()), request).await
        }
        Some("RestartPersistentSubscriptions") => {
            let restart = Handler::new(move |request: Request<()>| async move {
                let caller = Caller::from_extensions(request.extensions());
                persistent_subscriptions::restart(service, &caller).await
            });
            grpc_dispatch().unary(restart, request).await
        }
        // The single node is elected again at once.
        Some("ResignNode") => grpc_dispatch().unary(Handler::constant::<(), _>(()), request).await,
        _ => grpc_status::unknown_method(path).into_http(),
    }
}

async fn start_scavenge(
    service: Arc<ServerContext>,
    request: Request<StartScavengeReq>,
) -> Result<Response<ScavengeResp>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let origin = WorkOrigin::of_user(caller.user_name());
    let options = request.into_inner().options.ok_or_else(missing_options)?;
    let threads = u32::try_from(options.thread_count).ok().filter(|threads| *threads > 0);
    let options = match (threads, u32::try_from(options.start_from_chunk)) {
        (Some(threads), Ok(first_chunk)) => {
            let removes_all = options.remove_all;
            ScavengeOptions { threads, first_chunk, removes_all, ..ScavengeOptions::default() }
        }
        _ => {
            return Err(Status::invalid_argument(format!(
                "thread_count is {} and start_from_chunk {}, but these must be at least 1 and 0",
                options.thread_count, options.start_from_chunk
            )));
        }
    };
    let (scavenge_id, result) = match service.start_scavenge(options, origin).await? {
        ScavengeStart::Started(id) => (id, ScavengeResult::Started),
        ScavengeStart::InProgress(id) => (id, ScavengeResult::InProgress),
    };
    Ok(Response::new(ScavengeResp { scavenge_id, scavenge_result: result.into() }))
}

async fn stop_scavenge(
    service: Arc<ServerContext>,
    request: Request<StopScavengeReq>,
) -> Result<Response<ScavengeResp>, Status> {
    let scavenge_id = request.into_inner().options.ok_or_else(missing_options)?.scavenge_id;
    service.scavenger.stop(&scavenge_id, StopReason::Requested)?;
    let scavenge_result = ScavengeResult::Stopped.into();
    Ok(Response::new(ScavengeResp { scavenge_id, scavenge_result }))
}

/// Requests a shutdown. The server drains the shutdown call too, so its response is sent.
pub async fn shutdown(
    service: Arc<ServerContext>,
    caller: &Caller,
) -> Result<Response<()>, Status> {
    if !service.request_stop() {
        return Err(Status::unimplemented(
            "this server is embedded in a program; only that program can stop the server",
        ));
    }
    tracing::info!(by = caller.user_name(), "shutdown began");
    Ok(Response::new(()))
}

fn missing_options() -> Status {
    Status::invalid_argument("the request has no options")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tonic::Code;
    use umbel_proto::operations::{StartScavengeOptions, StopScavengeOptions};

    use super::*;
    use crate::event_store::scavenging::Scavenger;
    use crate::test_support::test_service::{TestService, run_paused};

    /// Scavenger for tests that only records requests.
    #[derive(Debug, Default)]
    struct StubScavenger(Mutex<Vec<ScavengeOptions>>);

    impl Scavenger for StubScavenger {
        fn start(&self, options: ScavengeOptions, _: WorkOrigin) -> Result<ScavengeStart, Status> {
            let mut requests = self.0.lock().unwrap();
            requests.push(options);
            let id = "one".to_string();
            Ok(if requests.len() == 1 {
                ScavengeStart::Started(id)
            } else {
                ScavengeStart::InProgress(id)
            })
        }

        fn stop(&self, id: &str, _: StopReason) -> Result<(), Status> {
            if id == "one" { Ok(()) } else { Err(grpc_status::scavenge_not_found(id)) }
        }
    }

    fn start(thread_count: i32, start_from_chunk: i32) -> Request<StartScavengeReq> {
        let options = StartScavengeOptions { thread_count, start_from_chunk, remove_all: true };
        let options = Some(options);
        Request::new(StartScavengeReq { options })
    }

    #[test]
    fn scavenge_runs_once_and_stops_by_its_id() {
        run_paused(async {
            let scavenger = Arc::new(StubScavenger::default());
            let service =
                TestService::with_scavenger(Arc::clone(&scavenger) as Arc<dyn Scavenger>).service;
            for result in [ScavengeResult::Started, ScavengeResult::InProgress] {
                let answer = start_scavenge(Arc::clone(&service), start(2, 7)).await.unwrap();
                let answer = answer.into_inner();
                assert_eq!((answer.scavenge_result(), &*answer.scavenge_id), (result, "one"));
            }
            let wanted = ScavengeOptions {
                threads: 2,
                first_chunk: 7,
                removes_all: true,
                ..ScavengeOptions::default()
            };
            assert_eq!(*scavenger.0.lock().unwrap(), [wanted, wanted]);
            for (id, code) in [("one", Code::Ok), ("two", Code::NotFound)] {
                let options = Some(StopScavengeOptions { scavenge_id: id.to_string() });
                let request = Request::new(StopScavengeReq { options });
                let answer = stop_scavenge(Arc::clone(&service), request).await;
                assert_eq!(answer.map_or_else(|status| status.code(), |_| Code::Ok), code);
            }
            for (threads, chunk) in [(0, 0), (-1, 0), (1, -1)] {
                let status = start_scavenge(Arc::clone(&service), start(threads, chunk)).await;
                assert_eq!(status.unwrap_err().code(), Code::InvalidArgument);
            }
        });
    }
}
