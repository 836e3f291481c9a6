//! Calls Delete and Tombstone.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use umbel_events::Error;
use umbel_proto::streams::{DeleteReq, DeleteResp, DeleteResult};

use crate::access_control::acl::StreamAction;
use crate::auth::authorization::Caller;
use crate::event_store::Deletion;
use crate::protocol::{grpc_status, proto_convert};
use crate::server_context::ServerContext;

/// Deletes a stream.
pub async fn delete(
    service: Arc<ServerContext>,
    deletion: Deletion,
    request: Request<DeleteReq>,
) -> Result<Response<DeleteResp>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let Some(options) = request.into_inner().options else {
        return Err(Status::invalid_argument("the request has no options"));
    };
    let stream = proto_convert::stream_name(options.stream_identifier)?;
    let expected = proto_convert::expected_revision(options.expected_stream_revision)?;
    service.authorizer.authorize(&service.store, &caller, StreamAction::Delete, &stream).await?;
    let position = match service.store.delete(deletion, stream, expected).await {
        Ok(Some(position)) => DeleteResult::Position(proto_convert::all_position(position)),
        Ok(None) => DeleteResult::NoPosition(()),
        Err(Error::WrongExpectedVersion { stream, expected, current, .. }) => {
            return Err(grpc_status::wrong_expected(("Delete", None), &stream, expected, current));
        }
        Err(error) => return Err(grpc_status::status(&error)),
    };
    Ok(Response::new(DeleteResp { position_option: Some(position) }))
}
