//! [`Basic`] and [`Verifier`]: what a request says of who makes it, and whether that is so.
//!
//! Finding out costs some milliseconds and 19 MiB on purpose, so it is done for two requests at a
//! time and for so many waiting ones, and what came of it is known for a while: by a keyed hash of
//! the credentials, never by the credentials. What is known no longer counts once the user is
//! changed. A name that nobody has takes as long as a wrong password.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use ring::hmac;
use tokio::sync::Semaphore;
use tonic::Status;
use umbel_env::{Clock, Env};

use crate::failure;
use crate::limits::{CREDENTIALS_KEPT, CREDENTIALS_TIME, CREDENTIALS_WAITING, WRONG_TIME};
use crate::passwords::{self, AT_A_TIME, PASSWORD_BYTES_MAX, Secret};
use crate::rules::{KnownUser, Rules};
use crate::store::EventStore;
use crate::users::NAME_BYTES_MAX;

/// A name and a password, as a request says them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Basic {
    login: String,
    password: Secret,
}

impl Basic {
    /// What the headers say; an error where that cannot be understood.
    pub fn read(headers: &HeaderMap) -> Result<Option<Basic>, Status> {
        let mut said = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = said.next() else { return Ok(None) };
        let parsed = if said.next().is_some() { None } else { Basic::parse(value.as_bytes()) };
        parsed.map(Some).ok_or_else(failure::unauthenticated)
    }

    /// A name and a password.
    pub fn new(login: &str, password: &str) -> Basic {
        Basic { login: login.to_string(), password: Secret::new(password) }
    }

    /// What was read is bounded, and read again where it is said again. For fuzzing only.
    pub fn check(&self) {
        let (login, password) = (&self.login, self.password.reveal());
        assert!(!login.contains(':') && login.len() <= NAME_BYTES_MAX);
        assert!(password.len() <= PASSWORD_BYTES_MAX);
        let said = format!("BASIC {}", STANDARD.encode(format!("{login}:{password}")));
        assert_eq!(Basic::parse(said.as_bytes()).as_ref(), Some(self));
    }

    fn parse(value: &[u8]) -> Option<Basic> {
        let (scheme, coded) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let text = String::from_utf8(STANDARD.decode(coded.trim_ascii()).ok()?).ok()?;
        let (login, password) = text.split_once(':')?;
        let is_short = login.len() <= NAME_BYTES_MAX && password.len() <= PASSWORD_BYTES_MAX;
        is_short.then(|| Basic::new(login, password))
    }
}

/// A keyed hash of a name and a password.
type Mark = [u8; 32];

/// What came of looking at credentials.
#[derive(Clone)]
struct Outcome {
    user: KnownUser,
    is_right: bool,
    until: Duration,
}

/// Finds out whether users are who they say they are.
pub struct Verifier {
    env: Env,
    key: hmac::Key,
    outcomes: Mutex<Outcomes>,
    /// Who is being looked at; those who say the same wait for the same answer.
    pending: Mutex<HashMap<Mark, Arc<tokio::sync::Mutex<()>>>>,
    places: Arc<Semaphore>,
    /// What is kept of a password that nobody has.
    nobodys: Arc<str>,
}

/// Those looked at lately, and those before them.
#[derive(Default)]
struct Outcomes {
    young: HashMap<Mark, Outcome>,
    old: HashMap<Mark, Outcome>,
}

impl Verifier {
    /// One that knows nobody yet.
    pub fn new(env: &Env) -> umbel::Result<Verifier> {
        let mut key = [0; 32];
        env.entropy.fill(&mut key)?;
        let secret = Secret::make(&*env.entropy)?;
        // Where it cannot be kept a name that nobody has is told sooner, and nothing worse.
        let nobodys = passwords::keep(secret.reveal(), &*env.entropy).unwrap_or_default();
        Ok(Verifier {
            env: env.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            outcomes: Mutex::default(),
            pending: Mutex::default(),
            places: Arc::new(Semaphore::new(AT_A_TIME)),
            nobodys: nobodys.into(),
        })
    }

