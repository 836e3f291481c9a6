//! [`Permit`]: keys and values are for those who look after the server. What goes on for long asks
//! again whether its caller still is one.

use tonic::Status;

use crate::access::{Caller, active};
use crate::failure;
use crate::service::Service;

/// A call that was permitted when it began.
#[derive(Debug)]
pub struct Permit(Caller);

impl Permit {
    /// That of who made the call.
    pub fn new(caller: Caller) -> Permit {
        Permit(caller)
    }

    /// Asks again.
    ///
    /// # Errors
    /// The caller is no longer who he was, or looks after the server no longer.
    pub async fn renewed(&mut self, service: &Service) -> Result<(), Status> {
        self.0 = service.access.renewed(&service.store, &self.0).await?;
        match &self.0 {
            Caller::User(user) if !active(user)?.is_operator() => Err(failure::access_denied()),
            _ => Ok(()),
        }
    }
}
