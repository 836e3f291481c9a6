//! [`OtlpOptions`]: options of the export to an OpenTelemetry collector. Each has an environment
//! variable that OpenTelemetry's specification names.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{ArgAction, Args};
use umbel_server::{OtlpConfig, Sampler, Secret, TelemetryHub, parse_headers, parse_pairs};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::tls;
use crate::events::serve::option_sources::{OTEL_PREFIX, OptionSources};
use crate::events::serve::serve_args::{ServeOptions, parse_path};
use crate::text::numbers::{integer_parser, parse_switch};

/// Limits of the interval and the timeout in milliseconds.
const INTERVAL_MILLIS: (u64, u64) = (100, 3_600_000);
const TIMEOUT_MILLIS: (u64, u64) = (1, 600_000);

/// Options of the export that are no flags: the headers may be secrets, which other users of a
/// machine see in flags, and the others have variables that all programs with OpenTelemetry share.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct OtlpOptions {
    /// Protocol; only `http/protobuf`.
    #[arg(long, default_value = "http/protobuf", value_parser = parse_protocol)]
    pub otlp_protocol: String,
    /// Headers of each request, as `name=value` pairs with commas.
    #[arg(long, value_parser = parse_secret_headers)]
    pub otlp_headers: Option<Secret>,
    /// Milliseconds for one export.
    #[arg(long, default_value = "10000",
        value_parser = integer_parser(TIMEOUT_MILLIS.0, TIMEOUT_MILLIS.1)
            .map(Duration::from_millis))]
    pub otlp_timeout: Duration,
    /// PEM file of the trusted authorities, in place of those of the operating system.
    #[arg(long, value_parser = parse_path)]
    pub otlp_certificate: Option<PathBuf>,
    /// Name of the service.
    #[arg(long)]
    pub otlp_service_name: Option<String>,
    /// Attributes of the server, as `name=value` pairs with commas.
    #[arg(long, value_parser = parse_attributes)]
    pub otlp_resource_attributes: Option<String>,
    /// Name of the sampler of spans.
    #[arg(long, default_value = Sampler::DEFAULT_NAME, value_parser = parse_sampler)]
    pub trace_sampler: String,
    /// Milliseconds between two exports of metrics.
    #[arg(long, default_value = "60000",
        value_parser = integer_parser(INTERVAL_MILLIS.0, INTERVAL_MILLIS.1)
            .map(Duration::from_millis))]
    pub otlp_metric_interval: Duration,
    /// Whether nothing is exported, in spite of an endpoint.
    #[arg(long, action = ArgAction::Set, default_value = "false", value_parser = parse_switch)]
    pub otlp_disabled: bool,
}

impl OtlpOptions {
    /// Whether an endpoint, if there is one, is used.
    pub fn is_on(&self) -> bool {
        !self.otlp_disabled
    }

    /// Returns the state of the export; `None` if nothing is exported.
    ///
    /// # Errors
    /// The certificates cannot be used, or the program is built without the export.
    pub fn to_hub(
        &self,
        options: &ServeOptions,
        sources: &OptionSources,
    ) -> CommandResult<Option<Arc<TelemetryHub>>> {
        let Some(endpoint) = options.otlp_endpoint.clone().filter(|_| self.is_on()) else {
            return Ok(None);
        };
        let tls = match endpoint.is_encrypted {
            true => {
                let authorities = self.otlp_certificate.as_deref();
                Some(Arc::new(tls::verifying_config(authorities, "otlp-certificate")?))
            }
            false => None,
        };
        let usage = |why: String| CommandError::Usage(format!("otlp: {why}"));
        let headers = self.otlp_headers.as_ref().map_or("", Secret::reveal);
        let config = OtlpConfig {
            endpoint,
            signals: options.otlp_signals.0.clone(),
            headers: parse_headers(headers).map_err(usage)?,
            resource: self.resource().map_err(usage)?,
            sampler: self.sampler(options.trace_sample_ratio, sources).map_err(usage)?,
            metric_interval: self.otlp_metric_interval,
            timeout: self.otlp_timeout,
            tls,
        };
        TelemetryHub::new(config).map(Some).map_err(CommandError::usage)
    }

    /// The sampler. A ratio from a source of Umbel's own is not ignored because a variable, which
    /// all programs share, names a sampler without a ratio.
    fn sampler(&self, ratio: f64, sources: &OptionSources) -> Result<Sampler, String> {
        let ratio_source = sources.source("trace-sample-ratio");
        let is_shared = ratio_source == "default" || ratio_source.starts_with(OTEL_PREFIX);
        let is_overridden = sources.source("trace-sampler").starts_with(OTEL_PREFIX) && !is_shared;
        let name = if is_overridden { Sampler::DEFAULT_NAME } else { &self.trace_sampler };
        Sampler::from_name(name, ratio)
    }

