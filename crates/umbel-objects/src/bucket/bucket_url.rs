//! [`BucketUrl`]: the URL of a bucket, with its options.

use umbel_base::{Error, Result};
use umbel_env::ObjectName;
use url::form_urlencoded;

use crate::variables::Variables;

/// Service with buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// Amazon S3, and stores with its protocol.
    S3,
    /// Google Cloud Storage.
    Gcs,
    /// Azure Blob Storage, whose buckets are containers.
    Azure,
}

/// Name of the internal variable with a file of trusted authorities.
pub(crate) const CA_FILE: &str = "umbel:ca-file";
/// Name of the internal variable with a proxy for all requests.
pub(crate) const PROXY: &str = "umbel:proxy";

/// Options of a URL, each with the variable in whose place it stands.
const OPTIONS: [(Option<Service>, &str, &str); 14] = [
    (None, "ca-file", CA_FILE),
    (None, "proxy", PROXY),
    (Some(Service::S3), "endpoint", "AWS_ENDPOINT_URL_S3"),
    (Some(Service::S3), "profile", "AWS_PROFILE"),
    (Some(Service::S3), "region", "AWS_REGION"),
    (Some(Service::S3), "sse", "AWS_SERVER_SIDE_ENCRYPTION"),
    (Some(Service::S3), "sse-bucket-key", "AWS_SSE_BUCKET_KEY_ENABLED"),
    (Some(Service::S3), "sse-kms-key-id", "AWS_SSE_KMS_KEY_ID"),
    (Some(Service::S3), "virtual-host", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"),
    (Some(Service::Gcs), "credentials-file", "GOOGLE_APPLICATION_CREDENTIALS"),
    (Some(Service::Gcs), "endpoint", "GOOGLE_BASE_URL"),
    (Some(Service::Azure), "account", "AZURE_STORAGE_ACCOUNT_NAME"),
    (Some(Service::Azure), "client-id", "AZURE_CLIENT_ID"),
    (Some(Service::Azure), "endpoint", "AZURE_STORAGE_ENDPOINT"),
];

impl Service {
    /// All services.
    pub(crate) const ALL: [Service; 3] = [Service::S3, Service::Gcs, Service::Azure];

    /// Scheme of the URLs.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Service::S3 => "s3",
            Service::Gcs => "gs",
            Service::Azure => "az",
        }
    }

    /// Word for a bucket.
    pub(crate) fn bucket_word(self) -> &'static str {
        match self {
            Service::S3 | Service::Gcs => "bucket",
            Service::Azure => "container",
        }
    }

    /// Variables with credentials, for messages.
    fn credential_variables(self) -> &'static str {
        match self {
            Service::S3 => "AWS_ACCESS_KEY_ID",
            Service::Gcs => "GOOGLE_APPLICATION_CREDENTIALS",
            Service::Azure => "AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY",
        }
    }
}

/// A bucket, the prefix of all its keys, and options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BucketUrl {
    /// Service of the bucket.
    pub(crate) service: Service,
    /// Name of the bucket.
    pub(crate) bucket: String,
    /// Prefix of all keys without a slash at its ends; empty for the whole bucket.
    pub(crate) prefix: String,
    /// Names and values of variables that the options replace.
    replaced: Vec<(&'static str, String)>,
}

