//! [`CallLine`]: what the log says of one call, and [`CallLog`], which keeps that within bounds.
//!
//! A call that fails or is slow is a line, one that does well is a line for whoever asks for
//! details. Where nobody takes lines a call costs one look at a number. What a client sent is not
//! told, but for the name of the call and, where he showed that he is the one, of its user; why a
//! call failed is told where the server is to blame. Whoever makes failing calls as fast as he can
//! gets so many lines in a second and no more: those that were left out are counted.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use tonic::body::Body;
use tonic::{Code, Status};
use tracing::Level;
use tracing::level_filters::LevelFilter;
use umbel_env::Env;

use crate::access::Caller;
use crate::failure::{EXCEPTION, PATH_SHOWN};
use crate::limits::CALL_LINES_MAX;
use crate::trace::{self, TraceId};

/// How many characters of the reason of a failure are told.
const REASON_SHOWN: usize = 500;
/// What goes wrong with settings of a group, which clients know as a failure of the server.
const SETTINGS_REFUSED: &[u8] = b"persistent-subscription-failed";

/// What all calls of a server tell the log.
#[derive(Debug)]
pub struct CallLog {
    env: Env,
    slow: Duration,
    pace: Mutex<Pace>,
}

/// How much was told in the present second.
#[derive(Debug, Default)]
struct Pace {
    second: u64,
    told: u32,
    left_out: u64,
}

/// One call.
#[derive(Debug)]
pub struct CallLine {
    log: Arc<CallLog>,
    began: Duration,
    /// What is called; of a page, how and where.
    method: Method,
    uri: Uri,
    is_call: bool,
    trace: Option<TraceId>,
    peer: Option<SocketAddr>,
    caller: Option<Caller>,
}

/// What is told of a call.
struct Told<'a> {
    level: Level,
    message: &'static str,
    code: &'a str,
    reason: Option<&'a str>,
}

impl CallLog {
    /// One for which a call is slow whose answer begins later than this.
    pub fn new(env: &Env, slow: Duration) -> CallLog {
        CallLog { env: env.clone(), slow, pace: Mutex::default() }
    }

    /// Whether one more line may be told at this time.
    fn may_tell(&self, now: Duration) -> bool {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let (may, left_out) = pace.count(now.as_secs());
        drop(pace);
        if left_out > 0 {
            tracing::warn!(calls = left_out, "more calls failed or were slow than are told");
        }
        may
    }
}

impl Pace {
    /// Counts one: whether it may be told, and how many were not in an earlier second.
    fn count(&mut self, second: u64) -> (bool, u64) {
        let mut left_out = 0;
        if second != self.second {
            left_out = self.left_out;
            *self = Pace { second, ..Pace::default() };
        }
        let may = self.told < CALL_LINES_MAX;
        if may {
            self.told += 1;
        } else {
            self.left_out += 1;
        }
        (may, left_out)
    }
}

impl CallLine {
    /// The line of a request; nothing where nobody takes lines.
    pub fn begin<B>(
        log: &Arc<CallLog>,
        request: &Request<B>,
        peer: Option<SocketAddr>,
        is_call: bool,
    ) -> Option<CallLine> {
        if LevelFilter::current() == LevelFilter::OFF {
            return None;
        }
        Some(CallLine {
            began: log.env.clock.now(),
            log: Arc::clone(log),
            method: request.method().clone(),
            uri: request.uri().clone(),
            is_call,
            trace: TraceId::of(request.headers()),
            peer,
            caller: None,
        })
    }

    /// Who calls is known.
    pub fn by(&mut self, caller: &Caller) {
        self.caller = Some(caller.clone());
    }

    /// The head of the answer is there. Gives the line back where the call goes on.
    pub fn head(mut self, response: &mut Response<Body>) -> Option<CallLine> {
        let (status, headers) = (response.status(), response.headers_mut());
        let is_told = match Status::from_header_map(headers) {
            _ if !self.is_call => self.page_failed(status),
            Some(status) if status.code() != Code::Ok => {
                let is_clients = is_clients(&status, headers);
                self.failed("call failed", &status, is_clients);
                true
            }
            _ => false,
        };
        let took = self.took();
        let is_slow = !is_told && took > self.log.slow;
        if is_slow {
            let message = "call was slow to be answered";
            self.tell(&Told { level: Level::WARN, message, code: "Ok", reason: None });
        }
        if self.trace.is_none() && tracing::enabled!(Level::DEBUG) {
            self.number();
        }
        if let Some(trace) = self.trace {
            headers.insert(trace::TOLD, trace.header());
        }
        (!is_told).then_some(self)
    }

