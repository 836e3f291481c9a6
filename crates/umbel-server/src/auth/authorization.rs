//! [`Access`]: who asks, and whether he may. Every call is looked at here before anything of the
//! store is.

use std::sync::Arc;

use hyper::HeaderMap;
use hyper::http::Extensions;
use tonic::Status;
use umbel_env::Env;

use crate::acl::{Action, Wanted};
use crate::credentials::{Basic, Verifier};
use crate::failure;
use crate::policy::{Need, need};
use crate::rules::{KnownUser, Rules};
use crate::store::EventStore;
use crate::users::{self, User};

/// Who asks.
#[derive(Debug, Clone)]
pub enum Caller {
    /// Anybody: this server does not ask who somebody is.
    Trusted,
    /// Somebody who does not say who he is.
    Nobody,
    /// A user who has shown that he is the one.
    User(KnownUser),
}

/// Whose certificate a connection came with: the name in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateUser(pub Arc<str>);

/// Who asks, and whether he may.
#[derive(Debug)]
pub struct Access {
    rules: Arc<Rules>,
    /// `None` where nobody is asked who he is.
    verifier: Option<Verifier>,
}

impl Access {
    /// With users, or for anybody.
    pub fn new(rules: Arc<Rules>, env: &Env, has_users: bool) -> umbel::Result<Access> {
        let verifier = has_users.then(|| Verifier::new(env)).transpose()?;
        Ok(Access { rules, verifier })
    }

    /// Whether users are asked who they are.
    pub fn has_users(&self) -> bool {
        self.verifier.is_some()
    }

    /// What the store says about users and rights.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    /// Who makes a request; an error where he says he is somebody and does not show it.
    pub async fn caller(
        &self,
        store: &EventStore,
        headers: &HeaderMap,
        certificate: Option<&CertificateUser>,
    ) -> Result<Caller, Status> {
        let Some(verifier) = &self.verifier else { return Ok(Caller::Trusted) };
        let user = match (Basic::read(headers)?, certificate) {
            (Some(basic), _) => verifier.verify(&self.rules, store, basic).await?,
            (None, Some(CertificateUser(name))) => self.user(store, name).await?,
            (None, None) => return Ok(Caller::Nobody),
        };
        active(&user)?;
        Ok(Caller::User(user))
    }

    /// Who makes a request to this path, where that is asked for.
    pub async fn caller_at(
        &self,
        store: &EventStore,
        path: &str,
        headers: &HeaderMap,
        certificate: Option<&CertificateUser>,
    ) -> Result<Caller, Status> {
        match need(path) {
            Need::Nothing if self.has_users() => Ok(Caller::Nobody),
            Need::Nothing => Ok(Caller::Trusted),
            _ => self.caller(store, headers, certificate).await,
        }
    }

    /// Whether the caller may ask anything at this path; the error that he is told where not.
    pub fn check_path(&self, caller: &Caller, path: &str) -> Result<(), Status> {
        let need = need(path);
        let is_enough = match caller {
            Caller::Trusted => true,
            Caller::Nobody => need == Need::Nothing,
            Caller::User(user) => {
                let user = active(user)?;
                match need {
                    Need::Nothing | Need::User | Need::Stream => true,
                    Need::Operator => user.is_operator(),
                    Need::Admin => user.is_in(users::ADMINS),
                }
            }
        };
        if is_enough { Ok(()) } else { Err(failure::access_denied()) }
    }

    /// Whether the caller may do this with a stream; the error that he is told where not.
    pub async fn check(
        &self,
        store: &EventStore,
        caller: &Caller,
        action: Action,
        stream: &str,
    ) -> Result<(), Status> {
        let user = match caller {
            _ if !self.has_users() => return Ok(()),
            Caller::Trusted => return Ok(()),
            Caller::Nobody => return Err(failure::access_denied()),
            Caller::User(user) => user,
        };
        let known = self.rules.is_known_permitted(active(user)?, Wanted::new(action, stream));
        let is_permitted = match known {
            Some(known) => known,
            None => {
                let (rules, user) = (Arc::clone(&self.rules), Arc::clone(user));
                let stream = stream.to_string();
                let asked = store.blocking(move |store| {
                    let wanted = Wanted::new(action, &stream);
                    let user = user.value.as_ref();
                    user.map_or(Ok(false), |user| rules.is_permitted(store, user, wanted))
                });
                asked.await.map_err(|error| failure::status(&error))?
            }
        };
        if is_permitted { Ok(()) } else { Err(failure::access_denied()) }
    }

    /// The caller as he is by now: who was disabled, deleted or given another password meanwhile is
    /// refused, and who is in other groups counts as such.
    pub async fn renewed(&self, store: &EventStore, caller: &Caller) -> Result<Caller, Status> {
        let Caller::User(user) = caller else { return Ok(caller.clone()) };
        if user.is_fresh() {
            return Ok(caller.clone());
        }
        let before = active(user)?;
        let now = self.user(store, &before.login).await?;
        if active(&now)?.kept_password != before.kept_password {
            return Err(failure::unauthenticated());
        }
        Ok(Caller::User(now))
    }

    /// The user whose name and password these are; an error where they are nobody's.
    pub async fn verify(&self, store: &EventStore, basic: Basic) -> Result<KnownUser, Status> {
        match &self.verifier {
            Some(verifier) => verifier.verify(&self.rules, store, basic).await,
            None => Err(failure::unauthenticated()),
        }
    }

    /// The user with this name.
    pub async fn user(&self, store: &EventStore, login: &str) -> Result<KnownUser, Status> {
        let (rules, login) = (Arc::clone(&self.rules), login.to_string());
        let read = store.blocking(move |store| rules.user(store, &login)).await;
        read.map_err(|error| failure::status(&error))
    }
}

/// The user, where there is one who is not refused.
pub fn active(user: &KnownUser) -> Result<&User, Status> {
    #[cfg(feature = "canary")]
    if umbel_base::canary::Switch::ServerDisabledLetIn.is_on() {
        return user.value.as_ref().ok_or_else(failure::unauthenticated);
    }
    let active = user.value.as_ref().filter(|user| !user.is_disabled);
    active.ok_or_else(failure::unauthenticated)
}

impl Caller {
    /// Who made the request with these extensions. Who was not looked at is nobody.
    pub fn of(extensions: &Extensions) -> Caller {
        extensions.get::<Caller>().cloned().unwrap_or(Caller::Nobody)
    }

    /// The name of the user who asks.
    pub fn name(&self) -> Option<&str> {
        match self {
            Caller::User(user) => user.value.as_ref().map(|user| &*user.login),
            Caller::Trusted | Caller::Nobody => None,
        }
    }
}
