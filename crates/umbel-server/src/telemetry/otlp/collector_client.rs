//! [`CollectorClient`]: a connection to a collector, over HTTP/1.1.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, StatusCode, body::Incoming};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::limits::OTLP_RESPONSE_BYTES_MAX;
use crate::telemetry::otlp::export_health::{ExportFailure, FailureKind};
use crate::telemetry::otlp::otlp_config::OtlpConfig;
use crate::telemetry::otlp::signal::Signal;

/// Name of the client in requests.
const AGENT: &str = concat!("umbel/", env!("CARGO_PKG_VERSION"));

/// Client of a collector. It keeps its connection between exports.
#[derive(Debug)]
pub struct CollectorClient<'a> {
    config: &'a OtlpConfig,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl<'a> CollectorClient<'a> {
    /// Creates a client without a connection.
    pub fn new(config: &'a OtlpConfig) -> CollectorClient<'a> {
        CollectorClient { config, connection: None }
    }

    /// Exports a message. Returns the collector's response.
    ///
    /// # Errors
    /// The collector did not accept the message within the time limit.
    pub async fn export(&mut self, signal: Signal, body: Bytes) -> Result<Bytes, ExportFailure> {
        let limit = self.config.timeout;
        match tokio::time::timeout(limit, self.export_unlimited(signal, body)).await {
            Ok(exported) => exported,
            Err(_) => {
                // The response to this request may still arrive on the connection.
                self.connection = None;
                Err(ExportFailure::new(FailureKind::TimedOut, no_response(limit)))
            }
        }
    }

    async fn export_unlimited(
        &mut self,
        signal: Signal,
        body: Bytes,
    ) -> Result<Bytes, ExportFailure> {
        let kept = self.connection.take().filter(|connection| !connection.is_closed());
        let was_kept = kept.is_some();
        let mut connection = match kept {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        let mut sent = send(&mut connection, self.request(signal, body.clone())?).await;
        // The collector may have closed the kept connection while it was idle.
        if was_kept && sent.is_err() {
            connection = self.connect().await?;
            sent = send(&mut connection, self.request(signal, body)?).await;
        }
        let response = sent?;
        let (status, retry_after) = (response.status(), retry_after(&response));
        let received = Limited::new(response.into_body(), OTLP_RESPONSE_BYTES_MAX).collect().await;
        if !status.is_success() {
            let mut failure =
                ExportFailure::new(FailureKind::Status(status.as_u16()), refusal(status, signal));
            failure.retry_after = retry_after;
            return Err(failure);
        }
        let received =
            received.map_err(|error| ExportFailure::new(FailureKind::InvalidResponse, error))?;
        self.connection = Some(connection);
        Ok(received.to_bytes())
    }

    fn request(&self, signal: Signal, body: Bytes) -> Result<Request<Full<Bytes>>, ExportFailure> {
        let endpoint = &self.config.endpoint;
        let mut request = Request::post(format!("{}/v1/{}", endpoint.base_path, signal.name()))
            .header(HOST, endpoint.authority())
            .header(USER_AGENT, AGENT)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .body(Full::new(body))
            .map_err(|error| ExportFailure::new(FailureKind::NoData, error))?;
        for (name, value) in &self.config.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        Ok(request)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, ExportFailure> {
        let endpoint = &self.config.endpoint;
        let unreachable = |error: &dyn std::fmt::Display| {
            ExportFailure::new(FailureKind::Unreachable, format!("no connection: {error}"))
        };
        let stream = TcpStream::connect((&endpoint.host[..], endpoint.port)).await;
        let stream = stream.map_err(|error| unreachable(&error))?;
        let Some(tls) = self.config.tls.as_ref().filter(|_| endpoint.is_encrypted) else {
            return handshake(stream).await;
        };
        let name = ServerName::try_from(endpoint.host.clone());
        let name = name.map_err(|error| unreachable(&error))?;
        let connecting = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await;
        handshake(connecting.map_err(|error| unreachable(&error))?).await
    }
}

/// Begins HTTP on a connection.
async fn handshake<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, ExportFailure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = http1::handshake(TokioIo::new(stream)).await;
    let (sender, connection) =
        begun.map_err(|error| ExportFailure::new(FailureKind::Unreachable, error))?;
    tokio::spawn(async move {
        // The request on the connection reports the error.
        let _ = connection.await;
    });
    Ok(sender)
}

async fn send(
    connection: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, ExportFailure> {
    let response = async {
        connection.ready().await?;
        connection.send_request(request).await
    };
    response.await.map_err(|error| {
        let reason = match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        ExportFailure::new(FailureKind::InvalidResponse, format!("no valid response: {reason}"))
    })
}

fn retry_after(response: &Response<Incoming>) -> Option<u64> {
    response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

fn no_response(limit: Duration) -> String {
    format!("no response within {} s", limit.as_secs_f64())
}

/// The reason of a refused export. The collector's text is not shown: it may be long, or HTML.
fn refusal(status: StatusCode, signal: Signal) -> String {
    let hint = match status {
        StatusCode::NOT_FOUND => format!("; it may have no pipeline of {signal}"),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "; check OTEL_EXPORTER_OTLP_HEADERS".to_string()
        }
        _ => String::new(),
    };
    format!("the collector answers {status}{hint}")
}
