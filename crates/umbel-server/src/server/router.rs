//! Routes every path to its handler.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::HOST;
use hyper::http::HeaderValue;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, StatusCode, Version};
use tonic::body::Body;
use tonic::{Code, Status};
use umbel_events::LeaderAddress;
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::access_control::call_policy::requires_leader;
use crate::auth::authorization::CertificateUser;
use crate::event_store::Deletion;
use crate::grpc::grpc_dispatch::{Handler, grpc_dispatch};
use crate::grpc::request_body::RequestBody;
use crate::http;
use crate::http::api;
use crate::http::api::api_response::ApiError;
use crate::http::api::route_table::{self, RouteMatch, is_api_path};
use crate::http::console;
use crate::limits::HEADERS_MAX;
use crate::protocol::deadline::Deadline;
use crate::protocol::{grpc_status, rich_status};
use crate::resources::connection_registry::Connection;
use crate::server_context::ServerContext;
use crate::services::streams::oversized_messages::OversizeFilter;
use crate::services::streams::{append, batch_append, delete};
use crate::services::streams::{read, v2_router};
use crate::services::{gossip, kv, server_features};
use crate::services::{
    monitoring, operations, persistent_subscriptions, projections, reflection, user_service,
};
use crate::telemetry::access_log::AccessLogLine;
use crate::telemetry::call_metrics::CallTimer;
use crate::telemetry::call_span::CallSpan;
use crate::telemetry::failed_logins::LoginKind;
use crate::telemetry::response_end::ResponseEnd;

/// Path prefixes of gRPC calls.
const GRPC_PREFIXES: [&str; 4] =
    ["/event_store.client.", "/kurrentdb.protocol.", "/umbel.kv.", "/grpc.reflection."];

/// Path whose permission a request for an unserved path requires: each user has it.
const PAGE_OF_USERS: &str = "/stats";

type HttpRequest = hyper::Request<RequestBody>;
type HttpResponse = hyper::Response<Body>;

/// Responds to a request. Also returns what is recorded at the end of the response.
pub async fn route(
    service: Arc<ServerContext>,
    request: hyper::Request<Incoming>,
) -> (HttpResponse, ResponseEnd) {
    let is_call = is_grpc(request.headers());
    let (request, rest) = RequestBody::wrap(&service, request, is_call);
    let peer = request.extensions().get::<Arc<Connection>>().and_then(|peer| peer.address());
    let route = || route_template(request.method(), request.uri().path());
    let hub = service.telemetry.as_ref();
    let mut span = CallSpan::begin(hub, &request, peer, is_call, route);
    let mut line = AccessLogLine::begin(&service.access_log, &request, peer, is_call);
    if let (Some(line), Some(span)) = (&mut line, &span) {
        line.set_trace(span.trace());
    }
    let (mut response, timer) = match is_call {
        true => route_grpc(service, request, &mut line).await,
        false => {
            let mut timer = begin_http_call(&service, request.method(), request.uri().path());
            let response = route_http(service, request, &mut line).await;
            if let Some(timer) = &mut timer {
                timer.set_http_status(response.status());
            }
            (response, timer)
        }
    };
    let log_line = line.and_then(|line| line.record_head(&mut response));
    span = span.and_then(|span| span.record_head(&response));
    rest.drain().await;
    (response, ResponseEnd { log_line, timer, span })
}

/// Template of the path of a request that is no gRPC call; `None` if it has none.
fn route_template(method: &Method, path: &str) -> Option<&'static str> {
    if is_api_path(path) {
        return match route_table::find(method, path) {
            RouteMatch::Route(route, _) => Some(route.path),
            _ => None,
        };
    }
    let fixed = http::PATHS.into_iter().find(|fixed| *fixed == path);
    fixed.or_else(|| console::is_console_path(path).then_some("/console"))
}

/// Begins the latency of a request to the HTTP API, or for an action of the console. Other pages
/// are no calls.
fn begin_http_call(service: &ServerContext, method: &Method, path: &str) -> Option<CallTimer> {
    let begin = |method, path| {
        service.call_metrics.begin_http(method, path, Arc::clone(&service.env.clock))
    };
    if is_api_path(path) {
        return match route_table::find(method, path) {
            RouteMatch::Route(route, _) => Some(begin(&route.method, route.path)),
            _ => None,
        };
    }
    let is_action = *method == Method::POST && console::is_action_path(path);
    is_action.then(|| begin(method, path))
}

