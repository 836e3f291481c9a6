//! [`CallRecord`]: the facts of one request that the object store library does not return.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use chrono::DateTime;
use hyper::HeaderMap;
use hyper::header::{CONTENT_RANGE, DATE, HeaderName};
use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::ObjectErrorKind;

tokio::task_local! {
    /// Record of the request that the present task sends.
    pub(super) static CALL: Arc<CallRecord>;
}

/// Limit of the bodies of answers that have no object, such as a page of a list or an error.
pub(super) const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Header with the region of a bucket.
const BUCKET_REGION: &str = "x-amz-bucket-region";

/// Facts of a request, and settings for it.
#[derive(Debug)]
pub(super) struct CallRecord {
    /// Wait between the first and the last byte of the body.
    pub(super) body_delay: Duration,
    /// Maximum number of bytes of the answer's body.
    pub(super) answer_bytes_max: u64,
    /// Whether the request may have reached the store.
    was_sent: AtomicBool,
    /// Status of the answer; 0 without an answer.
    status: AtomicU64,
    /// Time of the store in the answer, in microseconds since 1970; 0 without one.
    store_micros: AtomicU64,
    /// Value of `Content-Range`.
    content_range: std::sync::Mutex<Option<String>>,
    /// Region of the bucket, which an S3 store names if the request went to another one.
    bucket_region: std::sync::Mutex<Option<String>>,
    /// Reason why no credentials could be had, so that no request was sent.
    credentials_failure: std::sync::Mutex<Option<(ObjectErrorKind, String)>>,
}

impl CallRecord {
    pub(super) fn new(body_delay: Duration, answer_bytes_max: u64) -> Arc<CallRecord> {
        Arc::new(CallRecord {
            body_delay,
            answer_bytes_max,
            was_sent: AtomicBool::new(false),
            status: AtomicU64::new(0),
            store_micros: AtomicU64::new(0),
            content_range: std::sync::Mutex::default(),
            bucket_region: std::sync::Mutex::default(),
            credentials_failure: std::sync::Mutex::default(),
        })
    }

    pub(super) fn note_sent(&self) {
        self.was_sent.store(true, Ordering::Relaxed);
    }

    pub(super) fn note_answer(&self, status: u16, headers: &HeaderMap) {
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        self.status.store(u64::from(status), Ordering::Relaxed);
        let date = text(&DATE).and_then(|date| DateTime::parse_from_rfc2822(date).ok());
        let micros = date.and_then(|date| u64::try_from(date.timestamp_micros()).ok());
        self.store_micros.store(micros.unwrap_or(0), Ordering::Relaxed);
        *self.content_range.lock().ignore_poison() = text(&CONTENT_RANGE).map(str::to_owned);
        let region = headers.get(BUCKET_REGION).and_then(|value| value.to_str().ok());
        *self.bucket_region.lock().ignore_poison() = region.map(str::to_owned);
    }

    /// Forgets an answer whose body did not arrive as a whole, as if no answer had come.
    pub(super) fn forget_answer(&self) {
        self.status.store(0, Ordering::Relaxed);
        self.store_micros.store(0, Ordering::Relaxed);
    }

    pub(super) fn was_sent(&self) -> bool {
        self.was_sent.load(Ordering::Relaxed)
    }

    /// Returns the status of the answer; `None` if no answer came.
    pub(super) fn status(&self) -> Option<u16> {
        let status = u16::try_from(self.status.load(Ordering::Relaxed)).ok();
        status.filter(|status| *status > 0)
    }

    pub(super) fn store_micros(&self) -> Option<u64> {
        Some(self.store_micros.load(Ordering::Relaxed)).filter(|micros| *micros > 0)
    }

    pub(super) fn note_credentials_failure(&self, kind: ObjectErrorKind, cause: String) {
        *self.credentials_failure.lock().ignore_poison() = Some((kind, cause));
    }

    /// Returns the reason why no credentials could be had.
    pub(super) fn credentials_failure(&self) -> Option<(ObjectErrorKind, String)> {
        self.credentials_failure.lock().ignore_poison().clone()
    }

    /// Returns the region of the bucket that the answer names.
    pub(super) fn bucket_region(&self) -> Option<String> {
        self.bucket_region.lock().ignore_poison().clone()
    }

    /// Returns the length of the object that the answer to a range names.
    pub(super) fn object_bytes(&self) -> Option<u64> {
        let range = self.content_range.lock().ignore_poison();
        range.as_ref()?.rsplit_once('/')?.1.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_has_status_time_and_length() {
        let record = CallRecord::new(Duration::ZERO, 1);
        assert_eq!((record.status(), record.store_micros()), (None, None));
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Sun, 06 Nov 1994 08:49:37 GMT".parse().expect("a value"));
        headers.insert(CONTENT_RANGE, "bytes */77".parse().expect("a value"));
        record.note_answer(416, &headers);
        assert_eq!(record.status(), Some(416));
        assert_eq!(record.store_micros(), Some(784_111_777_000_000));
        assert_eq!(record.object_bytes(), Some(77));
        record.forget_answer();
        assert_eq!((record.status(), record.store_micros()), (None, None));
        headers.insert(DATE, "yesterday".parse().expect("a value"));
        headers.insert(CONTENT_RANGE, "bytes 0-1/*".parse().expect("a value"));
        record.note_answer(206, &headers);
        assert_eq!((record.store_micros(), record.object_bytes()), (None, None));
    }
}
