//! Every path, and what answers it.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::http::HeaderValue;
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Method, Version};
use tonic::body::Body;
use tonic::{Code, Status};
use umbel_proto::limits::MESSAGE_BYTES_MAX;

use crate::access::CertificateUser;
use crate::asked::Asked;
use crate::call_log::CallLine;
use crate::deadline::Deadline;
use crate::handler::{Handler, grpc};
use crate::limits::HEADERS_MAX;
use crate::oversize::Sieve;
use crate::peers::Peer;
use crate::service::Service;
use crate::store::Deletion;
use crate::{append, batch_append, console, delete, failure, features, gossip, http, kv};
use crate::{
    monitoring, operations, persistent, projections, read, reflection, user_calls, v2_calls,
};

/// What the paths of calls begin with.
const CALLS: [&str; 4] =
    ["/event_store.client.", "/kurrentdb.protocol.", "/umbel.kv.", "/grpc.reflection."];

type HttpRequest = hyper::Request<Asked>;
type HttpResponse = hyper::Response<Body>;

/// Answers a request. What the log is to be told of it at its end comes with the answer.
pub async fn answer(
    service: Arc<Service>,
    request: hyper::Request<Incoming>,
) -> (HttpResponse, Option<CallLine>) {
    let is_call = is_call(request.headers());
    let (request, rest) = Asked::of(&service, request, is_call);
    let peer = request.extensions().get::<Arc<Peer>>().and_then(|peer| peer.address());
    let mut line = CallLine::begin(&service.call_log, &request, peer, is_call);
    let mut response = match is_call {
        true => call_answer(service, request, &mut line).await,
        false => page_answer(service, request, &mut line).await,
    };
    let line = line.and_then(|line| line.head(&mut response));
    rest.leave_out().await;
    (response, line)
}

/// Answers a request that is no call.
async fn page_answer(
    service: Arc<Service>,
    mut request: HttpRequest,
    line: &mut Option<CallLine>,
) -> HttpResponse {
    let place = match request.extensions().get::<Arc<Peer>>() {
        Some(peer) => peer.page().await,
        None => None,
    };
    let is_head = request.method() == Method::HEAD && request.version() == Version::HTTP_2;
    let response = if request.version() == Version::HTTP_11 && !has_one_host(request.headers()) {
        http::no_host()
    } else if request.headers().len() > HEADERS_MAX {
        http::many_headers(request.headers().len())
    } else if CALLS.iter().any(|begin| request.uri().path().starts_with(begin)) {
        http::no_call()
    } else if let Err(status) = admit(&service, &mut request, line).await {
        http::refused(&status, request.headers().contains_key(AUTHORIZATION))
    } else if console::is_ours(request.uri().path()) {
        let reached = reached(&request);
        console::answer(service, request, reached).await
    } else {
        let path = request.uri().path();
        http::answer(&service, request.method(), path, reached(&request).as_ref()).await
    };
    let mut response = if is_head { response.map(|_| Body::empty()) } else { response };
    if let Some(place) = place {
        response.extensions_mut().insert(place);
    }
    response
}

/// Answers a call.
async fn call_answer(
    service: Arc<Service>,
    mut request: HttpRequest,
    line: &mut Option<CallLine>,
) -> HttpResponse {
    if request.version() != Version::HTTP_2 {
        return http::no_call();
    }
    if service.is_stopping() {
        return failure::stopping().into_http();
    }
    if service.peers.calls() > service.calls_max {
        service.peers.end_the_busiest();
        return failure::many_calls(service.calls_max).into_http();
    }
    if request.headers().len() > HEADERS_MAX {
        return failure::many_headers(request.headers().len()).into_http();
    }
    let deadline = match Deadline::of(request.headers()) {
        Ok(deadline) => deadline,
        Err(status) => return status.into_http(),
    };
    let (calls, path) = (service.calls.clone(), request.uri().path().to_string());
    let clock = Arc::clone(&service.env.clock);
    let began = clock.now();
    let answered = async {
        match admit(&service, &mut request, line).await {
            Ok(()) => readable(call(service, deadline, request).await),
            Err(status) => status.into_http(),
        }
    };
    let response = match deadline.limit(answered).await {
        Ok(response) => response,
        Err(status) => status.into_http(),
    };
    let status = Status::from_header_map(response.headers()).map(|status| status.code());
    calls.note(&path, status, clock.now().saturating_sub(began));
    response
}

