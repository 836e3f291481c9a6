//! What the server says of itself, again and again, to whoever keeps the call open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tonic::body::Body;
use tonic::{Request, Response, Status};
use umbel_proto::monitoring::{StatsReq, StatsResp};

use crate::access::Caller;
use crate::answers::{Answers, in_steps};
use crate::asked::Asked;
use crate::deadline::{self, Deadline};
use crate::handler::{Handler, grpc};
use crate::limits::STATS_TIME_MIN;
use crate::service::Service;
use crate::{failure, pages};

/// Serves a call.
pub async fn call(
    service: Arc<Service>,
    deadline: Deadline,
    request: hyper::Request<Asked>,
) -> hyper::Response<Body> {
    let path = request.uri().path();
    match path.strip_prefix("/event_store.client.monitoring.Monitoring/") {
        Some("Stats") => {
            let stats = Handler::new(move |asked| stats(service, deadline, asked));
            grpc().server_streaming(stats, request).await
        }
        _ => failure::not_served(path).into_http(),
    }
}

/// Somebody who is told.
struct Told {
    service: Arc<Service>,
    caller: Caller,
    deadline: Deadline,
    period: Duration,
    is_first: bool,
}

async fn stats(
    service: Arc<Service>,
    deadline: Deadline,
    request: Request<StatsReq>,
) -> Result<Response<Answers<StatsResp>>, Status> {
    let caller = Caller::of(request.extensions());
    let period = Duration::from_millis(request.into_inner().refresh_time_period_in_ms);
    let period = period.max(STATS_TIME_MIN);
    let told = Told { service, caller, deadline, period, is_first: true };
    Ok(Response::new(in_steps(told, Told::step)))
}

impl Told {
    async fn step(mut self) -> (Vec<Result<StatsResp, Status>>, Option<Told>) {
        match self.next().await {
            Ok(answer) => (vec![Ok(answer)], Some(self)),
            Err(status) => (vec![Err(status)], None),
        }
    }

    async fn next(&mut self) -> Result<StatsResp, Status> {
        let service = &self.service;
        if !std::mem::take(&mut self.is_first) {
            tokio::select! {
                () = tokio::time::sleep(self.period) => {}
                () = service.stopping() => return Err(failure::stopping()),
                () = self.deadline.passed() => return Err(deadline::too_late()),
            }
        }
        self.caller = service.access.renewed(&service.store, &self.caller).await?;
        let stats = service.store.stats().await.map_err(|error| failure::status(&error))?;
        let mut named = BTreeMap::new();
        flatten(String::new(), pages::stats(&stats), &mut named);
        Ok(StatsResp { stats: named })
    }
}

/// Each number by the names that lead to it, with points between them.
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