/// Responds to a request that is no gRPC call.
async fn route_http(
    service: Arc<ServerContext>,
    mut request: HttpRequest,
    line: &mut Option<AccessLogLine>,
) -> HttpResponse {
    let slot = match request.extensions().get::<Arc<Connection>>() {
        Some(peer) => peer.acquire_page_slot().await,
        None => None,
    };
    let is_head = request.method() == Method::HEAD && request.version() == Version::HTTP_2;
    let response = if request.version() == Version::HTTP_11 && !has_one_host(request.headers()) {
        http::missing_host()
    } else if request.headers().len() > HEADERS_MAX {
        http::too_many_headers(request.headers().len())
    } else if GRPC_PREFIXES.iter().any(|begin| request.uri().path().starts_with(begin)) {
        http::not_grpc()
    } else if let Err(status) = admit_http_caller(&service, &mut request, line).await {
        match is_api_path(request.uri().path()) {
            true => api::access_denied(status),
            false => http::access_denied(&status),
        }
    } else if let Err(refusal) = check_http_leader(&service, &request) {
        refusal.into_response()
    } else if is_api_path(request.uri().path()) {
        let reached = request_authority(&request);
        api::handle(service, request, reached).await
    } else if console::is_console_path(request.uri().path()) {
        let reached = request_authority(&request);
        console::handle(service, request, reached).await
    } else {
        let (path, reached) = (request.uri().path(), request_authority(&request));
        http::handle(&service, request.method(), path, request.headers(), reached.as_ref()).await
    };
    let mut response = if is_head { response.map(|_| Body::empty()) } else { response };
    if let Some(slot) = slot {
        response.extensions_mut().insert(slot);
    }
    response
}

/// Responds to a gRPC call. Also returns the timer of a call whose response has no status yet.
async fn route_grpc(
    service: Arc<ServerContext>,
    mut request: HttpRequest,
    line: &mut Option<AccessLogLine>,
) -> (HttpResponse, Option<CallTimer>) {
    let deadline = match check_call(&service, &request) {
        Ok(deadline) => deadline,
        Err(refused) => return (*refused, None),
    };
    let clock = Arc::clone(&service.env.clock);
    let timer = service.call_metrics.begin(request.uri().path(), clock);
    let answered = async {
        let admitted = admit_caller(&service, &mut request, None, line).await;
        match admitted.and_then(|()| check_leader(&service, &request)) {
            Ok(()) => as_client_errors(serve_call(service, deadline, request).await),
            Err(status) => status.into_http(),
        }
    };
    let response = match deadline.limit(answered).await {
        Ok(response) => response,
        Err(status) => status.into_http(),
    };
    match Status::from_header_map(response.headers()) {
        Some(status) => {
            timer.end(status.code());
            (response, None)
        }
        None => (response, Some(timer)),
    }
}

/// Header by which a client requires that the leader serves its call.
const REQUIRES_LEADER: &str = "requires-leader";

/// Whether the client requires that the leader serves its call.
fn wants_leader(request: &HttpRequest) -> bool {
    let wanted = request.headers().get(REQUIRES_LEADER);
    wanted.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"))
}

/// Refuses a call that only the leader of a replicated log serves, on other nodes.
fn check_leader(service: &ServerContext, request: &HttpRequest) -> Result<(), Status> {
    let is_wanted = wants_leader(request);
    // Clients find the leader by these calls.
    let finds_leader = ["/event_store.client.gossip.", "/event_store.client.server_features."]
        .iter()
        .any(|service| request.uri().path().starts_with(service));
    let path = request.uri().path();
    if !requires_leader(path) && (!is_wanted || finds_leader) {
        return Ok(());
    }
    service.check_leader().map_err(|leader| match leader {
        Some(leader) if path.starts_with("/kurrentdb.protocol.v2.") => {
            rich_status::not_leader(&leader)
        }
        Some(leader) => grpc_status::not_leader(&leader.host, leader.port),
        None => grpc_status::not_ready(),
    })
}

