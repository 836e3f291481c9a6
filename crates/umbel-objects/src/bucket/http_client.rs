//! [`HttpClient`]: HTTP for the object store library, on hyper and rustls.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::PROXY_AUTHORIZATION;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient as LibraryClient, HttpConnector as LibraryConnector, HttpError, HttpErrorKind,
    HttpRequest, HttpResponse, HttpService,
};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::Sleep;

use super::call_record::{ANSWER_BYTES_MAX, CALL, CallRecord};
use super::proxy::{Proxies, ProxyConnector};

/// Time until a connection must be established.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without progress after which a request ends, without the delay of a slow body.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that are progress. Parts of this size are handed to the connection one after the other.
const PROGRESS_BYTES: u64 = 32 << 10;
/// Time after which an idle connection is closed, which is shorter than that of most stores.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// HTTP client that notes the facts of each request in its [`CallRecord`].
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    client: Client<HttpsConnector<ProxyConnector>, PacedBody>,
    proxies: Proxies,
}

impl HttpClient {
    /// Creates a client that trusts these certificate authorities, and uses these proxies.
    pub(super) fn new(authorities: RootCertStore, proxies: Proxies) -> Result<HttpClient, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(authorities)
            .with_no_client_auth();
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.set_nodelay(true);
        let direct = HttpsConnectorBuilder::new()
            .with_tls_config(tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(ProxyConnector::new(direct, proxies.clone()));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            // A creation is sent once. A request on a connection that the store has just closed
            // fails, and the caller decides.
            .retry_canceled_requests(false)
            .build(connector);
        Ok(HttpClient { client, proxies })
    }

    async fn send(self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let record = CALL
            .try_with(Arc::clone)
            .unwrap_or_else(|_| CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX));
        let timeout = REQUEST_TIMEOUT + record.body_delay;
        let progress = Arc::new(Progress::default());
        let exchange = self.exchange(request, &record, &progress);
        match within(timeout, &progress, exchange).await {
            Some(done) => done,
            None => {
                record.note_sent();
                record.forget_answer();
                let seconds = timeout.as_secs();
                Err(HttpError::new(HttpErrorKind::Timeout, Stalled { seconds }))
            }
        }
    }

    async fn exchange(
        self,
        request: HttpRequest,
        record: &CallRecord,
        progress: &Arc<Progress>,
    ) -> Result<HttpResponse, HttpError> {
        let (mut parts, body) = request.into_parts();
        if let Some(authorization) = self.proxies.authorization(&parts.uri) {
            parts.headers.insert(PROXY_AUTHORIZATION, authorization);
        }
        let bytes = body.collect().await?.to_bytes();
        let body = PacedBody::new(bytes, record.body_delay, Arc::clone(progress));
        let answer = self.client.request(hyper::Request::from_parts(parts, body)).await;
        let answer = answer.map_err(|error| match error.is_connect() {
            true => HttpError::new(HttpErrorKind::Connect, error),
            false => {
                record.note_sent();
                HttpError::new(HttpErrorKind::Interrupted, error)
            }
        })?;
        record.note_sent();
        let (parts, body) = answer.into_parts();
        record.note_answer(parts.status.as_u16(), &parts.headers);
        let limit = if parts.status.is_success() { record.answer_bytes_max } else { 1 << 20 };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let body = body.map_frame(|frame| {
            progress.add(frame.data_ref().map_or(0, Bytes::len));
            frame
        });
        let body = Limited::new(body, limit).collect().await.map_err(|error| {
            let is_cut = error.downcast_ref::<hyper::Error>().is_some();
            if is_cut {
                record.forget_answer();
                return HttpError::new(HttpErrorKind::Interrupted, BodyError(error));
            }
            HttpError::new(HttpErrorKind::Decode, BodyError(error))
        })?;
        Ok(Response::from_parts(parts, body.to_bytes().into()))
    }
}

/// Number of bytes of both bodies of a request that were transferred.
#[derive(Debug, Default)]
struct Progress(AtomicU64);

impl Progress {
    fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns a number that rises with the progress. Single bytes are none, so that a store that
    /// sends one now and then does not hold a request for ever.
    fn steps(&self) -> u64 {
        self.0.load(Ordering::Relaxed).div_ceil(PROGRESS_BYTES)
    }
}

