//! [`BasicCredentials`] and [`Authenticator`]: the credentials of a request and their verification.
//!
//! A verification deliberately costs some milliseconds and 19 MiB. At most two verifications run at
//! a time, and a bounded number of requests wait. Results are cached for a while under a keyed hash
//! of the credentials, never under the credentials. A cached result is invalid once the user
//! changes. Verifying an unknown name takes as long as verifying a wrong password.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use ring::hmac;
use tokio::sync::Semaphore;
use tonic::Status;
use umbel_env::{Clock, Env};

use crate::access_control::acl_cache::{AclCache, CachedUser};
use crate::access_control::passwords::{self, CONCURRENT_HASHES_MAX, PASSWORD_BYTES_MAX, Secret};
use crate::access_control::users::NAME_BYTES_MAX;
use crate::event_store::EventStore;
use crate::limits::{
    CACHED_CREDENTIALS_MAX, CREDENTIALS_TIME, PENDING_CREDENTIALS_MAX, WRONG_CREDENTIALS_TIME,
};
use crate::protocol::grpc_status;

/// A name and a password from a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasicCredentials {
    login: String,
    password: Secret,
}

impl BasicCredentials {
    /// Parses the credentials in the headers; an error if they are malformed.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<BasicCredentials>, Status> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let parsed =
            if values.next().is_some() { None } else { BasicCredentials::parse(value.as_bytes()) };
        parsed.map(Some).ok_or_else(grpc_status::unauthenticated)
    }

    /// Creates credentials of a name and a password.
    pub fn new(login: &str, password: &str) -> BasicCredentials {
        BasicCredentials { login: login.to_string(), password: Secret::new(password) }
    }

    /// Checks that parsed credentials have a bounded length and are unchanged after encoding and
    /// parsing. For fuzzing only.
    pub fn assert_round_trip(&self) {
        let (login, password) = (&self.login, self.password.reveal());
        assert!(!login.contains(':') && login.len() <= NAME_BYTES_MAX);
        assert!(password.len() <= PASSWORD_BYTES_MAX);
        let values = format!("BASIC {}", STANDARD.encode(format!("{login}:{password}")));
        assert_eq!(BasicCredentials::parse(values.as_bytes()).as_ref(), Some(self));
    }

    fn parse(value: &[u8]) -> Option<BasicCredentials> {
        let (scheme, coded) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let text = String::from_utf8(STANDARD.decode(coded.trim_ascii()).ok()?).ok()?;
        let (login, password) = text.split_once(':')?;
        let is_short = login.len() <= NAME_BYTES_MAX && password.len() <= PASSWORD_BYTES_MAX;
        is_short.then(|| BasicCredentials::new(login, password))
    }
}

/// A keyed hash of a name and a password.
type CredentialHash = [u8; 32];

/// The result of a verification of credentials.
#[derive(Clone)]
struct Verification {
    user: CachedUser,
    is_correct: bool,
    expires_at: Duration,
}

/// Verifies names and passwords.
pub struct Authenticator {
    env: Env,
    key: hmac::Key,
    cache: Mutex<VerificationCache>,
    /// Running verifications; requests with the same credentials wait for the same result.
    pending: Mutex<HashMap<CredentialHash, Arc<tokio::sync::Mutex<()>>>>,
    worker_slots: Arc<Semaphore>,
    /// The hash of a random password that no user has.
    dummy_hash: Arc<str>,
}

/// Results of recent verifications, in two generations.
#[derive(Default)]
struct VerificationCache {
    recent: HashMap<CredentialHash, Verification>,
    previous: HashMap<CredentialHash, Verification>,
}

impl Authenticator {
    /// Creates an authenticator with an empty cache.
    pub fn new(env: &Env) -> umbel::Result<Authenticator> {
        let mut key = [0; 32];
        env.entropy.fill(&mut key)?;
        let secret = Secret::generate(&*env.entropy)?;
        // Without this hash an unknown name is refused sooner; nothing worse follows.
        let fallback_hash =
            passwords::hash_password(secret.reveal(), &*env.entropy).unwrap_or_default();
        Ok(Authenticator {
            env: env.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            cache: Mutex::default(),
            pending: Mutex::default(),
            worker_slots: Arc::new(Semaphore::new(CONCURRENT_HASHES_MAX)),
            dummy_hash: fallback_hash.into(),
        })
    }