/// Refuses a change over HTTP on nodes that do not lead their replicated log.
fn check_http_leader(service: &ServerContext, request: &HttpRequest) -> Result<(), ApiError> {
    let (method, path) = (request.method(), request.uri().path());
    if matches!(*method, Method::GET | Method::HEAD) {
        return match wants_leader(request) {
            true => service.check_leader().map_err(http_refusal),
            false => Ok(()),
        };
    }
    let policy = match is_api_path(path) {
        true => route_table::policy_path(method, path),
        false => Some(path),
    };
    match policy.is_some_and(requires_leader) {
        true => service.check_leader().map_err(http_refusal),
        false => Ok(()),
    }
}

/// The refusal of a change over HTTP by a node that does not lead.
fn http_refusal(leader: Option<LeaderAddress>) -> ApiError {
    let unavailable = |text: String| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text);
    match leader {
        Some(LeaderAddress { node, host, port }) => unavailable(format!(
            "this node follows and accepts no changes; send them to the leader {node} at \
             {host}:{port}"
        ))
        .with_detail("leaderHost", host.into())
        .with_detail("leaderPort", port.into()),
        None => unavailable(
            "this node knows no leader, or leads and has no answers of its object store, so it \
             accepts no changes; `umbel doctor` says which"
                .to_string(),
        ),
    }
}

/// Checks whether a gRPC call may begin. Returns its deadline, or the response that refuses it.
fn check_call(
    service: &ServerContext,
    request: &HttpRequest,
) -> Result<Deadline, Box<HttpResponse>> {
    if request.version() != Version::HTTP_2 {
        return Err(Box::new(http::not_grpc()));
    }
    let refusal = if service.is_stopping() {
        grpc_status::shutting_down()
    } else if service.connections.open_calls() > service.open_calls_max {
        service.connections.close_busiest();
        grpc_status::too_many_calls(service.open_calls_max)
    } else if request.headers().len() > HEADERS_MAX {
        grpc_status::too_many_headers(request.headers().len())
    } else {
        return Deadline::from_headers(request.headers())
            .map_err(|status| Box::new(status.into_http()));
    };
    Err(Box::new(refusal.into_http()))
}

/// Reports a malformed or truncated message as the client's error. tonic decodes unary messages
/// before the server's code sees them.
fn as_client_errors(response: HttpResponse) -> HttpResponse {
    match Status::from_header_map(response.headers()) {
        Some(status) if matches!(status.code(), Code::Internal | Code::Aborted) => {
            let code = status.code();
            let blamed = grpc_status::as_client_error(status);
            if blamed.code() == code { response } else { blamed.into_http() }
        }
        _ => response,
    }
}

/// Admits the caller of a request that is no gRPC call. A route of the API requires the role of a
/// call. Each user learns that a path is not served: a refusal would be misleading.
async fn admit_http_caller(
    service: &ServerContext,
    request: &mut HttpRequest,
    line: &mut Option<AccessLogLine>,
) -> Result<(), Status> {
    let path = request.uri().path();
    let policy = match is_unserved(path) {
        true => Some(PAGE_OF_USERS),
        false if is_api_path(path) => route_table::policy_path(request.method(), path),
        false => None,
    };
    admit_caller(service, request, policy, line).await
}

/// Whether nothing is served at a path, for any method. The paths of the console are not examined.
fn is_unserved(path: &str) -> bool {
    match is_api_path(path) {
        true => matches!(route_table::find(&Method::GET, path), RouteMatch::None),
        false => !http::PATHS.contains(&path) && !console::is_console_path(path),
    }
}

/// Authenticates the caller and checks the role that the call requires, or the call with the path
/// `policy`. Puts the caller into the request's extensions.
async fn admit_caller(
    service: &ServerContext,
    request: &mut HttpRequest,
    policy: Option<&'static str>,
    line: &mut Option<AccessLogLine>,
) -> Result<(), Status> {
    let certificate = request.extensions().get::<CertificateUser>();
    let peer = request.extensions().get::<Arc<Connection>>().map(|peer| peer.login_peer());
    let policy = policy.unwrap_or(request.uri().path());
    let identified = service
        .authorizer
        .authenticate_for_path(&service.store, policy, request.headers(), (certificate, peer))
        .await;
    if identified.as_ref().is_err_and(|status| status.code() == Code::Unauthenticated) {
        record_failed_login(service, request);
    }
    let caller = identified?;
    if let Some(line) = line {
        line.set_caller(&caller);
    }
    service.authorizer.authorize_path(&caller, policy)?;
    request.extensions_mut().insert(caller);
    Ok(())
}

