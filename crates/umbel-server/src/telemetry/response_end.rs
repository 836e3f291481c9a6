//! [`ResponseEnd`]: records of a request that are completed at the end of its response.

use hyper::HeaderMap;
use tonic::{Code, Status};

use crate::telemetry::access_log::AccessLogLine;
use crate::telemetry::call_metrics::CallTimer;
use crate::telemetry::call_span::CallSpan;

/// Records of a request that are completed at the end of its response.
#[derive(Debug, Default)]
pub struct ResponseEnd {
    /// The access log's line, if one is written at the end.
    pub log_line: Option<AccessLogLine>,
    /// The latency of a call.
    pub timer: Option<CallTimer>,
    /// The span, if the call is sampled.
    pub span: Option<Box<CallSpan>>,
}

impl ResponseEnd {
    /// Records the end of the response with the status in its trailers.
    pub fn record_trailers(&mut self, trailers: &mut HeaderMap) {
        let code = || Status::from_header_map(trailers).map_or(Code::Ok, |status| status.code());
        if let Some(timer) = self.timer.take() {
            timer.end(code());
        }
        if let Some(span) = self.span.take() {
            span.end(code());
        }
        if let Some(line) = self.log_line.take() {
            line.record_trailers(trailers);
        }
    }

    /// Records the end of a response without trailers: it was sent completely, or the client
    /// disconnected.
    pub fn record_end(&mut self, is_complete: bool) {
        if let Some(timer) = self.timer.take().filter(|_| is_complete) {
            timer.end_sent();
        }
        if let Some(span) = self.span.take().filter(|_| is_complete) {
            span.end(Code::Ok);
        }
        if let Some(line) = self.log_line.take() {
            line.record_end(is_complete);
        }
    }
}