    /// The call is done, with what the end of its answer says.
    pub fn end(mut self, trailers: &mut HeaderMap) {
        match Status::from_header_map(trailers).filter(|status| status.code() != Code::Ok) {
            Some(status) => {
                let is_clients = is_clients(&status, trailers);
                self.failed("call failed after it had begun to answer", &status, is_clients);
                if let Some(trace) = self.trace {
                    trailers.insert(trace::TOLD, trace.header());
                }
            }
            None => self.over(true),
        }
    }

    /// The answer is over and says nothing at its end: all of it was taken, or its client is gone.
    pub fn over(mut self, is_whole: bool) {
        if tracing::enabled!(Level::DEBUG) {
            let (message, code) =
                if is_whole { ("call done", "Ok") } else { ("client left", "Cancelled") };
            self.tell(&Told { level: Level::DEBUG, message, code, reason: None });
        }
    }

    fn failed(&mut self, message: &'static str, status: &Status, is_clients: bool) {
        let level = match status.code() {
            _ if is_clients => Level::INFO,
            Code::Internal | Code::Unknown | Code::DataLoss => Level::ERROR,
            _ => Level::WARN,
        };
        let reason = shown(status.message(), REASON_SHOWN);
        let (code, reason) = (format!("{:?}", status.code()), (!is_clients).then_some(&*reason));
        self.tell(&Told { level, message, code: &code, reason });
    }

    /// Tells of a page that was refused or failed; whether it did.
    fn page_failed(&mut self, status: StatusCode) -> bool {
        let level = match status.as_u16() {
            ..400 => return false,
            400..500 => Level::INFO,
            503 => Level::WARN,
            _ => Level::ERROR,
        };
        self.tell(&Told { level, message: "request failed", code: status.as_str(), reason: None });
        true
    }

    fn took(&self) -> Duration {
        self.log.env.clock.now().saturating_sub(self.began)
    }

    /// The number of the call, made where it has none.
    fn number(&mut self) -> TraceId {
        *self.trace.get_or_insert_with(|| TraceId::make(&*self.log.env.entropy))
    }

    fn tell(&mut self, told: &Told<'_>) {
        let trace = self.number();
        if told.level > LevelFilter::current() {
            return;
        }
        let now = self.log.env.clock.now();
        if told.level != Level::DEBUG && !self.log.may_tell(now) {
            return;
        }
        let path = self.uri.path();
        let method = match self.is_call {
            true => shown(path.trim_start_matches('/'), PATH_SHOWN),
            false => format!("{} {}", self.method, shown(path, PATH_SHOWN)),
        };
        let user = self.caller.as_ref().and_then(Caller::name);
        let peer = self.peer.map(|peer| peer.to_string());
        let milliseconds = self.took().as_micros() as f64 / 1e3;
        // The level of a line is a part of where it is made.
        macro_rules! line {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    trace_id = %trace,
                    method,
                    code = told.code,
                    user,
                    peer,
                    milliseconds,
                    reason = told.reason,
                    "{}",
                    told.message
                )
            };
        }
        match told.level {
            Level::ERROR => line!(Level::ERROR),
            Level::WARN => line!(Level::WARN),
            Level::INFO => line!(Level::INFO),
            _ => line!(Level::DEBUG),
        }
    }
}

/// Whether the client is to blame for a failure, or nobody.
fn is_clients(status: &Status, headers: &HeaderMap) -> bool {
    match status.code() {
        Code::Internal => {
            headers.get(EXCEPTION).is_some_and(|name| name.as_bytes() == SETTINGS_REFUSED)
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
fn shown(text: &str, most: usize) -> String {
    text.chars().take(most).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_without_end_is_told_so_often_in_a_second_and_counted() {
        let mut pace = Pace::default();
        let told = (0..CALL_LINES_MAX + 7).filter(|_| pace.count(3).0).count();
        assert_eq!(told, CALL_LINES_MAX as usize);
        assert_eq!(pace.count(4), (true, 7));
        assert_eq!(pace.count(4), (true, 0));
    }

    #[test]
    fn who_is_to_blame_is_known() {
        let blamed = |status: Status| {
            let headers = status.metadata().clone().into_headers();
            is_clients(&status, &headers)
        };
        let key = crate::group_key::GroupKey { stream: None, group: "group".to_string() };
        assert!(blamed(crate::failure::group_failed(&key, "settings")));
        assert!(!blamed(Status::internal("a disk that fails")));
        assert!(blamed(Status::invalid_argument("what is asked")));
        assert!(!blamed(crate::failure::stopping()));
    }

    #[test]
    fn a_text_stays_on_its_line_and_ends() {
        assert_eq!(shown("a\nb\u{1b}c", 9), "a b c");
        assert_eq!(shown(&"é".repeat(600), REASON_SHOWN).chars().count(), REASON_SHOWN);
    }
}
