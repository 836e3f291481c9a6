//! [`CallSpan`]: the span of one call or HTTP request, as OpenTelemetry's conventions describe it.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::{Method, Request, Response, StatusCode};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::access_control::call_policy;
use crate::telemetry::otlp::signal::Signal;
use crate::telemetry::otlp::telemetry_hub::TelemetryHub;
use crate::telemetry::otlp::telemetry_record::{AttributeValue, SpanRecord};
use crate::telemetry::trace_context::{TraceId, TraceParent};

/// Name of all spans of unknown calls.
const UNKNOWN_CALL: &str = "not served";
/// Header with other systems' data of the trace, and its maximum length by the standard.
const TRACE_STATE: &str = "tracestate";
const TRACE_STATE_BYTES_MAX: usize = 512;

/// Span of a call, which is added to the queue when it is dropped: with its status at the end of
/// the response, or as cancelled if the client left before.
#[derive(Debug)]
pub struct CallSpan {
    hub: Arc<TelemetryHub>,
    is_call: bool,
    /// Status of a gRPC call.
    code: Code,
    /// Status of an HTTP response.
    http_status: Option<StatusCode>,
    record: SpanRecord,
}

impl CallSpan {
    /// Begins the span of a request; `None` if spans are not exported or the call is not sampled.
    /// `route` is the template of an HTTP request's path, if it has one.
    pub fn begin<B>(
        hub: Option<&Arc<TelemetryHub>>,
        request: &Request<B>,
        peer: Option<SocketAddr>,
        is_call: bool,
        route: impl FnOnce() -> Option<&'static str>,
    ) -> Option<Box<CallSpan>> {
        let hub = hub.filter(|hub| hub.exports(Signal::Traces))?;
        let parent = TraceParent::from_headers(request.headers());
        let (new_trace, span) = hub.new_ids();
        let trace = parent.map_or(new_trace, |parent| parent.trace);
        if !hub.config().sampler.samples(parent.as_ref(), trace) {
            return None;
        }
        let trace_state = request.headers().get(TRACE_STATE).filter(|_| parent.is_some());
        let trace_state = trace_state.and_then(|state| state.to_str().ok());
        let trace_state = trace_state.filter(|state| state.len() <= TRACE_STATE_BYTES_MAX);
        let mut record = SpanRecord {
            name: String::new(),
            trace,
            span,
            parent: parent.map(|parent| parent.span),
            trace_state: trace_state.unwrap_or_default().to_string(),
            start_nanos: now_nanos(hub),
            end_nanos: 0,
            attributes: Vec::with_capacity(8),
            is_error: false,
        };
        match is_call {
            true => describe_call(&mut record, request.uri().path()),
            false => describe_request(&mut record, request.method(), route()),
        }
        if let Some(peer) = peer {
            let address = AttributeValue::Text(peer.ip().to_string());
            record.attributes.push(("network.peer.address", address));
            let port = AttributeValue::Integer(i64::from(peer.port()));
            record.attributes.push(("network.peer.port", port));
        }
        let hub = Arc::clone(hub);
        Some(Box::new(CallSpan { hub, is_call, code: Code::Cancelled, http_status: None, record }))
    }

    /// The trace of the span.
    pub fn trace(&self) -> TraceId {
        self.record.trace
    }

    /// Records the head of the response. Returns the span if the response continues.
    pub fn record_head(mut self: Box<Self>, response: &Response<Body>) -> Option<Box<CallSpan>> {
        if !self.is_call {
            self.http_status = Some(response.status());
            return Some(self);
        }
        match Status::from_header_map(response.headers()) {
            Some(status) => {
                self.end(status.code());
                None
            }
            None => Some(self),
        }
    }

    /// Records the end of the response with this status.
    pub fn end(mut self, code: Code) {
        self.code = code;
    }

    fn finish(&mut self) -> SpanRecord {
        self.record.end_nanos = now_nanos(&self.hub).max(self.record.start_nanos);
        if self.is_call {
            let code = AttributeValue::Integer(i64::from(i32::from(self.code)));
            self.record.attributes.push(("rpc.grpc.status_code", code));
            self.record.is_error = is_server_error(self.code);
        } else if let Some(status) = self.http_status {
            let code = AttributeValue::Integer(i64::from(status.as_u16()));
            self.record.attributes.push(("http.response.status_code", code));
            self.record.is_error = status.is_server_error();
        }
        std::mem::take(&mut self.record)
    }
}

impl Drop for CallSpan {
    fn drop(&mut self) {
        let record = self.finish();
        self.hub.add_span(record);
    }
}

fn now_nanos(hub: &TelemetryHub) -> u64 {
    hub.env().clock.wall_micros().saturating_mul(1000)
}

/// Adds name and attributes of a gRPC call. Unknown calls share a name, as in the metrics.
fn describe_call(record: &mut SpanRecord, path: &str) {
    let text = |value: &str| AttributeValue::Text(value.to_string());
    record.attributes.push(("rpc.system", text("grpc")));
    let name = path.trim_start_matches('/');
    match name.split_once('/').filter(|_| call_policy::is_listed(path)) {
        Some((service, method)) => {
            record.name = name.to_string();
            record.attributes.push(("rpc.service", text(service)));
            record.attributes.push(("rpc.method", text(method)));
        }
        None => record.name = UNKNOWN_CALL.to_string(),
    }
}

/// Adds name and attributes of an HTTP request. They have few different values: the path of a
/// request may contain the name of a stream or a user.
fn describe_request(record: &mut SpanRecord, method: &Method, route: Option<&'static str>) {
    let method: Cow<'static, str> = match *method {
        Method::GET | Method::HEAD | Method::POST | Method::PUT | Method::DELETE => {
            method.to_string().into()
        }
        _ => "_OTHER".into(),
    };
    record.name = match route {
        Some(route) => format!("{method} {route}"),
        None => format!("{method} {UNKNOWN_CALL}"),
    };
    let method = AttributeValue::Text(method.into_owned());
    record.attributes.push(("http.request.method", method));
    if let Some(route) = route {
        record.attributes.push(("http.route", AttributeValue::Text(route.to_string())));
    }
}

/// Whether the server is to blame for a failed call, by OpenTelemetry's conventions.
fn is_server_error(code: Code) -> bool {
    matches!(
        code,
        Code::Unknown
            | Code::DeadlineExceeded
            | Code::Unimplemented
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss
    )
}
