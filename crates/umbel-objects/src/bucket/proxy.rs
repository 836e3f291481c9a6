//! [`ProxyConnector`]: connections to a store, through a proxy where the settings name one.
//!
//! A request with `https` goes through a tunnel (`CONNECT`), so the proxy sees no more than the
//! host. A request with `http` is sent to the proxy with its whole URL.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper::header::HeaderValue;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::bucket_url::PROXY;
use crate::variables::Variables;

/// Hosts with credentials of the machine itself, which no proxy can reach.
const METADATA_HOSTS: &str =
    "169.254.169.254,169.254.170.2,169.254.170.23,metadata.google.internal";

/// Proxies by the rules of the environment variables.
#[derive(Debug, Clone)]
pub(super) struct Proxies {
    matcher: Arc<Matcher>,
}

impl Proxies {
    /// Reads `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capitals or not, or the
    /// proxy of the URL's option.
    ///
    /// # Errors
    /// A proxy is no URL, or has a protocol that this program does not know.
    pub(super) fn of(variables: &Variables) -> Result<Proxies, String> {
        let own = variables.get(PROXY);
        let proxy = |names: &[&'static str]| {
            let named = names.iter().find_map(|name| Some((*name, variables.get(name)?)));
            let (name, proxy) = match own {
                Some(proxy) => ("proxy", proxy),
                None => named.unwrap_or(("", "")),
            };
            check(name, proxy).map(|()| proxy.to_owned())
        };
        let excluded = variables.first(&["NO_PROXY", "no_proxy"]).unwrap_or("");
        let matcher = Matcher::builder()
            .https(proxy(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])?)
            .http(proxy(&["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])?)
            .no(format!("{excluded},{METADATA_HOSTS}"))
            .build();
        Ok(Proxies { matcher: Arc::new(matcher) })
    }

    /// Returns the header with the credentials of the proxy for a request that it sees as a whole.
    pub(super) fn authorization(&self, uri: &Uri) -> Option<HeaderValue> {
        let is_plain = uri.scheme_str() == Some("http");
        let proxy = self.matcher.intercept(uri).filter(|_| is_plain)?;
        proxy.basic_auth().cloned()
    }
}

fn check(name: &str, proxy: &str) -> Result<(), String> {
    let (scheme, rest) = proxy.split_once("://").unwrap_or(("http", proxy));
    let known = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    if known && (rest.is_empty() == proxy.is_empty()) {
        return Ok(());
    }
    Err(format!(
        "the proxy in {name} has the protocol {scheme:?}; name a proxy with http:// or https://"
    ))
}

/// Connector that the HTTP client uses below TLS.
#[derive(Debug, Clone)]
pub(super) struct ProxyConnector {
    /// Connects to proxies, with TLS for proxies with `https`, and to hosts without a proxy.
    direct: HttpsConnector<HttpConnector>,
    proxies: Proxies,
}

impl ProxyConnector {
    pub(super) fn new(direct: HttpsConnector<HttpConnector>, proxies: Proxies) -> ProxyConnector {
        ProxyConnector { direct, proxies }
    }
}

/// Connection to a host, or to a proxy.
pub(super) struct ProxyStream {
    stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    /// Whether the other side is a proxy that reads each request.
    is_proxied: bool,
}

/// Failure of a connection, with the proxy that it went through.
#[derive(Debug)]
pub(super) struct ConnectError {
    proxy: Option<String>,
    source: Box<dyn Error + Send + Sync>,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.proxy {
            Some(proxy) => write!(f, "no connection through the proxy {proxy}")?,
            None => write!(f, "no connection")?,
        }
        let mut source: Option<&dyn Error> = Some(&*self.source);
        let mut last = String::new();
        while let Some(error) = source {
            let text = error.to_string();
            if text != last {
                write!(f, ": {text}")?;
            }
            (last, source) = (text, error.source());
        }
        Ok(())
    }
}

impl Error for ConnectError {}

impl Service<Uri> for ProxyConnector {
    type Response = ProxyStream;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<ProxyStream, ConnectError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        let ready = self.direct.poll_ready(context);
        ready.map_err(|source| ConnectError { proxy: None, source })
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let Some(proxy) = self.proxies.matcher.intercept(&target) else {
            // TLS to the host itself is laid over this connection.
            let plain = with_scheme(&target, "http");
            let connecting = self.direct.call(plain);
            return Box::pin(async move {
                let stream =
                    connecting.await.map_err(|source| ConnectError { proxy: None, source })?;
                Ok(ProxyStream { stream, is_proxied: false })
            });
        };
        let name = Some(proxy.uri().to_string());
        if target.scheme_str() == Some("http") {
            let connecting = self.direct.call(proxy.uri().clone());
            return Box::pin(async move {
                let stream =
                    connecting.await.map_err(|source| ConnectError { proxy: name, source })?;
                Ok(ProxyStream { stream, is_proxied: true })
            });
        }
        let connecting = tunnel(&proxy, self.direct.clone()).call(target);
        Box::pin(async move {
            let stream = connecting
                .await
                .map_err(|source| ConnectError { proxy: name, source: Box::new(source) })?;
            Ok(ProxyStream { stream, is_proxied: false })
        })
    }
}

fn tunnel(
    proxy: &Intercept,
    direct: HttpsConnector<HttpConnector>,
) -> Tunnel<HttpsConnector<HttpConnector>> {
    let tunnel = Tunnel::new(proxy.uri().clone(), direct);
    match proxy.basic_auth() {
        Some(authorization) => tunnel.with_auth(authorization.clone()),
        None => tunnel,
    }
}

/// Returns a URL with another scheme and the port of its own.
fn with_scheme(uri: &Uri, scheme: &str) -> Uri {
    let port = uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let host = uri.host().unwrap_or_default();
    let changed = Uri::builder().scheme(scheme).authority(format!("{host}:{port}"));
    changed.path_and_query("/").build().unwrap_or_else(|_| uri.clone())
}

impl Connection for ProxyStream {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_proxied)
    }
}

impl Read for ProxyStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl Write for ProxyStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(variables: &[(&str, &str)], url: &str) -> Option<String> {
        let proxies = Proxies::of(&Variables::new(variables.iter().copied())).expect("proxies");
        let uri: Uri = url.parse().expect("a URL");
        proxies.matcher.intercept(&uri).map(|proxy| proxy.uri().to_string())
    }

    #[test]
    fn proxies_follow_the_variables() {
        let both = [("HTTPS_PROXY", "http://p:1"), ("http_proxy", "q:2"), ("NO_PROXY", "in.net")];
        for (variables, url, expected) in [
            (&both[..], "https://s3.amazonaws.com/b", Some("http://p:1/")),
            (&both, "http://s3.amazonaws.com/b", Some("http://q:2/")),
            (&both, "https://store.in.net/b", None),
            (&both, "http://169.254.169.254/latest", None),
            (&[("ALL_PROXY", "https://p:1")], "https://h/", Some("https://p:1/")),
            (
                &[("HTTPS_PROXY", "http://p:1"), (PROXY, "http://own:9")],
                "https://h/",
                Some("http://own:9/"),
            ),
            (&[], "https://h/", None),
        ] {
            assert_eq!(proxy(variables, url).as_deref(), expected, "{variables:?} {url}");
        }
        for wrong in ["socks5://p:1", "http://"] {
            let variables = Variables::new([("HTTPS_PROXY", wrong)]);
            let error = Proxies::of(&variables).expect_err(wrong);
            assert!(error.contains("HTTPS_PROXY"), "{error}");
        }
    }
}