    /// The user with this name and password; an error if name or password is wrong.
    pub async fn verify(
        &self,
        rules: &Arc<AclCache>,
        store: &EventStore,
        basic: BasicCredentials,
    ) -> Result<CachedUser, Status> {
        let mark = self.hash_credentials(&basic);
        if let Some(outcome) = self.cached(&mark) {
            return outcome.into_result();
        }
        let pending = PendingVerification::join(self, mark)?;
        let turn = Arc::clone(&pending.turn);
        let _turn = turn.lock().await;
        if let Some(outcome) = self.cached(&mark) {
            return outcome.into_result();
        }
        let outcome = self.verify_uncached(rules, store, basic).await?;
        self.insert(mark, outcome.clone());
        outcome.into_result()
    }

    async fn verify_uncached(
        &self,
        rules: &Arc<AclCache>,
        store: &EventStore,
        basic: BasicCredentials,
    ) -> Result<Verification, Status> {
        let slot = Arc::clone(&self.worker_slots).acquire_owned().await;
        let slot = slot.map_err(|_| grpc_status::shutting_down())?;
        let (rules, fallback_hash) = (Arc::clone(rules), Arc::clone(&self.dummy_hash));
        // The caller may disconnect: the slot stays taken until the hash is done.
        let verification = store.blocking(move |store| {
            let _slot = slot;
            let user = rules.user(store, &basic.login)?;
            let kept = user.value.as_ref().map_or(&*fallback_hash, |user| &*user.password_hash);
            let is_right = passwords::verify(basic.password.reveal(), kept);
            let is_active = user.value.as_ref().is_some_and(|user| user.is_active());
            Ok((user, is_right && is_active))
        });
        let (user, is_right) = verification.await.map_err(|error| grpc_status::status(&error))?;
        let time = if is_right { CREDENTIALS_TIME } else { WRONG_CREDENTIALS_TIME };
        let until = self.clock().now().saturating_add(time);
        Ok(Verification { user, is_correct: is_right, expires_at: until })
    }

    fn clock(&self) -> &dyn Clock {
        &*self.env.clock
    }

    fn hash_credentials(&self, basic: &BasicCredentials) -> CredentialHash {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(basic.login.len() as u64).to_le_bytes());
        context.update(basic.login.as_bytes());
        context.update(basic.password.reveal().as_bytes());
        let mut mark = [0; 32];
        mark.copy_from_slice(context.sign().as_ref());
        mark
    }

    fn cached(&self, mark: &CredentialHash) -> Option<Verification> {
        let now = self.clock().now();
        let mut outcomes = self.cache.lock().ignore_poison();
        let outcome = match outcomes.recent.get(mark) {
            Some(outcome) => outcome.clone(),
            None => {
                let outcome = outcomes.previous.remove(mark)?;
                outcomes.insert(*mark, outcome.clone());
                outcome
            }
        };
        (outcome.user.is_fresh() && now < outcome.expires_at).then_some(outcome)
    }

    fn insert(&self, mark: CredentialHash, outcome: Verification) {
        self.cache.lock().ignore_poison().insert(mark, outcome);
    }
}

impl VerificationCache {
    fn insert(&mut self, mark: CredentialHash, outcome: Verification) {
        if self.recent.len() >= CACHED_CREDENTIALS_MAX {
            self.previous = std::mem::take(&mut self.recent);
        }
        self.recent.insert(mark, outcome);
    }
}

impl Verification {
    fn into_result(self) -> Result<CachedUser, Status> {
        if self.is_correct { Ok(self.user) } else { Err(grpc_status::unauthenticated()) }
    }
}

/// A request that waits for a verification; dropped together with the request.
struct PendingVerification<'a> {
    verifier: &'a Authenticator,
    hash: CredentialHash,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl<'a> PendingVerification<'a> {
    fn join(
        verifier: &'a Authenticator,
        mark: CredentialHash,
    ) -> Result<PendingVerification<'a>, Status> {
        let mut pending = verifier.pending.lock().ignore_poison();
        if !pending.contains_key(&mark) && pending.len() >= PENDING_CREDENTIALS_MAX {
            return Err(grpc_status::authentication_overloaded());
        }
        let turn = Arc::clone(pending.entry(mark).or_default());
        Ok(PendingVerification { verifier, hash: mark, turn })
    }
}

impl Drop for PendingVerification<'_> {
    fn drop(&mut self) {
        let mut pending = self.verifier.pending.lock().ignore_poison();
        // The map's reference and this one.
        let is_last = pending.get(&self.hash).is_some_and(|turn| Arc::strong_count(turn) <= 2);
        if is_last {
            pending.remove(&self.hash);
        }
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}
