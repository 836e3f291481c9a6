//! [`Permit`]: a read that was permitted. It goes on for long, and what was permitted when it began
//! may be no more: each page asks again.

use std::sync::Arc;

use tonic::{Code, Status};

use crate::access::Caller;
use crate::acl::Action;
use crate::service::Service;
use crate::sight::Sight;

/// The name under which it is said who may read all events.
pub const ALL_STREAM: &str = "$all";

/// A read of a stream that was permitted.
#[derive(Debug)]
pub struct Permit {
    caller: Caller,
    stream: Arc<str>,
}

impl Permit {
    /// The permit to read a stream, or all events as [`ALL_STREAM`].
    ///
    /// # Errors
    /// The caller may not.
    pub async fn new(service: &Service, caller: Caller, stream: &str) -> Result<Permit, Status> {
        let mut permit = Permit { caller, stream: stream.into() };
        permit.renewed(service).await?;
        Ok(permit)
    }

    /// Whether it still holds, and what the reader sees of other streams: everything where there is
    /// nothing.
    ///
    /// # Errors
    /// The caller is no longer who he was, or may no longer.
    pub async fn renewed(&mut self, service: &Service) -> Result<Option<Sight>, Status> {
        let access = &service.access;
        self.caller = access.renewed(&service.store, &self.caller).await?;
        access.check(&service.store, &self.caller, Action::Read, &self.stream).await?;
        Ok(match &self.caller {
            Caller::User(user) => Sight::of(access.rules(), user),
            _ => None,
        })
    }

    /// Whether the reader may read this other stream, too.
    ///
    /// # Errors
    /// The store does not say.
    pub async fn shows(&self, service: &Service, stream: &str) -> Result<bool, Status> {
        let checked = service.access.check(&service.store, &self.caller, Action::Read, stream);
        match checked.await {
            Ok(()) => Ok(true),
            Err(status) if status.code() == Code::PermissionDenied => Ok(false),
            Err(status) => Err(status),
        }
    }
}
