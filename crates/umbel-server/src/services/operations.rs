//! The calls of those who look after a server: scavenging, stopping, and what only several servers
//! together could do.

use std::sync::Arc;

use tonic::body::Body;
use tonic::{Request, Response, Status};
use umbel_proto::operations::{
    ScavengeResp, ScavengeResult, SetNodePriorityReq, StartScavengeReq, StopScavengeReq,
};

use crate::asked::Asked;
use crate::handler::{Handler, grpc};
use crate::scavenging::{Begun, ScavengeOptions};
use crate::service::Service;
use crate::{failure, persistent};

/// Serves a call.
pub async fn call(service: Arc<Service>, request: hyper::Request<Asked>) -> hyper::Response<Body> {
    let path = request.uri().path();
    match path.strip_prefix("/event_store.client.operations.Operations/") {
        Some("StartScavenge") => {
            let start = Handler::new(move |asked| start_scavenge(service, asked));
            grpc().unary(start, request).await
        }
        Some("StopScavenge") => {
            let stop = Handler::new(move |asked| stop_scavenge(service, asked));
            grpc().unary(stop, request).await
        }
        Some("Shutdown") => {
            let shutdown = Handler::new(move |_: Request<()>| shutdown(service));
            grpc().unary(shutdown, request).await
        }
        // The index is merged all the time; there is nothing to begin.
        Some("MergeIndexes") => grpc().unary(Handler::saying::<(), _>(()), request).await,
        // One node leads whatever its priority.
        Some("SetNodePriority") => {
            grpc().unary(Handler::saying::<SetNodePriorityReq, _>(()), request).await
        }
        Some("RestartPersistentSubscriptions") => {
            let restart = Handler::new(move |_: Request<()>| persistent::restart(service));
            grpc().unary(restart, request).await
        }
        Some("ResignNode") => {
            Status::unimplemented("there is one node, and nobody who could lead in its place")
                .into_http()
        }
        _ => failure::not_served(path).into_http(),
    }
}

async fn start_scavenge(
    service: Arc<Service>,
    request: Request<StartScavengeReq>,
) -> Result<Response<ScavengeResp>, Status> {
    let options = request.into_inner().options.ok_or_else(no_options)?;
    let threads = u32::try_from(options.thread_count).ok().filter(|threads| *threads > 0);
    let options = match (threads, u32::try_from(options.start_from_chunk)) {
        (Some(threads), Ok(first_chunk)) => ScavengeOptions { threads, first_chunk },
        _ => {
            return Err(Status::invalid_argument(format!(
                "thread_count is {} and start_from_chunk {}, but these must be at least 1 and 0",
                options.thread_count, options.start_from_chunk
            )));
        }
    };
    let (scavenge_id, result) = match service.scavenging.start(options)? {
        Begun::Started(id) => (id, ScavengeResult::Started),
        Begun::InProgress(id) => (id, ScavengeResult::InProgress),
    };
    Ok(Response::new(ScavengeResp { scavenge_id, scavenge_result: result.into() }))
}

async fn stop_scavenge(
    service: Arc<Service>,
    request: Request<StopScavengeReq>,
) -> Result<Response<ScavengeResp>, Status> {
    let scavenge_id = request.into_inner().options.ok_or_else(no_options)?.scavenge_id;
    service.scavenging.stop(&scavenge_id)?;
    let scavenge_result = ScavengeResult::Stopped.into();
    Ok(Response::new(ScavengeResp { scavenge_id, scavenge_result }))
}

/// Answers first; calls that are being served are let end.
async fn shutdown(service: Arc<Service>) -> Result<Response<()>, Status> {
    if !service.ask_to_stop() {
        return Err(Status::unimplemented(
            "this server is part of a program that stops it by itself",
        ));
    }
    Ok(Response::new(()))
}

fn no_options() -> Status {
    Status::invalid_argument("the request has no options")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tonic::Code;
    use umbel_proto::operations::{StartScavengeOptions, StopScavengeOptions};

    use super::*;
    use crate::scavenging::Scavenging;
    use crate::stage::{Stage, run};

    /// Says what it is asked.
    #[derive(Debug, Default)]
    struct Told(Mutex<Vec<ScavengeOptions>>);

    impl Scavenging for Told {
        fn start(&self, options: ScavengeOptions) -> Result<Begun, Status> {
            let mut told = self.0.lock().unwrap();
            told.push(options);
            let id = "one".to_string();
            Ok(if told.len() == 1 { Begun::Started(id) } else { Begun::InProgress(id) })
        }

        fn stop(&self, id: &str) -> Result<(), Status> {
            if id == "one" { Ok(()) } else { Err(failure::scavenge_not_found(id)) }
        }
    }

    fn start(thread_count: i32, start_from_chunk: i32) -> Request<StartScavengeReq> {
        let options = Some(StartScavengeOptions { thread_count, start_from_chunk });
        Request::new(StartScavengeReq { options })
    }

    #[test]
    fn scavenges_are_begun_once_and_stopped_by_their_names() {
        run(async {
            let told = Arc::new(Told::default());
            let service = Stage::with_scavenging(Arc::clone(&told) as Arc<dyn Scavenging>).service;
            for result in [ScavengeResult::Started, ScavengeResult::InProgress] {
                let said = start_scavenge(Arc::clone(&service), start(2, 7)).await.unwrap();
                let said = said.into_inner();
                assert_eq!((said.scavenge_result(), &*said.scavenge_id), (result, "one"));
            }
            let asked = ScavengeOptions { threads: 2, first_chunk: 7 };
            assert_eq!(*told.0.lock().unwrap(), [asked, asked]);
            for (id, code) in [("one", Code::Ok), ("two", Code::NotFound)] {
                let options = Some(StopScavengeOptions { scavenge_id: id.to_string() });
                let request = Request::new(StopScavengeReq { options });
                let said = stop_scavenge(Arc::clone(&service), request).await;
                assert_eq!(said.map_or_else(|status| status.code(), |_| Code::Ok), code);
            }
            for (threads, chunk) in [(0, 0), (-1, 0), (1, -1)] {
                let status = start_scavenge(Arc::clone(&service), start(threads, chunk)).await;
                assert_eq!(status.unwrap_err().code(), Code::InvalidArgument);
            }
        });
    }
}
