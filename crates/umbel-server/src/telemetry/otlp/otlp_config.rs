//! [`OtlpConfig`]: settings of the export to an OpenTelemetry collector.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::{Scheme, Uri};
use percent_encoding::percent_decode_str;

use crate::telemetry::otlp::sampler::Sampler;
use crate::telemetry::otlp::signal::Signal;

/// Base address of a collector, such as `http://localhost:4318`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectorEndpoint {
    /// Host name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// Path before the paths of the signals, without a slash at its end.
    pub base_path: String,
}

/// Settings of the export to an OpenTelemetry collector.
#[derive(Clone)]
pub struct OtlpConfig {
    /// The collector.
    pub endpoint: CollectorEndpoint,
    /// The exported signals.
    pub signals: Vec<Signal>,
    /// Headers of each request; their values may be secrets.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Names and values that describe the server.
    pub resource: Vec<(String, String)>,
    /// Decides which calls are recorded as spans.
    pub sampler: Sampler,
    /// Interval of the exports of metrics.
    pub metric_interval: Duration,
    /// Time limit of one export.
    pub timeout: Duration,
    /// Trusted authorities; required for an encrypted endpoint.
    pub tls: Option<Arc<rustls::ClientConfig>>,
}

impl fmt::Debug for OtlpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The headers may contain a token.
        f.debug_struct("OtlpConfig").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl CollectorEndpoint {
    /// Parses an address.
    ///
    /// # Errors
    /// The text is no `http` or `https` address, or contains a user, a query or a fragment.
    pub fn parse(text: &str) -> Result<CollectorEndpoint, String> {
        let wrong = "must be an address such as http://localhost:4318";
        let address: Uri = text.parse().map_err(|_| wrong.to_string())?;
        let is_encrypted = match address.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => false,
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            _ => return Err(wrong.to_string()),
        };
        let authority = address.authority().ok_or(wrong)?;
        if authority.as_str().contains('@') {
            return Err("must contain no user or password; set OTEL_EXPORTER_OTLP_HEADERS".into());
        }
        if address.query().is_some() || text.contains('#') {
            return Err("must contain no query and no fragment".to_string());
        }
        let host = authority.host();
        let rest = &authority.as_str()[host.len()..];
        let port = match rest.strip_prefix(':') {
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or(wrong)?,
            None => {
                if is_encrypted {
                    443
                } else {
                    80
                }
            }
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_string();
        if host.is_empty() {
            return Err(wrong.to_string());
        }
        let base_path = address.path().trim_end_matches('/').to_string();
        Ok(CollectorEndpoint { host, port, is_encrypted, base_path })
    }

    /// Host and port, as in a `Host` header.
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Display for CollectorEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.base_path)
    }
}

/// Parses a list such as `key=value,key2=value2`, whose values may be percent-encoded, as in
/// `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_RESOURCE_ATTRIBUTES`.
///
/// # Errors
/// An element is no pair, or its value is not UTF-8. The error does not contain the text.
pub fn parse_pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let wrong = || "must be pairs such as name=value, with commas between them".to_string();
    let elements = text.split(',').map(str::trim).filter(|element| !element.is_empty());
    let pairs = elements.map(|element| {
        let (name, value) = element.split_once('=').ok_or_else(wrong)?;
        let decode = |text: &str| {
            let decoded = percent_decode_str(text.trim()).decode_utf8();
            decoded.map(String::from).map_err(|_| wrong())
        };
        let name = decode(name)?;
        if name.is_empty() { Err(wrong()) } else { Ok((name, decode(value)?)) }
    });
    pairs.collect()
}

/// Parses headers, in the form of [`parse_pairs`].
///
/// # Errors
/// The text is no list of pairs, or a pair is no valid header.
pub fn parse_headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let pairs = parse_pairs(text)?.into_iter().map(|(name, value)| {
        let name: HeaderName =
            name.parse().map_err(|_| "contains an invalid name of a header".to_string())?;
        let mut value: HeaderValue =
            value.parse().map_err(|_| format!("contains an invalid value of the header {name}"))?;
        value.set_sensitive(true);
        Ok((name, value))
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_parsed_with_default_ports() {
        for (text, shown) in [
            ("http://localhost:4318", "http://localhost:4318"),
            ("http://collector", "http://collector:80"),
            ("https://collector/", "https://collector:443"),
            ("HTTP://[::1]:4318/otlp/", "http://[::1]:4318/otlp"),
        ] {
            assert_eq!(CollectorEndpoint::parse(text).unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "localhost:4318",
            "collector",
            "grpc://collector:4317",
            "unix:///run/collector",
            "http://",
            "http://user:secret@collector",
            "http://collector:0",
            "http://collector:65536",
            "http://collector:4318?x=y",
            "http://collector:4318/a b",
        ] {
            let refused = CollectorEndpoint::parse(wrong).expect_err(wrong);
            assert!(refused.starts_with("must ") && !refused.contains("secret"), "{refused}");
        }
    }

    #[test]
    fn headers_and_attributes_are_lists_of_pairs() {
        let pairs = parse_pairs("a=b, service.name=shop%2Ccart ,c=d=e,").unwrap();
        let wanted = [("a", "b"), ("service.name", "shop,cart"), ("c", "d=e")];
        assert_eq!(pairs, wanted.map(|(name, value)| (name.to_string(), value.to_string())));
        assert_eq!(parse_pairs(""), Ok(Vec::new()));
        for wrong in ["a", "=b", "a=%ff"] {
            assert!(parse_pairs(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_headers("Api-Key=kept").unwrap()[0].0, "api-key");
        for wrong in ["a b=kept", "a=kept%0A", "kept"] {
            let refused = parse_headers(wrong).expect_err(wrong);
            assert!(!refused.contains("kept"), "a header may be a secret: {refused}");
        }
    }
}
