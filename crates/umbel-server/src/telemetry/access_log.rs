//! [`AccessLogLine`]: the log line of one call, and [`AccessLog`], which limits the rate of lines.
//!
//! A call that fails or is slow is logged; other calls are logged only at debug level. While
//! logging is off, a call costs one comparison. A line contains no text that the client sent,
//! except the call's name and the authenticated user's name. The reason of a failure is logged only
//! if the server is to blame. The number of lines per second is limited, and suppressed lines are
//! counted.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use tonic::body::Body;
use tonic::{Code, Status};
use tracing::Level;
use tracing::level_filters::LevelFilter;
use umbel_env::Env;

use crate::auth::authorization::Caller;
use crate::limits::{ACCESS_LOG_LINES_MAX, ANONYMOUS_LOG_LINES_MAX, ANONYMOUS_LOG_TIME};
use crate::protocol::grpc_status::{EXCEPTION, PATH_CHARS_MAX};
use crate::telemetry::line_limiter::LineLimiter;
use crate::telemetry::trace_context::{self, TraceId};

/// Maximum number of logged characters of a failure's reason.
const REASON_CHARS_MAX: usize = 500;
/// Exception name for invalid settings of a group, which clients know as a server failure.
const INVALID_SETTINGS: &[u8] = b"persistent-subscription-failed";

/// The cause of a failed HTTP request. The handler leaves it in the response, and the log takes it.
#[derive(Debug, Clone)]
pub struct FailureReason(String);

impl FailureReason {
    /// Leaves the reason in a response whose status says that the server is at fault.
    pub fn attach(response: &mut Response<Body>, reason: &str) {
        if response.status().is_server_error() {
            let reason = FailureReason(sanitize(reason.trim_end(), REASON_CHARS_MAX));
            response.extensions_mut().insert(reason);
        }
    }
}

/// State of the access log, shared by all calls of a server.
#[derive(Debug)]
pub struct AccessLog {
    env: Env,
    slow_threshold: Duration,
    limiter: Mutex<LineLimiter>,
    /// Limiter of lines about refused calls without valid credentials.
    anonymous_limiter: Mutex<LineLimiter>,
}

/// The log line of one call.
#[derive(Debug)]
pub struct AccessLogLine {
    log: Arc<AccessLog>,
    began: Duration,
    /// Method and URI of the request.
    method: Method,
    uri: Uri,
    is_call: bool,
    trace: Option<TraceId>,
    peer: Option<SocketAddr>,
    caller: Option<Caller>,
}

/// A log record of a call.
struct LogRecord<'a> {
    level: Level,
    message: &'static str,
    code: &'a str,
    reason: Option<&'a str>,
}

impl AccessLog {
    /// Creates a log that counts a call as slow if its response begins later than this.
    pub fn new(env: &Env, slow: Duration) -> AccessLog {
        AccessLog {
            env: env.clone(),
            slow_threshold: slow,
            limiter: Mutex::default(),
            anonymous_limiter: Mutex::default(),
        }
    }

    /// Returns whether one more line about a refused call without valid credentials may be logged.
    /// Such calls cost their client nothing, and fill a log if there are many.
    fn admit_anonymous_line(&self, now: Duration) -> bool {
        let mut limiter = self.anonymous_limiter.lock().ignore_poison();
        let period = now.as_secs() / ANONYMOUS_LOG_TIME.as_secs();
        let (may, suppressed) = limiter.count(period, ANONYMOUS_LOG_LINES_MAX);
        drop(limiter);
        if suppressed > 0 {
            tracing::warn!(
                calls = suppressed,
                "log lines of refused calls without valid credentials were left out"
            );
        }
        may
    }

    /// Returns whether one more line may be logged at this time.
    fn admit_line(&self, now: Duration) -> bool {
        let mut limiter = self.limiter.lock().ignore_poison();
        let (may, suppressed) = limiter.count(now.as_secs(), ACCESS_LOG_LINES_MAX);
        drop(limiter);
        if suppressed > 0 {
            tracing::warn!(calls = suppressed, "log lines of failed or slow calls were left out");
        }
        may
    }
}

impl AccessLogLine {
    /// Begins the line of a request; `None` if logging is off.
    pub fn begin<B>(
        log: &Arc<AccessLog>,
        request: &Request<B>,
        peer: Option<SocketAddr>,
        is_call: bool,
    ) -> Option<AccessLogLine> {
        if LevelFilter::current() == LevelFilter::OFF {
            return None;
        }
        Some(AccessLogLine {
            began: log.env.clock.now(),
            log: Arc::clone(log),
            method: request.method().clone(),
            uri: request.uri().clone(),
            is_call,
            trace: TraceId::from_headers(request.headers()),
            peer,
            caller: None,
        })
    }

