//! [`Authorizer`]: checks the permissions of a caller before its call accesses the store.

use std::sync::Arc;

use hyper::http::Extensions;
use tonic::Status;
use umbel_env::Env;

use crate::access_control::acl::{AccessRequest, StreamAction};
use crate::access_control::acl_cache::{AclCache, CachedUser};
use crate::access_control::users::User;
use crate::auth::basic_authentication::{Authenticator, BasicCredentials};
use crate::auth::password_threads::PasswordThreads;
use crate::event_store::EventStore;
use crate::protocol::grpc_status;
use crate::resources::connection_registry::LoginPeer;

/// The caller of a request.
#[derive(Debug, Clone)]
pub enum Caller {
    /// Any client of a server that runs without users.
    Trusted,
    /// A client without credentials.
    Anonymous,
    /// A user with valid credentials.
    User(CachedUser),
}

/// The user name in the certificate of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateUser(pub Arc<str>);

/// Identifies callers and checks their permissions.
#[derive(Debug)]
pub struct Authorizer {
    pub(super) acl_cache: Arc<AclCache>,
    /// Verifier of credentials; `None` if the server runs without users.
    pub(super) authenticator: Option<Authenticator>,
    password_threads: Arc<PasswordThreads>,
}

impl Authorizer {
    /// Creates an authorizer, with users if `authenticator` is given.
    pub fn new(rules: Arc<AclCache>, env: &Env, has_users: bool) -> umbel::Result<Authorizer> {
        let password_threads = Arc::new(PasswordThreads::new(env)?);
        let new_authenticator = || Authenticator::new(env, Arc::clone(&password_threads));
        let authenticator = has_users.then(new_authenticator).transpose()?;
        Ok(Authorizer { acl_cache: rules, authenticator, password_threads })
    }

    /// Whether callers must authenticate.
    pub fn has_users(&self) -> bool {
        self.authenticator.is_some()
    }

    /// The threads that hash passwords.
    pub fn password_threads(&self) -> &PasswordThreads {
        &self.password_threads
    }

    /// Cached users and ACLs of the store.
    pub fn acl_cache(&self) -> &Arc<AclCache> {
        &self.acl_cache
    }

    /// Checks whether the caller may do this action with a stream; the error is the response to the
    /// client.
    pub async fn authorize(
        &self,
        store: &EventStore,
        caller: &Caller,
        action: StreamAction,
        stream: &str,
    ) -> Result<(), Status> {
        let user = match caller {
            _ if !self.has_users() => return Ok(()),
            Caller::Trusted => return Ok(()),
            Caller::Anonymous => return Err(grpc_status::authentication_required()),
            Caller::User(user) => user,
        };
        let request = AccessRequest::new(action, stream);
        let known = self.acl_cache.is_permitted_if_cached(active_user(user)?, request);
        let is_permitted = match known {
            Some(known) => known,
            None => {
                let (rules, user) = (Arc::clone(&self.acl_cache), Arc::clone(user));
                let stream = stream.to_string();
                let pending_check = store.blocking(move |store| {
                    let wanted = AccessRequest::new(action, &stream);
                    let user = user.value.as_ref();
                    user.map_or(Ok(false), |user| rules.is_permitted(store, user, wanted))
                });
                pending_check.await.map_err(|error| grpc_status::status(&error))?
            }
        };
        match is_permitted {
            true => Ok(()),
            false => Err(grpc_status::access_denied(&request.requirement())),
        }
    }

    /// Returns the caller with its present groups. A user that was disabled, deleted or given
    /// another password since the call began is refused. Changed groups take effect.
    pub async fn revalidate(&self, store: &EventStore, caller: &Caller) -> Result<Caller, Status> {
        let Caller::User(user) = caller else { return Ok(caller.clone()) };
        if user.is_fresh() {
            return Ok(caller.clone());
        }
        let before = active_user(user)?;
        let now = self.user(store, &before.login).await?;
        if active_user(&now)?.password_hash != before.password_hash {
            return Err(grpc_status::unauthenticated());
        }
        Ok(Caller::User(now))
    }

    /// The user with this name and password; an error if name or password is wrong.
    pub async fn verify_password(
        &self,
        store: &EventStore,
        basic: BasicCredentials,
        peer: Option<LoginPeer>,
    ) -> Result<CachedUser, Status> {
        match &self.authenticator {
            Some(verifier) => verifier.verify(&self.acl_cache, store, basic, peer).await,
            None => Err(grpc_status::unauthenticated()),
        }
    }

    /// The user with this name.
    pub async fn user(&self, store: &EventStore, login: &str) -> Result<CachedUser, Status> {
        let (rules, login) = (Arc::clone(&self.acl_cache), login.to_string());
        let read = store.blocking(move |store| rules.user(store, &login)).await;
        read.map_err(|error| grpc_status::status(&error))
    }
}

/// The user with this name; an error if the user does not exist or is disabled.
pub fn active_user(user: &CachedUser) -> Result<&User, Status> {
    let active = user.value.as_ref().filter(|user| user.is_active());
    active.ok_or_else(grpc_status::unauthenticated)
}

impl Caller {
    /// The caller of the request with these extensions; anonymous if the request was not
    /// authenticated.
    pub fn from_extensions(extensions: &Extensions) -> Caller {
        extensions.get::<Caller>().cloned().unwrap_or(Caller::Anonymous)
    }

    /// The name of the calling user.
    pub fn user_name(&self) -> Option<&str> {
        match self {
            Caller::User(user) => user.value.as_ref().map(|user| &*user.login),
            Caller::Trusted | Caller::Anonymous => None,
        }
    }
}
