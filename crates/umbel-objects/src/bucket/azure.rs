//! A container of Azure Blob Storage, and its settings.

use std::sync::Arc;

use object_store::RetryConfig;
use object_store::azure::{
    AzureConfigKey, AzureCredentialProvider, MicrosoftAzure, MicrosoftAzureBuilder,
};
use umbel_env::Env;

use super::authorities::authorities;
use super::bucket_url::CA_FILE;
use super::credentials::NamedCredentials;
use super::error_text::causes;
use super::http_client::HttpClient;
use super::proxy::Proxies;
use crate::variables::Variables;

/// Variables of the library that replace settings of this module.
const OWN_SETTINGS: [&str; 2] = ["AZURE_CONTAINER_NAME", "AZURE_STORAGE_USE_EMULATOR"];
/// Variables of Azure's own tools, and the settings of the library that they are.
const TOOL_VARIABLES: [(&str, AzureConfigKey); 3] = [
    ("AZURE_STORAGE_ACCOUNT", AzureConfigKey::AccountName),
    ("AZURE_STORAGE_KEY", AzureConfigKey::AccessKey),
    ("IDENTITY_ENDPOINT", AzureConfigKey::MsiEndpoint),
];
/// Variable with account, key and endpoint in one text.
const CONNECTION_STRING: &str = "AZURE_STORAGE_CONNECTION_STRING";

/// Opens a container. No request is sent.
pub(super) fn open(
    env: &Env,
    container: &str,
    variables: &Variables,
) -> Result<MicrosoftAzure, String> {
    let authorities = authorities(env, variables.get(CA_FILE))?;
    let client = HttpClient::new(authorities, Proxies::of(variables)?)?;
    let mut builder = MicrosoftAzureBuilder::new();
    if let Some(text) = variables.get(CONNECTION_STRING) {
        for (key, value) in connection_string(text)? {
            builder = builder.with_config(key, value);
        }
    }
    for (name, key) in TOOL_VARIABLES {
        if let Some(value) = variables.get(name) {
            builder = builder.with_config(key, value);
        }
    }
    for (name, value) in variables.with_prefix("AZURE_") {
        if OWN_SETTINGS.contains(&name) {
            continue;
        }
        // Other programs' variables are not known.
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    if builder.get_config_value(&AzureConfigKey::AccountName).is_none() {
        return Err(format!(
            "no storage account; name it in AZURE_STORAGE_ACCOUNT_NAME or {CONNECTION_STRING}, or \
             as the option ?account=NAME of the URL"
        ));
    }
    builder = builder
        .with_container_name(container)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_http_connector(client);
    let has_key = [AzureConfigKey::AccessKey, AzureConfigKey::SasKey, AzureConfigKey::Token];
    let is_fixed = has_key.iter().any(|key| builder.get_config_value(key).is_some());
    if is_fixed {
        return builder.build().map_err(|error| causes(&error));
    }
    let places = "no credentials found in AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN and \
                  AZURE_STORAGE_CONNECTION_STRING, and none of AZURE_CLIENT_ID or of the \
                  instance's managed identity"
        .to_owned();
    let source = builder.clone().build().map_err(|error| causes(&error))?;
    let source: AzureCredentialProvider = Arc::clone(source.credentials());
    let builder = builder.with_credentials(Arc::new(NamedCredentials::new(source, places)));
    builder.build().map_err(|error| causes(&error))
}

/// Returns the settings in a connection string, `Name=value;...`.
fn connection_string(text: &str) -> Result<Vec<(AzureConfigKey, String)>, String> {
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    let mut settings = Vec::new();
    let (mut account, mut protocol, mut suffix, mut endpoint) = (None, "https", None, None);
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            return Err(format!("{CONNECTION_STRING} is not of the form Name=value;Name=value"));
        };
        match name {
            "AccountName" => account = Some(value),
            "AccountKey" => settings.push((AzureConfigKey::AccessKey, value.to_owned())),
            "SharedAccessSignature" => settings.push((AzureConfigKey::SasKey, value.to_owned())),
            "BlobEndpoint" => endpoint = Some(value.trim_end_matches('/').to_owned()),
            "DefaultEndpointsProtocol" => protocol = value,
            "EndpointSuffix" => suffix = Some(value),
            // Endpoints of queues and tables.
            _ => {}
        }
    }
    if let Some(account) = account {
        settings.push((AzureConfigKey::AccountName, account.to_owned()));
        let by_suffix = suffix.map(|suffix| format!("{protocol}://{account}.blob.{suffix}"));
        endpoint = endpoint.or(by_suffix);
    }
    settings.extend(endpoint.map(|endpoint| (AzureConfigKey::Endpoint, endpoint)));
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_have_account_key_and_endpoint() {
        let settings = |text: &str| connection_string(text).expect(text);
        let account = (AzureConfigKey::AccountName, "a".to_owned());
        let key = (AzureConfigKey::AccessKey, "k==".to_owned());
        let endpoint = |url: &str| (AzureConfigKey::Endpoint, url.to_owned());
        assert_eq!(
            settings(
                "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=k==;\
                 EndpointSuffix=core.windows.net"
            ),
            [key.clone(), account.clone(), endpoint("https://a.blob.core.windows.net")]
        );
        assert_eq!(
            settings("AccountName=a;AccountKey=k==;BlobEndpoint=http://127.0.0.1:10000/a/;"),
            [key, account.clone(), endpoint("http://127.0.0.1:10000/a")]
        );
        assert_eq!(settings("AccountName=a"), [account]);
        let error = connection_string("secret").expect_err("no setting");
        assert!(!error.contains("secret"), "{error}");
    }
}
