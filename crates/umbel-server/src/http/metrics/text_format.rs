//! [`TextFormat`]: the two text formats of metrics, and the choice between them by `Accept`.

use std::fmt::{Error, Write};

use hyper::HeaderMap;
use hyper::header::ACCEPT;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

/// Format of metrics as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// [OpenMetrics](https://openmetrics.io/) 1.0.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
}

impl TextFormat {
    /// The format that the client prefers; that of Prometheus unless it asks for OpenMetrics.
    pub fn requested(headers: &HeaderMap) -> TextFormat {
        let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let ranges: Vec<MediaRange<'_>> =
            accepted.flat_map(|value| value.split(',')).map(MediaRange::parse).collect();
        let quality = |types: &[&str]| {
            let matching = ranges.iter().filter(|range| types.contains(&range.media_type));
            matching.map(|range| range.quality).fold(0.0, f64::max)
        };
        let open = quality(&["application/openmetrics-text"]);
        if open > 0.0 && open >= quality(&["text/plain", "text/*"]) {
            TextFormat::OpenMetrics
        } else {
            TextFormat::Prometheus
        }
    }

    /// Content type of the text.
    pub fn content_type(self) -> &'static str {
        match self {
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            TextFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// All metrics as text of this format.
    pub fn encode(self, registry: &Registry) -> Result<String, Error> {
        let mut text = String::new();
        encode(&mut text, registry)?;
        match self {
            TextFormat::OpenMetrics => Ok(text),
            TextFormat::Prometheus => to_prometheus(&text),
        }
    }
}

/// One of the media types that a client accepts, with its quality from 0 to 1.
struct MediaRange<'a> {
    media_type: &'a str,
    quality: f64,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> MediaRange<'a> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix("q="));
        let quality = quality.map_or(1.0, |text| text.parse().unwrap_or(0.0));
        MediaRange { media_type, quality }
    }
}

/// Rewrites OpenMetrics text in the text format of Prometheus. That format has the names of samples
/// in its descriptions, and no end mark.
fn to_prometheus(text: &str) -> Result<String, Error> {
    let mut converted = String::with_capacity(text.len());
    let mut help = None;
    for line in text.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
        } else if let Some(described) = line.strip_prefix("# TYPE ") {
            let (name, kind) = described.split_once(' ').ok_or(Error)?;
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                writeln!(converted, "# HELP {name}{suffix} {help}")?;
            }
            writeln!(converted, "# TYPE {name}{suffix} {kind}")?;
        } else if !line.starts_with('#') {
            writeln!(converted, "{line}")?;
        }
    }
    Ok(converted)
}

#[cfg(test)]
mod tests {
    use hyper::http::HeaderValue;
    use prometheus_client::metrics::counter::ConstCounter;
    use prometheus_client::metrics::gauge::ConstGauge;

    use super::*;

    #[test]
    fn format_follows_the_accepted_types() {
        let scrape = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                      version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            ("", TextFormat::Prometheus),
            ("*/*", TextFormat::Prometheus),
            (scrape, TextFormat::OpenMetrics),
            ("application/openmetrics-text", TextFormat::OpenMetrics),
            ("application/openmetrics-text;q=0.2, text/plain;q=0.3", TextFormat::Prometheus),
            ("application/openmetrics-text; q=0, */*", TextFormat::Prometheus),
            ("application/openmetrics-text;q=x", TextFormat::Prometheus),
            ("application/vnd.google.protobuf, text/plain; q=0.5", TextFormat::Prometheus),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(TextFormat::requested(&headers), format, "{accept}");
        }
        let value = HeaderValue::from_bytes(b"application/openmetrics-text\xff").unwrap();
        let headers = HeaderMap::from_iter([(ACCEPT, value)]);
        assert_eq!(TextFormat::requested(&headers), TextFormat::Prometheus);
    }

    #[test]
    fn formats_differ_in_names_of_descriptions_and_in_the_end_mark() {
        let mut registry = Registry::default();
        registry.register("reads", "Reads", ConstCounter::new(7u64));
        registry.register("depth", "Depth # of it", ConstGauge::new(2.5));
        let text = TextFormat::Prometheus.encode(&registry).unwrap();
        let expected = "# HELP reads_total Reads.\n# TYPE reads_total counter\nreads_total 7\n\
                        # HELP depth Depth # of it.\n# TYPE depth gauge\ndepth 2.5\n";
        assert_eq!(text, expected);
        let text = TextFormat::OpenMetrics.encode(&registry).unwrap();
        assert!(text.contains("# TYPE reads counter\n") && text.ends_with("# EOF\n"), "{text}");
    }
}
