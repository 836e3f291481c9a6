//! A bucket of Google Cloud Storage, and its settings.

use std::sync::Arc;

use object_store::RetryConfig;
use object_store::gcp::{GcpCredentialProvider, GoogleCloudStorage, GoogleCloudStorageBuilder};
use umbel_env::Env;

use super::authorities::authorities;
use super::bucket_url::CA_FILE;
use super::credentials::NamedCredentials;
use super::http_client::HttpClient;
use super::proxy::Proxies;
use crate::variables::Variables;

/// Variables of the library that replace settings of this module.
const OWN_SETTINGS: [&str; 2] = ["GOOGLE_BUCKET", "GOOGLE_BUCKET_NAME"];
/// Variables with credentials.
const CREDENTIALS: [&str; 5] = [
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_BEARER_TOKEN",
];
/// Variable with which Google's programs find an emulator.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";

/// Opens a bucket. No request is sent.
pub(super) fn open(
    env: &Env,
    bucket: &str,
    variables: &Variables,
) -> Result<GoogleCloudStorage, String> {
    let authorities = authorities(env, variables.get(CA_FILE))?;
    let client = HttpClient::new(authorities, Proxies::of(variables)?)?;
    let mut builder = GoogleCloudStorageBuilder::new();
    for (name, value) in variables.with_prefix("GOOGLE_") {
        if OWN_SETTINGS.contains(&name) {
            continue;
        }
        // Other programs' variables are not known.
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    let is_given = variables.first(&CREDENTIALS).is_some();
    if let Some(emulator) = variables.get(EMULATOR) {
        let has_scheme = emulator.contains("://");
        let url = if has_scheme { emulator.to_owned() } else { format!("http://{emulator}") };
        builder = builder.with_base_url(url.trim_end_matches('/'));
        if !is_given {
            builder = builder.with_bearer_token("emulator");
        }
    } else if let Some(url) = variables.get("GOOGLE_BASE_URL") {
        builder = builder.with_base_url(url.trim_end_matches('/'));
    }
    builder = builder
        .with_bucket_name(bucket)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_http_connector(client);
    let places = match variables.first(&CREDENTIALS) {
        Some(_) => "no credentials by the variables GOOGLE_*".to_owned(),
        None => "no credentials found in GOOGLE_APPLICATION_CREDENTIALS, in \
                 ~/.config/gcloud/application_default_credentials.json, and none at the instance's \
                 metadata"
            .to_owned(),
    };
    let source = builder.clone().build().map_err(|error| super::error_text::causes(&error))?;
    let source: GcpCredentialProvider = Arc::clone(source.credentials());
    let builder = builder.with_credentials(Arc::new(NamedCredentials::new(source, places)));
    builder.build().map_err(|error| super::error_text::causes(&error))
}
