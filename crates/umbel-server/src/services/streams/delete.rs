//! Delete and Tombstone.

use std::sync::Arc;

use tonic::{Request, Response, Status};
use umbel_events::Error;
use umbel_proto::streams::{DeleteReq, DeleteResp, DeleteResult};

use crate::access::Caller;
use crate::acl::Action;
use crate::service::Service;
use crate::store::Deletion;
use crate::{convert, failure};

/// Deletes a stream.
pub async fn delete(
    service: Arc<Service>,
    deletion: Deletion,
    request: Request<DeleteReq>,
) -> Result<Response<DeleteResp>, Status> {
    let caller = Caller::of(request.extensions());
    let Some(options) = request.into_inner().options else {
        return Err(Status::invalid_argument("a deletion has options"));
    };
    let stream = convert::stream_name(options.stream_identifier)?;
    let expected = convert::expected(options.expected_stream_revision)?;
    service.access.check(&service.store, &caller, Action::Delete, &stream).await?;
    let position = match service.store.delete(deletion, stream, expected).await {
        Ok(Some(position)) => DeleteResult::Position(convert::position(position)),
        Ok(None) => DeleteResult::NoPosition(()),
        Err(Error::WrongExpected { stream, expected, current }) => {
            return Err(failure::wrong_expected("Delete", &stream, expected, current));
        }
        Err(error) => return Err(failure::status(&error)),
    };
    Ok(Response::new(DeleteResp { position_option: Some(position) }))
}
