//! [`OperatorPermission`]: permission for key-value calls, which only operators have. Long calls
//! check the permission repeatedly.

use tonic::Status;

use crate::access_control::call_policy::RequiredRole;
use crate::auth::authorization::{Caller, active_user};
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;

/// A call that was permitted when it began.
#[derive(Debug)]
pub struct OperatorPermission(Caller);

impl OperatorPermission {
    /// Creates the permission of the caller.
    pub fn new(caller: Caller) -> OperatorPermission {
        OperatorPermission(caller)
    }

    /// Checks the permission again.
    ///
    /// # Errors
    /// The caller's credentials are no longer valid, or the caller is no operator any more.
    pub async fn revalidate(&mut self, service: &ServerContext) -> Result<(), Status> {
        self.0 = service.authorizer.revalidate(&service.store, &self.0).await?;
        match &self.0 {
            Caller::User(user) if !active_user(user)?.is_operator() => {
                Err(grpc_status::access_denied(RequiredRole::Operator.requirement()))
            }
            _ => Ok(()),
        }
    }
}
