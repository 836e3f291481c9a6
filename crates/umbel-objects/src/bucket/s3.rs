//! A bucket with the S3 protocol: its settings, in the order of Amazon's tools.

use std::sync::Arc;

use object_store::RetryConfig;
use object_store::aws::{
    AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider, S3ConditionalPut,
};
use umbel_env::Env;

use super::authorities::authorities;
use super::bucket_url::CA_FILE;
use super::credentials::{NamedCredentials, ProfileCredentials, access_key};
use super::http_client::HttpClient;
use super::profile_files::{Profile, ProfileLocation};
use super::proxy::Proxies;
use crate::variables::Variables;

/// Variables of the library that replace settings of this module, or switch conditions off.
const OWN_SETTINGS: [&str; 6] = [
    "AWS_BUCKET",
    "AWS_BUCKET_NAME",
    "AWS_CONDITIONAL_PUT",
    "AWS_COPY_IF_NOT_EXISTS",
    "AWS_DISABLE_BULK_DELETE",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
];
/// Kinds of encryption by the store.
const ENCRYPTIONS: [&str; 4] = ["AES256", "aws:kms", "aws:kms:dsse", "sse-c"];
/// Default address of the metadata service of an instance.
const METADATA: &str = "http://169.254.169.254";

/// Opens a bucket. No request is sent.
pub(super) fn open(env: &Env, bucket: &str, variables: &Variables) -> Result<AmazonS3, String> {
    let location = ProfileLocation::of(variables);
    let profile = location.read(env).map_err(|error| error.to_string())?;
    let ca_file = variables.first(&[CA_FILE, "AWS_CA_BUNDLE"]).or(profile.get("ca_bundle"));
    let client = HttpClient::new(authorities(env, ca_file)?, Proxies::of(variables)?)?;
    let encryption = variables.get("AWS_SERVER_SIDE_ENCRYPTION");
    if let Some(unknown) = encryption.filter(|kind| !ENCRYPTIONS.contains(kind)) {
        return Err(format!(
            "the encryption {unknown:?} is unknown; the kinds are {}",
            ENCRYPTIONS.join(", ")
        ));
    }
    let mut builder = AmazonS3Builder::new();
    for (name, value) in variables.with_prefix("AWS_") {
        if OWN_SETTINGS.contains(&name) {
            continue;
        }
        // Other programs' variables are not known.
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            builder = builder.with_config(key, value);
        }
    }
    if variables.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).is_none()
        && let Some(region) = profile.get("region")
    {
        builder = builder.with_region(region);
    }
    builder = endpoint(builder, bucket, variables, &profile)?
        .with_bucket_name(bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_disable_bulk_delete(true)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
        .with_http_connector(client);
    let builder = credentials(env, builder, variables, &location, &profile)?;
    builder.build().map_err(|error| error.to_string())
}

/// Sets the endpoint and the place of the bucket: the path, or the name of the host.
fn endpoint(
    mut builder: AmazonS3Builder,
    bucket: &str,
    variables: &Variables,
    profile: &Profile,
) -> Result<AmazonS3Builder, String> {
    let names = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let named = variables.first(&names);
    let endpoint = named.or(profile.get("s3.endpoint_url")).or(profile.get("endpoint_url"));
    let variable = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST";
    let is_virtual = match variables.get(variable).map(str::to_ascii_lowercase).as_deref() {
        Some("true" | "1") => true,
        Some("false" | "0") => false,
        Some(other) => return Err(format!("{variable} is {other:?}; write true or false")),
        None => profile.get("s3.addressing_style") == Some("virtual"),
    };
    builder = builder.with_virtual_hosted_style_request(is_virtual);
    let Some(endpoint) = endpoint else { return Ok(builder) };
    let invalid = |reason: &str| {
        Err(format!(
            "the endpoint {endpoint:?} is no URL of a store: {reason}; write for example \
                     http://127.0.0.1:9000"
        ))
    };
    let mut url = match url::Url::parse(endpoint) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") => {
            return invalid("it begins with neither http:// nor https://");
        }
        Ok(url) => url,
        Err(error) => return invalid(&error.to_string()),
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the endpoint has credentials; name them in the environment \
                    (AWS_ACCESS_KEY_ID)"
            .into());
    }
    let host = url.host_str().unwrap_or_default().to_owned();
    if is_virtual
        && !host.starts_with(&format!("{bucket}."))
        && url.set_host(Some(&format!("{bucket}.{host}"))).is_err()
    {
        return invalid("the bucket cannot be a part of its host");
    }
    let endpoint = url.as_str().trim_end_matches('/');
    // The builder takes the endpoint for S3 first.
    Ok(builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint))
}