    /// Sets the trace under which the call is recorded as a span.
    pub fn set_trace(&mut self, trace: TraceId) {
        self.trace = Some(trace);
    }

    /// Sets the authenticated caller.
    pub fn set_caller(&mut self, caller: &Caller) {
        self.caller = Some(caller.clone());
    }

    /// Logs a call that has failed or is slow at the response head. Returns the line if the call
    /// continues.
    pub fn record_head(mut self, response: &mut Response<Body>) -> Option<AccessLogLine> {
        let reason = response.extensions_mut().remove::<FailureReason>();
        let (status, headers) = (response.status(), response.headers_mut());
        let is_logged = match Status::from_header_map(headers) {
            _ if !self.is_call => self.log_page_failure(status, reason.as_ref()),
            Some(status) if status.code() != Code::Ok => {
                let is_clients = is_clients(&status, headers);
                self.log_failure("call failed", &status, is_clients);
                true
            }
            _ => false,
        };
        let took = self.elapsed();
        let is_slow = !is_logged && took > self.log.slow_threshold;
        if is_slow {
            let message = "call was slow";
            self.write(&LogRecord { level: Level::WARN, message, code: "Ok", reason: None });
        }
        if self.trace.is_none() && tracing::enabled!(Level::DEBUG) {
            self.trace_id();
        }
        if let Some(trace) = self.trace {
            headers.insert(trace_context::TRACE_ID_HEADER, trace.header());
        }
        (!is_logged).then_some(self)
    }

    /// Logs the end of the call with the status in its trailers.
    pub fn record_trailers(mut self, trailers: &mut HeaderMap) {
        match Status::from_header_map(trailers).filter(|status| status.code() != Code::Ok) {
            Some(status) => {
                let is_clients = is_clients(&status, trailers);
                self.log_failure("call failed after the first response", &status, is_clients);
                if let Some(trace) = self.trace {
                    trailers.insert(trace_context::TRACE_ID_HEADER, trace.header());
                }
            }
            None => self.record_end(true),
        }
    }

    /// Logs the end of a response without trailers: it was sent completely, or the client
    /// disconnected.
    pub fn record_end(mut self, is_complete: bool) {
        if tracing::enabled!(Level::DEBUG) {
            let (message, code) = if is_complete {
                ("call done", "Ok")
            } else {
                ("client disconnected", "Cancelled")
            };
            self.write(&LogRecord { level: Level::DEBUG, message, code, reason: None });
        }
    }

    fn log_failure(&mut self, message: &'static str, status: &Status, is_clients: bool) {
        let level = match status.code() {
            _ if is_clients => Level::INFO,
            Code::Internal | Code::Unknown | Code::DataLoss => Level::ERROR,
            _ => Level::WARN,
        };
        let reason = sanitize(status.message(), REASON_CHARS_MAX);
        let (code, reason) = (format!("{:?}", status.code()), (!is_clients).then_some(&*reason));
        self.write(&LogRecord { level, message, code: &code, reason });
    }

    /// Logs an HTTP page that was refused or failed; returns whether it was logged.
    fn log_page_failure(&mut self, status: StatusCode, reason: Option<&FailureReason>) -> bool {
        let Some(level) = page_failure_level(status) else { return false };
        self.write(&LogRecord {
            level,
            message: "request failed",
            code: status.as_str(),
            reason: reason.map(|reason| &*reason.0),
        });
        true
    }

    fn elapsed(&self) -> Duration {
        self.log.env.clock.now().saturating_sub(self.began)
    }

    /// The trace id of the call, which is generated if the client sent none.
    fn trace_id(&mut self) -> TraceId {
        *self.trace.get_or_insert_with(|| TraceId::generate(&*self.log.env.entropy))
    }