    /// Names and values that describe the server. The name of the service comes first.
    fn resource(&self) -> Result<Vec<(String, String)>, String> {
        let mut pairs = parse_pairs(self.otlp_resource_attributes.as_deref().unwrap_or_default())?;
        if let Some(service) = &self.otlp_service_name {
            pairs.retain(|(name, _)| name != "service.name");
            pairs.push(("service.name".to_string(), service.clone()));
        }
        Ok(pairs)
    }
}

fn parse_protocol(text: &str) -> Result<String, String> {
    match text {
        "http/protobuf" => Ok(text.to_string()),
        _ => {
            Err("must be http/protobuf: no other protocol is supported, and the collector's port \
                  for it is usually 4318"
                .to_string())
        }
    }
}

fn parse_secret_headers(text: &str) -> Result<Secret, String> {
    parse_headers(text).map(|_| Secret::new(text))
}

fn parse_attributes(text: &str) -> Result<String, String> {
    parse_pairs(text).map(|_| text.to_string())
}

fn parse_sampler(text: &str) -> Result<String, String> {
    Sampler::from_name(text, 0.0).map(|_| text.to_string())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{Args as _, Command};
    use umbel_server::Signal;

    use super::*;
    use crate::events::serve::serve_args::ServeArgs;
    use crate::events::serve::serve_config::ServeConfig;

    type Read = (Option<Arc<TelemetryHub>>, String);

    /// The export that flags and variables configure, and the printed options.
    fn read(flags: &[&str], variables: &[(&str, &str)]) -> Read {
        let command = ServeArgs::augment_args(Command::new("serve").no_binary_name(true));
        let flags = command.try_get_matches_from(flags).unwrap();
        let owned = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let owned: Vec<(OsString, OsString)> = owned.collect();
        let (config, sources) = ServeConfig::read(None, owned.into_iter(), Some(&flags)).unwrap();
        let hub = config.otlp.to_hub(&config.options, &sources).unwrap();
        (hub, config.to_toml(&sources))
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://shared:4318");

    fn sampler(name: &str, ratio: f64) -> Sampler {
        Sampler::from_name(name, ratio).unwrap()
    }

    #[test]
    fn export_is_off_without_an_endpoint_or_if_disabled() {
        let is_on = |variables: &[(&str, &str)]| read(&[], variables).0.is_some();
        assert!(!is_on(&[]) && !is_on(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]));
        assert!(is_on(&[ENDPOINT]));
        assert!(!is_on(&[ENDPOINT, ("OTEL_SDK_DISABLED", "true")]));
    }

    #[test]
    fn own_sources_override_the_variables_that_programs_share() {
        let flags = ["--otlp-endpoint", "http://own:1", "--otlp-signals", "logs"];
        let (hub, _) = read(&flags, &[ENDPOINT, ("OTEL_TRACES_SAMPLER_ARG", "0.5")]);
        let config = hub.unwrap().config().clone();
        assert_eq!(config.endpoint.to_string(), "http://own:1");
        assert_eq!(config.signals, [Signal::Logs]);
        assert_eq!(config.sampler, sampler(Sampler::DEFAULT_NAME, 0.5));
        let shared = [ENDPOINT, ("OTEL_TRACES_SAMPLER", "always_on")];
        let (hub, _) = read(&[], &shared);
        assert_eq!(hub.unwrap().config().sampler, sampler("always_on", 0.0));
        let (hub, _) = read(&["--trace-sample-ratio", "0.25"], &shared);
        assert_eq!(hub.unwrap().config().sampler, sampler(Sampler::DEFAULT_NAME, 0.25));
    }

    #[test]
    fn resource_and_headers_come_from_variables_and_headers_are_not_shown() {
        let (hub, printed) = read(
            &[],
            &[
                ENDPOINT,
                ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=kept"),
                ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,zone=eu"),
                ("OTEL_SERVICE_NAME", "shop"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "500"),
            ],
        );
        let config = hub.unwrap().config().clone();
        let wanted = [("zone", "eu"), ("service.name", "shop")];
        let wanted = wanted.map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(config.resource, wanted);
        assert_eq!(config.metric_interval, Duration::from_millis(500));
        assert_eq!(config.headers[0].1, "kept");
        assert!(!printed.contains("kept"), "{printed}");
        let line = "otlp-endpoint = \"http://shared:4318\"";
        assert!(printed.contains(line) && printed.contains("# OTEL_EXPORTER_OTLP_ENDPOINT"));
        assert!(printed.contains("# otlp-headers is set by OTEL_EXPORTER_OTLP_HEADERS"));
    }
}
