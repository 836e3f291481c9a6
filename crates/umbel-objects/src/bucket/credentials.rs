//! Credentials whose failures name the places that were looked at.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{Env, ObjectErrorKind};

use super::call_record::{ANSWER_BYTES_MAX, CALL, CallRecord};
use super::error_text::causes;
use super::profile_files::ProfileLocation;

type Fetch<'f, T> = Pin<Box<dyn Future<Output = object_store::Result<Arc<T>>> + Send + 'f>>;

/// Credentials from a source that can fail.
///
/// INVARIANT: requests of the source leave no facts in the record of the request that needs the
/// credentials. Status 404 of a metadata service is not that of an object.
pub(super) struct NamedCredentials<T> {
    inner: Arc<dyn CredentialProvider<Credential = T>>,
    /// Beginning of the message of a failure: the places that were looked at.
    places: String,
    /// Whether the source has had credentials, so that a failure can pass.
    was_fetched: AtomicBool,
}

impl<T> NamedCredentials<T> {
    pub(super) fn new(
        inner: Arc<dyn CredentialProvider<Credential = T>>,
        places: String,
    ) -> NamedCredentials<T> {
        NamedCredentials { inner, places, was_fetched: AtomicBool::new(false) }
    }
}

impl<T> fmt::Debug for NamedCredentials<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedCredentials").field("places", &self.places).finish_non_exhaustive()
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> CredentialProvider for NamedCredentials<T> {
    type Credential = T;

    fn get_credential<'provider, 'future>(&'provider self) -> Fetch<'future, T>
    where
        'provider: 'future,
        Self: 'future,
    {
        Box::pin(async move {
            let record = CallRecord::new(Duration::ZERO, ANSWER_BYTES_MAX);
            let error = match CALL.scope(Arc::clone(&record), self.inner.get_credential()).await {
                Ok(credentials) => {
                    self.was_fetched.store(true, Ordering::Relaxed);
                    return Ok(credentials);
                }
                Err(error) => error,
            };
            let is_temporary = self.was_fetched.load(Ordering::Relaxed)
                || matches!(record.status(), Some(429 | 500..=599));
            let kind = match is_temporary {
                true => ObjectErrorKind::Unavailable,
                false => ObjectErrorKind::Denied,
            };
            let cause = format!("{}: {}", self.places, causes(&error));
            // Without a record no caller asks for the cause.
            let _ = CALL.try_with(|call| call.note_credentials_failure(kind, cause));
            Err(error)
        })
    }
}

/// Credentials of a profile. Each request reads the files again, since other programs renew
/// temporary credentials in them.
pub(super) struct ProfileCredentials {
    env: Env,
    location: ProfileLocation,
    /// The last credentials, for the moment in which another program writes the file.
    last: Mutex<Arc<AwsCredential>>,
}

impl ProfileCredentials {
    /// REQUIRES: `first` are the credentials of the profile.
    pub(super) fn new(
        env: &Env,
        location: ProfileLocation,
        first: AwsCredential,
    ) -> ProfileCredentials {
        ProfileCredentials { env: env.clone(), location, last: Mutex::new(Arc::new(first)) }
    }

    fn credentials(&self) -> Arc<AwsCredential> {
        // The value is replaced as a whole.
        let mut last = self.last.lock().ignore_poison();
        let read = self.location.read(&self.env).ok();
        if let Some((id, secret, token)) = read.as_ref().and_then(|profile| profile.access_key()) {
            let is_same =
                last.key_id == id && last.secret_key == secret && last.token.as_deref() == token;
            if !is_same {
                *last = Arc::new(access_key(id, secret, token));
            }
        }
        Arc::clone(&last)
    }
}

impl fmt::Debug for ProfileCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProfileCredentials")
            .field("location", &self.location)
            .finish_non_exhaustive()
    }
}

impl CredentialProvider for ProfileCredentials {
    type Credential = AwsCredential;

    fn get_credential<'provider, 'future>(&'provider self) -> Fetch<'future, AwsCredential>
    where
        'provider: 'future,
        Self: 'future,
    {
        Box::pin(async move { Ok(self.credentials()) })
    }
}

/// Returns credentials with these parts.
pub(super) fn access_key(id: &str, secret: &str, token: Option<&str>) -> AwsCredential {
    AwsCredential {
        key_id: id.to_owned(),
        secret_key: secret.to_owned(),
        token: token.map(str::to_owned),
    }
}
