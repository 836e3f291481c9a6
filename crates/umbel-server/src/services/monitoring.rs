//! Monitoring calls: statistics, which are sent periodically as long as the client keeps the call
//! open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tonic::body::Body;
use tonic::{Request, Response, Status};
use umbel_proto::monitoring::{StatsReq, StatsResp};

use crate::auth::authorization::Caller;
use crate::grpc::grpc_dispatch::{Handler, grpc_dispatch};
use crate::grpc::request_body::RequestBody;
use crate::grpc::response_stream::{ResponseStream, stream_steps};
use crate::limits::STATS_TIME_MIN;
use crate::protocol::deadline::{self, Deadline};
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;
use crate::services::node_info;

/// Serves a call.
pub async fn call(
    service: Arc<ServerContext>,
    deadline: Deadline,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    let path = request.uri().path();
    match path.strip_prefix("/event_store.client.monitoring.Monitoring/") {
        Some("Stats") => {
            let stats = Handler::new(move |request| stats(service, deadline, request));
            grpc_dispatch().server_streaming(stats, request).await
        }
        _ => grpc_status::unknown_method(path).into_http(),
    }
}

/// A client's stream of statistics.
struct StatsStream {
    service: Arc<ServerContext>,
    caller: Caller,
    deadline: Deadline,
    period: Duration,
    is_first: bool,
}

async fn stats(
    service: Arc<ServerContext>,
    deadline: Deadline,
    request: Request<StatsReq>,
) -> Result<Response<ResponseStream<StatsResp>>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let period = Duration::from_millis(request.into_inner().refresh_time_period_in_ms);
    let period = period.max(STATS_TIME_MIN);
    let stats_stream = StatsStream { service, caller, deadline, period, is_first: true };
    Ok(Response::new(stream_steps(stats_stream, StatsStream::step)))
}

impl StatsStream {
    async fn step(mut self) -> (Vec<Result<StatsResp, Status>>, Option<StatsStream>) {
        match self.next_stats().await {
            Ok(answer) => (vec![Ok(answer)], Some(self)),
            Err(status) => (vec![Err(status)], None),
        }
    }

    async fn next_stats(&mut self) -> Result<StatsResp, Status> {
        let service = &self.service;
        if !std::mem::take(&mut self.is_first) {
            tokio::select! {
                () = tokio::time::sleep(self.period) => {}
                () = service.wait_stopping() => return Err(grpc_status::shutting_down()),
                () = self.deadline.wait() => return Err(deadline::deadline_exceeded()),
            }
        }
        self.caller = service.authorizer.revalidate(&service.store, &self.caller).await?;
        let stats = service.store.stats().await.map_err(|error| grpc_status::status(&error))?;
        let mut named = BTreeMap::new();
        flatten(String::new(), node_info::stats(&stats), &mut named);
        Ok(StatsResp { stats: named })
    }
}

/// Flattens nested values; a name is its path, joined with `.`.
fn flatten(name: String, value: Value, named: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(parts) => {
            for (part, value) in parts {
                let begin = if name.is_empty() { String::new() } else { format!("{name}.") };
                flatten(format!("{begin}{part}"), value, named);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(named.insert(name, text)),
        value => drop(named.insert(name, value.to_string())),
    }
}