/// Waits for a request; `None` if it makes no progress for this time. A slow line can need longer
/// for a large body than a store that does not answer may take.
async fn within<T>(
    time: Duration,
    progress: &Progress,
    request: impl Future<Output = T>,
) -> Option<T> {
    let mut request = std::pin::pin!(request);
    loop {
        let before = progress.steps();
        match tokio::time::timeout(time, &mut request).await {
            Ok(done) => return Some(done),
            Err(_) if progress.steps() == before => return None,
            Err(_) => {}
        }
    }
}

/// A request without progress.
#[derive(Debug)]
struct Stalled {
    seconds: u64,
}

impl std::fmt::Display for Stalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no answer and no progress within {} s", self.seconds)
    }
}

impl Error for Stalled {}

/// Failure to receive a body.
#[derive(Debug)]
struct BodyError(Box<dyn Error + Send + Sync>);

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the body of the answer: {}", self.0)
    }
}

impl Error for BodyError {}

impl HttpService for HttpClient {
    fn call<'client, 'future>(
        &'client self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'future>>
    where
        'client: 'future,
        Self: 'future,
    {
        Box::pin(self.clone().send(request))
    }
}

impl LibraryConnector for HttpClient {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<LibraryClient> {
        Ok(LibraryClient::new(self.clone()))
    }
}

/// Body of a request, in parts whose transfer is progress. Its last bytes can be late.
#[derive(Debug)]
struct PacedBody {
    bytes: Bytes,
    progress: Arc<Progress>,
    /// Wait after the first byte, before the other bytes.
    delay: Option<Pin<Box<Sleep>>>,
    is_begun: bool,
}

impl PacedBody {
    fn new(bytes: Bytes, delay: Duration, progress: Arc<Progress>) -> PacedBody {
        let delay = (!delay.is_zero()).then(|| Box::pin(tokio::time::sleep(delay)));
        PacedBody { bytes, progress, delay, is_begun: false }
    }
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.bytes.is_empty() {
            return Poll::Ready(None);
        }
        if self.delay.is_some() && !self.is_begun {
            self.is_begun = true;
            let first = self.bytes.split_to(1);
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if let Some(delay) = &mut self.delay {
            ready!(delay.as_mut().poll(context));
            self.delay = None;
        }
        let len = self.bytes.len().min(PROGRESS_BYTES as usize);
        self.progress.add(len);
        Poll::Ready(Some(Ok(Frame::data(self.bytes.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    const STEP: Duration = Duration::from_millis(40);

    /// On a line of 2 Mbit/s, four uploads of 16 MiB never ended within 30 s.
    #[test]
    fn slow_request_goes_on_while_it_makes_progress() {
        let progress = Progress::default();
        let slow = async {
            for _ in 0..60 {
                tokio::time::sleep(STEP).await;
                progress.add(PROGRESS_BYTES as usize);
            }
        };
        assert!(runtime().block_on(within(STEP * 50, &progress, slow)).is_some());
    }

    #[test]
    fn request_without_progress_ends() {
        let progress = Progress::default();
        let trickle = async {
            loop {
                tokio::time::sleep(STEP / 4).await;
                progress.add(1);
            }
        };
        assert_eq!(runtime().block_on(within(STEP, &progress, trickle)), None::<()>);
    }

    #[test]
    fn body_is_sent_in_parts_that_are_progress() {
        let bytes = Bytes::from(vec![7; 3 * PROGRESS_BYTES as usize + 5]);
        for delay in [Duration::ZERO, Duration::from_millis(1)] {
            let progress = Arc::new(Progress::default());
            let (expected, own) = (bytes.clone(), Arc::clone(&progress));
            let sent = runtime().block_on(async move {
                let mut body = PacedBody::new(expected, delay, Arc::clone(&own));
                let mut sent = Vec::new();
                while let Some(frame) = body.frame().await {
                    sent.extend_from_slice(&frame.expect("a part").into_data().expect("bytes"));
                    let handed_over = own.0.load(Ordering::Relaxed) as usize;
                    assert!(sent.len() - handed_over <= 1, "{handed_over} of {}", sent.len());
                }
                sent
            });
            assert!(sent == bytes, "all bytes in their order");
            assert!(progress.steps() >= 4, "{progress:?}");
        }
    }
}