/// An answer in which a message that is none, or breaks off, is the client's fault. Calls of one
/// message are read before any of ours sees them.
fn readable(response: HttpResponse) -> HttpResponse {
    match Status::from_header_map(response.headers()) {
        Some(status) if matches!(status.code(), Code::Internal | Code::Aborted) => {
            let code = status.code();
            let blamed = failure::of_the_client(status);
            if blamed.code() == code { response } else { blamed.into_http() }
        }
        _ => response,
    }
}

/// Finds out who asks, and whether he may make this call at all. From then on the request says who.
async fn admit(
    service: &Service,
    request: &mut HttpRequest,
    line: &mut Option<CallLine>,
) -> Result<(), Status> {
    let certificate = request.extensions().get::<CertificateUser>();
    let (path, headers) = (request.uri().path(), request.headers());
    let caller = service.access.caller_at(&service.store, path, headers, certificate).await?;
    if let Some(line) = line {
        line.by(&caller);
    }
    service.access.check_path(&caller, path)?;
    request.extensions_mut().insert(caller);
    Ok(())
}

/// Serves a call up to the head of its answer. What is answered in many messages keeps the deadline
/// itself.
async fn call(service: Arc<Service>, deadline: Deadline, request: HttpRequest) -> HttpResponse {
    match request.uri().path() {
        "/event_store.client.streams.Streams/Read" => {
            let read = Handler::new(move |asked| read::read(service, deadline, asked));
            grpc().server_streaming(read, request).await
        }
        "/event_store.client.streams.Streams/Append" => {
            let append = Handler::new(move |parts| append::append(service, parts));
            grpc().client_streaming(append, request).await
        }
        "/event_store.client.streams.Streams/BatchAppend" => {
            let (head, body) = request.into_parts();
            let (body, oversized) = Sieve::new(body, MESSAGE_BYTES_MAX);
            let serve = Handler::new(move |parts| {
                batch_append::batch_append(service, deadline, oversized, parts)
            });
            grpc().streaming(serve, hyper::Request::from_parts(head, body)).await
        }
        "/event_store.client.streams.Streams/Delete" => {
            let delete = Handler::new(move |asked| delete::delete(service, Deletion::Soft, asked));
            grpc().unary(delete, request).await
        }
        "/event_store.client.streams.Streams/Tombstone" => {
            let delete =
                Handler::new(move |asked| delete::delete(service, Deletion::Tombstone, asked));
            grpc().unary(delete, request).await
        }
        "/event_store.client.server_features.ServerFeatures/GetSupportedMethods" => {
            grpc().unary(Handler::saying::<(), _>(features::supported()), request).await
        }
        "/event_store.client.gossip.Gossip/Read" => {
            let cluster = gossip::cluster(&service, reached(&request).as_ref());
            grpc().unary(Handler::saying::<(), _>(cluster), request).await
        }
        path if path.starts_with("/kurrentdb.protocol.v2.") => {
            v2_calls::call(service, request).await
        }
        path if path.starts_with("/event_store.client.projections.") => {
            projections::call(service, request).await
        }
        path if path.starts_with("/event_store.client.persistent_subscriptions.") => {
            persistent::call(service, deadline, request).await
        }
        path if path.starts_with("/event_store.client.operations.") => {
            operations::call(service, request).await
        }
        path if path.starts_with("/event_store.client.monitoring.") => {
            monitoring::call(service, deadline, request).await
        }
        path if path.starts_with("/event_store.client.users.") => {
            user_calls::call(service, request).await
        }
        path if path.starts_with("/umbel.kv.v1.KeyValue/") => {
            kv::call(service, deadline, request).await
        }
        path if path.starts_with("/grpc.reflection.") => reflection::call(&service, request).await,
        path => failure::not_served(path).into_http(),
    }
}

/// Whether a request is a call: `application/grpc-web` and the like are none.
fn is_call(headers: &HeaderMap) -> bool {
    http::media_type(headers).is_some_and(|kind| {
        let rest = kind.strip_prefix("application/grpc");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('+'))
    })
}

/// Whether a request over HTTP/1.1 says to whom it goes, as it must.
fn has_one_host(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let is_host = |host: &HeaderValue| host.to_str().is_ok_and(is_authority);
    hosts.next().is_some_and(is_host) && hosts.next().is_none()
}

/// Whether a text is a host, with a port or not; an empty one stands where there is none to say.
fn is_authority(host: &str) -> bool {
    host.is_empty() || host.parse::<Authority>().is_ok()
}

/// Under which name the client reached the server.
fn reached(request: &HttpRequest) -> Option<Authority> {
    let host = || request.headers().get(HOST)?.to_str().ok()?.parse().ok();
    request.uri().authority().cloned().or_else(host)
}
