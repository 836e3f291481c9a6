//! Deadline of a call, from the header `grpc-timeout`.

use std::future::Future;
use std::time::Duration;

use hyper::HeaderMap;
use tokio::time::Instant;
use tonic::Status;

/// The header, whose value is up to eight digits and a unit.
const HEADER: &str = "grpc-timeout";

/// Deadline of a call; a call without a client's deadline never ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No deadline: the call has no time limit.
    pub const NEVER: Deadline = Deadline(None);

    /// Reads the deadline of a request.
    ///
    /// # Errors
    /// The header is malformed.
    pub fn from_headers(headers: &HeaderMap) -> Result<Deadline, Status> {
        let Some(value) = headers.get(HEADER) else { return Ok(Deadline::NEVER) };
        match value.to_str().ok().and_then(parse) {
            Some(duration) => Ok(Deadline::after(duration)),
            None => Err(Status::invalid_argument(format!(
                "the header {HEADER} must be one to eight digits and H, M, S, m, u or n"
            ))),
        }
    }

    /// Deadline at `moment`; never for `None`.
    pub fn at(moment: Option<Instant>) -> Deadline {
        Deadline(moment)
    }

    /// Deadline `duration` from now on.
    pub fn after(duration: Duration) -> Deadline {
        Deadline(Instant::now().checked_add(duration))
    }

    /// Returns the earlier of two deadlines.
    pub fn earlier(self, other: Deadline) -> Deadline {
        match (self.0, other.0) {
            (Some(one), Some(two)) => Deadline(Some(one.min(two))),
            (one, two) => Deadline(one.or(two)),
        }
    }

    /// Whether the deadline has passed.
    pub fn has_passed(self) -> bool {
        self.0.is_some_and(|moment| moment <= Instant::now())
    }

    /// Waits until the deadline has passed.
    pub async fn wait(self) {
        match self.0 {
            Some(moment) => tokio::time::sleep_until(moment).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the result of the work, or an error if the deadline passes first.
    pub async fn limit<F: Future>(self, work: F) -> Result<F::Output, Status> {
        match self.0 {
            // Work that is ready at once would otherwise succeed after the deadline.
            Some(_) if self.has_passed() => Err(deadline_exceeded()),
            Some(moment) => {
                tokio::time::timeout_at(moment, work).await.map_err(|_| deadline_exceeded())
            }
            None => Ok(work.await),
        }
    }
}

/// Status of a call whose deadline has passed.
pub fn deadline_exceeded() -> Status {
    Status::deadline_exceeded(
        "the deadline passed before the call completed; the server may still complete the call",
    )
}

fn parse(text: &str) -> Option<Duration> {
    let (at, unit) = text.char_indices().last()?;
    let digits = &text[..at];
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(number * 3600)),
        'M' => Some(Duration::from_secs(number * 60)),
        'S' => Some(Duration::from_secs(number)),
        'm' => Some(Duration::from_millis(number)),
        'u' => Some(Duration::from_micros(number)),
        'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hyper::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn only_valid_timeout_units_are_parsed() {
        let cases = [
            ("1H", Some(3_600_000_000_000)),
            ("2M", Some(120_000_000_000)),
            ("3S", Some(3_000_000_000)),
            ("99999999m", Some(99_999_999_000_000)),
            ("5u", Some(5_000)),
            ("0n", Some(0)),
            ("", None),
            ("S", None),
            ("999999999S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("1é", None),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse(text).map(|duration| duration.as_nanos()), nanos, "{text}");
        }
    }

    /// Story: a value from memory was returned after the client's deadline had passed.
    #[tokio::test]
    async fn expired_call_is_not_executed() {
        let over =
            Deadline::from_headers(&[(HEADER, "0n")].map(entry).into_iter().collect()).unwrap();
        assert_eq!(over.limit(async {}).await.unwrap_err().code(), tonic::Code::DeadlineExceeded);
        assert!(Deadline::after(Duration::from_secs(60)).limit(async {}).await.is_ok());
        assert!(Deadline::NEVER.limit(async {}).await.is_ok());
    }

    fn entry((name, value): (&'static str, &'static str)) -> (HeaderName, HeaderValue) {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    }

    #[test]
    fn earlier_deadline_applies() {
        let (soon, late) = (Deadline::after(Duration::ZERO), Deadline::after(Duration::MAX / 4));
        assert_eq!(soon.earlier(late), soon);
        assert_eq!(Deadline::NEVER.earlier(soon), soon);
        assert_eq!(soon.earlier(Deadline::NEVER), soon);
        assert_eq!(Deadline::NEVER.earlier(Deadline::NEVER), Deadline::NEVER);
    }
}
