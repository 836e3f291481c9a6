//! [`ReadPermission`]: a permission to read. The permission of a long read can be revoked while it
//! runs, so each page checks the permission again.

use std::sync::Arc;

use tonic::{Code, Status};

use crate::access_control::acl::StreamAction;
use crate::access_control::readable_streams::ReadableStreams;
use crate::auth::authorization::Caller;
use crate::server_context::ServerContext;

/// Stream name that stands for all events in permissions.
pub const ALL_STREAM: &str = "$all";

/// A permitted read of a stream.
#[derive(Debug)]
pub struct ReadPermission {
    caller: Caller,
    stream: Arc<str>,
}

impl ReadPermission {
    /// Checks the permission to read a stream, or all events as [`ALL_STREAM`].
    ///
    /// # Errors
    /// The caller lacks permission.
    pub async fn new(
        service: &ServerContext,
        caller: Caller,
        stream: &str,
    ) -> Result<ReadPermission, Status> {
        let mut permission = ReadPermission { caller, stream: stream.into() };
        permission.revalidate(service).await?;
        Ok(permission)
    }

    /// Checks the permission again. Returns the other streams that the reader may see; `None` means
    /// all.
    ///
    /// # Errors
    /// The caller's credentials are no longer valid, or the caller lacks permission now.
    pub async fn revalidate(
        &mut self,
        service: &ServerContext,
    ) -> Result<Option<ReadableStreams>, Status> {
        let access = &service.authorizer;
        self.caller = access.revalidate(&service.store, &self.caller).await?;
        access.authorize(&service.store, &self.caller, StreamAction::Read, &self.stream).await?;
        Ok(match &self.caller {
            Caller::User(user) => ReadableStreams::for_user(access.acl_cache(), user),
            _ => None,
        })
    }

    /// Whether the reader may also read this other stream.
    ///
    /// # Errors
    /// The store fails.
    pub async fn allows(&self, service: &ServerContext, stream: &str) -> Result<bool, Status> {
        let checked =
            service.authorizer.authorize(&service.store, &self.caller, StreamAction::Read, stream);
        match checked.await {
            Ok(()) => Ok(true),
            Err(status) if status.code() == Code::PermissionDenied => Ok(false),
            Err(status) => Err(status),
        }
    }
}
