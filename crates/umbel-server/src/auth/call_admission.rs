//! Admission of a call: identifies the caller and checks the role that the call's path requires.
//! The call's handler checks the permissions on streams.

use hyper::HeaderMap;
use tonic::Status;

use crate::access_control::call_policy::{RequiredRole, required_role};
use crate::access_control::users;
use crate::auth::authorization::{Authorizer, Caller, CertificateUser, active_user};
use crate::auth::basic_authentication::BasicCredentials;
use crate::event_store::EventStore;
use crate::protocol::grpc_status;
use crate::resources::connection_registry::LoginPeer;

impl Authorizer {
    /// The caller of a request; an error if its credentials are invalid.
    pub async fn authenticate(
        &self,
        store: &EventStore,
        headers: &HeaderMap,
        (certificate, peer): (Option<&CertificateUser>, Option<LoginPeer>),
    ) -> Result<Caller, Status> {
        let Some(verifier) = &self.authenticator else { return Ok(Caller::Trusted) };
        let user = match (BasicCredentials::from_headers(headers)?, certificate) {
            (Some(basic), _) => verifier.verify(&self.acl_cache, store, basic, peer).await?,
            (None, Some(CertificateUser(name))) => self.user(store, name).await?,
            (None, None) => return Ok(Caller::Anonymous),
        };
        active_user(&user)?;
        Ok(Caller::User(user))
    }

    /// The caller of a request to this path; anonymous if the path is public.
    pub async fn authenticate_for_path(
        &self,
        store: &EventStore,
        path: &str,
        headers: &HeaderMap,
        client: (Option<&CertificateUser>, Option<LoginPeer>),
    ) -> Result<Caller, Status> {
        match required_role(path) {
            RequiredRole::Public if self.has_users() => Ok(Caller::Anonymous),
            RequiredRole::Public => Ok(Caller::Trusted),
            _ => self.authenticate(store, headers, client).await,
        }
    }

    /// Checks whether the caller may call this path; the error is the response to the client.
    pub fn authorize_path(&self, caller: &Caller, path: &str) -> Result<(), Status> {
        let need = required_role(path);
        let is_enough = match caller {
            Caller::Trusted => true,
            Caller::Anonymous => need == RequiredRole::Public,
            Caller::User(user) => {
                let user = active_user(user)?;
                match need {
                    RequiredRole::Public | RequiredRole::User | RequiredRole::StreamAcl => true,
                    RequiredRole::Operator => user.is_operator(),
                    RequiredRole::Admin => user.is_in(users::ADMINS_GROUP),
                }
            }
        };
        match caller {
            _ if is_enough => Ok(()),
            Caller::Anonymous => Err(grpc_status::authentication_required()),
            _ => Err(grpc_status::access_denied(need.requirement())),
        }
    }
}