/// Records a request with invalid credentials.
fn record_failed_login(service: &ServerContext, request: &HttpRequest) {
    let kind = if is_grpc(request.headers()) {
        LoginKind::Grpc
    } else if console::is_console_path(request.uri().path()) {
        LoginKind::Console
    } else {
        LoginKind::Http
    };
    let certificate = request.extensions().get::<CertificateUser>();
    let peer = request.extensions().get::<Arc<Connection>>().and_then(|peer| peer.address());
    service.failed_logins.record_request(kind, (request.headers(), certificate), peer);
}

/// Serves a call up to the head of its response. A streamed response checks the deadline itself.
async fn serve_call(
    service: Arc<ServerContext>,
    deadline: Deadline,
    request: HttpRequest,
) -> HttpResponse {
    match request.uri().path() {
        "/event_store.client.streams.Streams/Read" => {
            let read = Handler::new(move |request| read::read(service, deadline, request));
            grpc_dispatch().server_streaming(read, request).await
        }
        "/event_store.client.streams.Streams/Append" => {
            let append = Handler::new(move |parts| append::append(service, parts));
            grpc_dispatch().client_streaming(append, request).await
        }
        "/event_store.client.streams.Streams/BatchAppend" => {
            let (head, body) = request.into_parts();
            let (body, oversized) = OversizeFilter::new(body, MESSAGE_BYTES_MAX);
            let serve = Handler::new(move |parts| {
                batch_append::batch_append(service, deadline, oversized, parts)
            });
            grpc_dispatch().streaming(serve, hyper::Request::from_parts(head, body)).await
        }
        "/event_store.client.streams.Streams/Delete" => {
            let delete =
                Handler::new(move |request| delete::delete(service, Deletion::Soft, request));
            grpc_dispatch().unary(delete, request).await
        }
        "/event_store.client.streams.Streams/Tombstone" => {
            let delete =
                Handler::new(move |request| delete::delete(service, Deletion::Tombstone, request));
            grpc_dispatch().unary(delete, request).await
        }
        "/event_store.client.server_features.ServerFeatures/GetSupportedMethods" => {
            grpc_dispatch()
                .unary(Handler::constant::<(), _>(server_features::supported_methods()), request)
                .await
        }
        "/event_store.client.gossip.Gossip/Read" => {
            let cluster = gossip::cluster_info(&service, request_authority(&request).as_ref());
            grpc_dispatch().unary(Handler::constant::<(), _>(cluster), request).await
        }
        path if path.starts_with("/kurrentdb.protocol.v2.") => {
            v2_router::call(service, request).await
        }
        path if path.starts_with("/event_store.client.projections.") => {
            projections::call(service, request).await
        }
        path if path.starts_with("/event_store.client.persistent_subscriptions.") => {
            persistent_subscriptions::call(service, deadline, request).await
        }
        path if path.starts_with("/event_store.client.operations.") => {
            operations::call(service, request).await
        }
        path if path.starts_with("/event_store.client.monitoring.") => {
            monitoring::call(service, deadline, request).await
        }
        path if path.starts_with("/event_store.client.users.") => {
            user_service::call(service, request).await
        }
        path if path.starts_with("/umbel.kv.v1.KeyValue/") => {
            kv::call(service, deadline, request).await
        }
        path if path.starts_with("/grpc.reflection.") => reflection::call(&service, request).await,
        path => grpc_status::unknown_method(path).into_http(),
    }
}

/// Whether a request is a gRPC call; `application/grpc-web` and similar content types are not.
fn is_grpc(headers: &HeaderMap) -> bool {
    http::media_type(headers).is_some_and(|kind| {
        let rest = kind.strip_prefix("application/grpc");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
    })
}

/// Whether a request over HTTP/1.1 names exactly one host, as it must.
fn has_one_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let is_host = |host: &HeaderValue| host.to_str().is_ok_and(is_authority);
    hosts.next().is_some_and(is_host) && hosts.next().is_none()
}

/// Whether a text is a host with an optional port; an empty text stands for an unknown host.
fn is_authority(host: &str) -> bool {
    host.is_empty() || host.parse::<Authority>().is_ok()
}

/// Returns the authority (host and port) under which the client reached the server.
fn request_authority(request: &HttpRequest) -> Option<Authority> {
    let host = || request.headers().get(HOST)?.to_str().ok()?.parse().ok();
    request.uri().authority().cloned().or_else(host)
}