    /// The user whose name and password these are; an error where they are nobody's.
    pub async fn verify(
        &self,
        rules: &Arc<Rules>,
        store: &EventStore,
        basic: Basic,
    ) -> Result<KnownUser, Status> {
        let mark = self.mark(&basic);
        if let Some(outcome) = self.known(&mark) {
            return outcome.answer();
        }
        let pending = Pending::join(self, mark)?;
        let turn = Arc::clone(&pending.turn);
        let _turn = turn.lock().await;
        if let Some(outcome) = self.known(&mark) {
            return outcome.answer();
        }
        let outcome = self.look(rules, store, basic).await?;
        self.keep(mark, outcome.clone());
        outcome.answer()
    }

    async fn look(
        &self,
        rules: &Arc<Rules>,
        store: &EventStore,
        basic: Basic,
    ) -> Result<Outcome, Status> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| failure::stopping())?;
        let (rules, nobodys) = (Arc::clone(rules), Arc::clone(&self.nobodys));
        // Whoever asked may go away: the place is taken until it is done.
        let looked = store.blocking(move |store| {
            let _place = place;
            let user = rules.user(store, &basic.login)?;
            let kept = user.value.as_ref().map_or(&*nobodys, |user| &*user.kept_password);
            let is_right = passwords::is_right(basic.password.reveal(), kept);
            let is_active = user.value.as_ref().is_some_and(|user| !user.is_disabled);
            #[cfg(feature = "canary")]
            let is_active = is_active || umbel_base::canary::Switch::ServerDisabledLetIn.is_on();
            Ok((user, is_right && is_active))
        });
        let (user, is_right) = looked.await.map_err(|error| failure::status(&error))?;
        let time = if is_right { CREDENTIALS_TIME } else { WRONG_TIME };
        let until = self.clock().now().saturating_add(time);
        Ok(Outcome { user, is_right, until })
    }

    fn clock(&self) -> &dyn Clock {
        &*self.env.clock
    }

    fn mark(&self, basic: &Basic) -> Mark {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(basic.login.len() as u64).to_le_bytes());
        context.update(basic.login.as_bytes());
        context.update(basic.password.reveal().as_bytes());
        let mut mark = [0; 32];
        mark.copy_from_slice(context.sign().as_ref());
        mark
    }

    fn known(&self, mark: &Mark) -> Option<Outcome> {
        let now = self.clock().now();
        let mut outcomes = locked(&self.outcomes);
        let outcome = match outcomes.young.get(mark) {
            Some(outcome) => outcome.clone(),
            None => {
                let outcome = outcomes.old.remove(mark)?;
                outcomes.keep(*mark, outcome.clone());
                outcome
            }
        };
        (outcome.user.is_fresh() && now < outcome.until).then_some(outcome)
    }

    fn keep(&self, mark: Mark, outcome: Outcome) {
        locked(&self.outcomes).keep(mark, outcome);
    }
}

impl Outcomes {
    fn keep(&mut self, mark: Mark, outcome: Outcome) {
        if self.young.len() >= CREDENTIALS_KEPT {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(mark, outcome);
    }
}

impl Outcome {
    fn answer(self) -> Result<KnownUser, Status> {
        if self.is_right { Ok(self.user) } else { Err(failure::unauthenticated()) }
    }
}

/// Somebody who waits for an answer; goes away when he does.
struct Pending<'a> {
    verifier: &'a Verifier,
    mark: Mark,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl<'a> Pending<'a> {
    fn join(verifier: &'a Verifier, mark: Mark) -> Result<Pending<'a>, Status> {
        let mut pending = locked(&verifier.pending);
        if !pending.contains_key(&mark) && pending.len() >= CREDENTIALS_WAITING {
            return Err(failure::too_busy());
        }
        let turn = Arc::clone(pending.entry(mark).or_default());
        Ok(Pending { verifier, mark, turn })
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let mut pending = locked(&self.verifier.pending);
        // The map's and this one.
        let is_last = pending.get(&self.mark).is_some_and(|turn| Arc::strong_count(turn) <= 2);
        if is_last {
            pending.remove(&self.mark);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}