impl BucketUrl {
    /// Parses a URL; `None` if its scheme is not that of a bucket.
    pub(crate) fn parse(text: &str) -> Result<Option<BucketUrl>> {
        let Some((scheme, rest)) = text.split_once("://") else { return Ok(None) };
        let named = |service: &Service| scheme.eq_ignore_ascii_case(service.scheme());
        let Some(service) = Service::ALL.into_iter().find(named) else { return Ok(None) };
        let invalid = |reason: &str| {
            let word = service.bucket_word();
            Error::invalid(format!(
                "{}://... is not the URL of a {word}: {reason}; write {}://{}/PREFIX, and \
                 credentials in the environment ({})",
                service.scheme(),
                service.scheme(),
                word.to_uppercase(),
                service.credential_variables(),
            ))
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let is_allowed =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'$');
        if bucket.contains('@') {
            return Err(invalid("a URL has no credentials"));
        }
        if !(1..=255).contains(&bucket.len()) || !bucket.bytes().all(is_allowed) {
            return Err(invalid(&format!("{bucket:?} is no name of a {}", service.bucket_word())));
        }
        let prefix = prefix.trim_matches('/');
        if !prefix.is_empty() {
            ObjectName::new(prefix)?;
        }
        let mut replaced = Vec::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let known = options(service).find(|(option, _)| *option == name);
            let Some((_, variable)) = known else {
                let options: Vec<&str> = options(service).map(|(option, _)| option).collect();
                return Err(invalid(&format!(
                    "it has no option {name:?}; the options are {}",
                    options.join(", ")
                )));
            };
            if value.is_empty() {
                return Err(invalid(&format!("the option {name:?} has no value")));
            }
            replaced.push((variable, value.into_owned()));
        }
        let (bucket, prefix) = (bucket.to_owned(), prefix.to_owned());
        Ok(Some(BucketUrl { service, bucket, prefix, replaced }))
    }

    /// Returns the URL without its options, for messages.
    pub(crate) fn location(&self) -> String {
        let (scheme, bucket) = (self.service.scheme(), &self.bucket);
        match self.prefix.as_str() {
            "" => format!("{scheme}://{bucket}"),
            prefix => format!("{scheme}://{bucket}/{prefix}"),
        }
    }

    /// Returns the variables with the options in their places.
    pub(crate) fn settings(&self, variables: &Variables) -> Variables {
        let mut settings = variables.clone();
        settings.remove(CA_FILE);
        settings.remove(PROXY);
        for (name, value) in &self.replaced {
            settings.set(name, value);
            if *name == "AWS_PROFILE" {
                // A profile in the URL is meant, and not the credentials of the environment.
                for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"] {
                    settings.remove(name);
                }
            }
        }
        settings
    }
}

/// Returns the options of a service with their variables.
fn options(service: Service) -> impl Iterator<Item = (&'static str, &'static str)> {
    let of_service = move |(owner, _, _): &(Option<Service>, &str, &str)| {
        owner.is_none_or(|owner| owner == service)
    };
    OPTIONS.into_iter().filter(of_service).map(|(_, option, variable)| (option, variable))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> BucketUrl {
        BucketUrl::parse(url).expect(url).expect("a bucket")
    }

    #[test]
    fn urls_have_a_bucket_and_a_prefix() {
        for (url, service, bucket, prefix, location) in [
            ("s3://b", Service::S3, "b", "", "s3://b"),
            ("s3://b/", Service::S3, "b", "", "s3://b"),
            ("S3://my.b-1/a/b/", Service::S3, "my.b-1", "a/b", "s3://my.b-1/a/b"),
            ("gs://b/p", Service::Gcs, "b", "p", "gs://b/p"),
            ("az://c/p?account=a", Service::Azure, "c", "p", "az://c/p"),
        ] {
            let found = parse(url);
            assert_eq!((found.service, found.bucket.as_str()), (service, bucket), "{url}");
            assert_eq!((found.prefix.as_str(), found.location()), (prefix, location.to_owned()));
        }
        for url in ["file:///x", "b/p", "", "http://b/p"] {
            assert_eq!(BucketUrl::parse(url).expect(url), None);
        }
    }

    #[test]
    fn wrong_urls_are_refused_without_their_credentials() {
        for (url, reason) in [
            ("s3://", "s3://BUCKET/PREFIX"),
            ("s3:///p", "s3://BUCKET/PREFIX"),
            ("s3://id:secret@b/p", "a URL has no credentials"),
            ("s3://b:1/p", "no name of a bucket"),
            ("s3://b?x=1", "the options are ca-file, proxy, endpoint, profile, region"),
            ("s3://b?region=", "has no value"),
            ("s3://b?AWS_SECRET_ACCESS_KEY=secret", "has no option"),
            ("s3://b/../p", ".."),
            ("gs://b?region=x", "has no option"),
            ("az://c/p?key=secret", "az://CONTAINER/PREFIX"),
        ] {
            let error = BucketUrl::parse(url).expect_err(url).to_string();
            assert!(error.contains(reason) && !error.contains("secret"), "{url}: {error}");
        }
    }

    #[test]
    fn options_stand_in_the_place_of_variables() {
        let variables = Variables::new([
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("HOME", "/home/ada"),
        ]);
        let url = "s3://b/p?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=eu-west-1";
        let settings = parse(url).settings(&variables);
        assert_eq!(settings.get("AWS_ENDPOINT_URL_S3"), Some("http://127.0.0.1:9000"));
        assert_eq!(settings.get("AWS_REGION"), Some("eu-west-1"));
        assert_eq!(settings.get("AWS_ACCESS_KEY_ID"), Some("id"));
        let settings = parse("s3://b?profile=backup").settings(&variables);
        assert_eq!(settings.get("AWS_PROFILE"), Some("backup"));
        assert_eq!(settings.get("AWS_ACCESS_KEY_ID"), None);
        assert_eq!(settings.get("HOME"), Some("/home/ada"));
    }
}
