//! `event_store.client.projections`: views of other streams, and their administration.

use crate::generated::event_store::client::projections as package;

pub use package::create_req::Options as CreateOptions;
pub use package::create_req::options::Mode as CreateMode;
pub use package::statistics_req::Options as StatisticsOptions;
pub use package::statistics_req::options::Mode as StatisticsMode;
pub use package::statistics_resp::Details;
pub use package::{
    CreateReq, EnableReq as ProjectionReq, ProjectionName, StateResp, StatisticsReq, StatisticsResp,
};

/// Name of the service in request paths.
pub const SERVICE: &str = "event_store.client.projections.Projections";