/// Sets the credentials of the first source that has some.
fn credentials(
    env: &Env,
    builder: AmazonS3Builder,
    variables: &Variables,
    location: &ProfileLocation,
    profile: &Profile,
) -> Result<AmazonS3Builder, String> {
    if variables.first(&["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]).is_some()
        || variables.get("AWS_SKIP_SIGNATURE").is_some()
    {
        return Ok(builder);
    }
    let (name, files) = (&location.name, location.files());
    if let Some((id, secret, token)) = profile.access_key() {
        let first = access_key(id, secret, token);
        let own = ProfileCredentials::new(env, location.clone(), first);
        return Ok(builder.with_credentials(Arc::new(own)));
    }
    if let Some(setting) = profile.unsupported_credentials() {
        return Err(format!(
            "the profile {name:?} in {files} gets credentials by {setting}, which this program \
             cannot do; export them into the environment: \
             aws configure export-credentials --profile {name} --format env"
        ));
    }
    let identity = ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN"].map(|name| variables.get(name));
    let of_profile = ["web_identity_token_file", "role_arn"].map(|name| profile.get(name));
    let (builder, places) = match (identity, of_profile) {
        ([Some(file), Some(role)], _) | (_, [Some(file), Some(role)]) => {
            let mut builder = builder
                .with_config(AmazonS3ConfigKey::WebIdentityTokenFile, file)
                .with_config(AmazonS3ConfigKey::RoleArn, role);
            let session = variables.get("AWS_ROLE_SESSION_NAME");
            if let Some(session) = session.or(profile.get("role_session_name")) {
                builder = builder.with_config(AmazonS3ConfigKey::RoleSessionName, session);
            }
            (builder, format!("no credentials of the role {role} with the web identity in {file}"))
        }
        _ => instance(builder, variables, &format!("the profile {name:?} in {files}"))?,
    };
    // The builder makes the source. A second one gets it with a name.
    let source = builder.clone().build().map_err(|error| error.to_string())?;
    let source: AwsCredentialProvider = Arc::clone(source.credentials());
    Ok(builder.with_credentials(Arc::new(NamedCredentials::new(source, places))))
}

/// Returns the sources of a container or of an instance, and their description.
fn instance(
    mut builder: AmazonS3Builder,
    variables: &Variables,
    profile: &str,
) -> Result<(AmazonS3Builder, String), String> {
    let container =
        ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
    if let Some(uri) = variables.first(&container) {
        return Ok((builder, format!("no credentials of the container at {uri}")));
    }
    let none = format!(
        "no credentials found in AWS_ACCESS_KEY_ID, in {profile}, and in \
         AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN"
    );
    let is_off = variables.get("AWS_EC2_METADATA_DISABLED");
    if is_off.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Err(format!(
            "{none}; AWS_EC2_METADATA_DISABLED switches the instance's metadata off"
        ));
    }
    let endpoints = ["AWS_EC2_METADATA_SERVICE_ENDPOINT", "AWS_METADATA_ENDPOINT"];
    let endpoint = variables.first(&endpoints).unwrap_or(METADATA).trim_end_matches('/');
    builder = builder.with_metadata_endpoint(endpoint);
    Ok((builder, format!("{none}, and none at the instance's metadata at {endpoint}")))
}