    fn write(&mut self, record: &LogRecord<'_>) {
        let trace = self.trace_id();
        if record.level > LevelFilter::current() {
            return;
        }
        let now = self.log.env.clock.now();
        let is_anonymous = matches!(self.caller, None | Some(Caller::Anonymous));
        let is_admitted = match record.level {
            Level::DEBUG => true,
            Level::INFO | Level::WARN if is_anonymous => self.log.admit_anonymous_line(now),
            _ => self.log.admit_line(now),
        };
        if !is_admitted {
            return;
        }
        let path = self.uri.path();
        let method = match self.is_call {
            true => sanitize(path.trim_start_matches('/'), PATH_CHARS_MAX),
            false => format!("{} {}", self.method, sanitize(path, PATH_CHARS_MAX)),
        };
        let user = self.caller.as_ref().and_then(Caller::user_name);
        let peer = self.peer.map(|peer| peer.to_string());
        let milliseconds = self.elapsed().as_micros() as f64 / 1e3;
        // The level of a tracing event is static.
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    trace_id = %trace,
                    method,
                    code = record.code,
                    user,
                    peer,
                    milliseconds,
                    reason = record.reason,
                    "{}",
                    record.message
                )
            };
        }
        match record.level {
            Level::ERROR => line!(Level::ERROR),
            Level::WARN => line!(Level::WARN),
            Level::INFO => line!(Level::INFO),
            _ => line!(Level::DEBUG),
        }
    }
}

/// The level of the line of an HTTP page with this status, as that of a call with the same meaning;
/// `None` if it is no failure. A full disk or quota refuses each write, and is no fault of the
/// server.
fn page_failure_level(status: StatusCode) -> Option<Level> {
    match status.as_u16() {
        ..400 => None,
        400..500 => Some(Level::INFO),
        503 | 507 => Some(Level::WARN),
        _ => Some(Level::ERROR),
    }
}

/// Whether a status is caused by the client or is no failure.
fn is_clients(status: &Status, headers: &HeaderMap) -> bool {
    match status.code() {
        Code::Internal => {
            headers.get(EXCEPTION).is_some_and(|name| name.as_bytes() == INVALID_SETTINGS)
        }
        Code::Unknown
        | Code::DataLoss
        | Code::Unavailable
        | Code::ResourceExhausted
        | Code::DeadlineExceeded => false,
        _ => true,
    }
}

/// The beginning of a text, which a client may have chosen, on one line.
pub fn sanitize(text: &str, max_chars: usize) -> String {
    text.chars()
        .take(max_chars)
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;
    use crate::protocol::grpc_status;

    /// Story: refused calls without credentials wrote 24 kB of log per second.
    #[test]
    fn refused_anonymous_calls_log_one_line_a_second_on_average() {
        let log = AccessLog::new(&Env::system(), Duration::MAX);
        let calls = (0..3000).map(|tenth| Duration::from_millis(100 * tenth));
        let logged = calls.filter(|now| log.admit_anonymous_line(*now)).count();
        assert_eq!(logged, 300);
        assert!(log.admit_line(Duration::ZERO), "other lines have a limit of their own");
    }

    #[test]
    fn failures_are_attributed_to_client_or_server() {
        let blamed = |status: Status| {
            let headers = status.metadata().clone().into_headers();
            is_clients(&status, &headers)
        };
        let key = crate::protocol::group_key::GroupKey { stream: None, group: "group".to_string() };
        assert!(blamed(grpc_status::group_failed(&key, "settings")));
        assert!(!blamed(Status::internal("a disk that fails")));
        assert!(blamed(Status::invalid_argument("invalid request")));
        assert!(!blamed(grpc_status::shutting_down()));
    }

    /// Story: on a full disk, each append over HTTP was logged as an error, and each append over
    /// gRPC as a warning.
    #[test]
    fn refusal_for_lack_of_space_is_a_warning() {
        let level = |status: u16| page_failure_level(StatusCode::from_u16(status).unwrap());
        assert_eq!([200, 304].map(level), [None, None]);
        assert_eq!([400, 404, 429].map(level), [Some(Level::INFO); 3]);
        assert_eq!([503, 507].map(level), [Some(Level::WARN); 2]);
        assert_eq!([500, 501].map(level), [Some(Level::ERROR); 2]);
        let full = std::io::ErrorKind::StorageFull.into();
        let error = umbel::Error::io("write", "/kv".as_ref(), full);
        let status = http::failure_status(&grpc_status::engine_status(&error));
        assert_eq!(page_failure_level(status), Some(Level::WARN), "{status}");
    }

    #[test]
    fn logged_text_is_one_bounded_line() {
        assert_eq!(sanitize("a\nb\u{1b}c", 9), "a b c");
        assert_eq!(sanitize(&"é".repeat(600), REASON_CHARS_MAX).chars().count(), REASON_CHARS_MAX);
    }
}
