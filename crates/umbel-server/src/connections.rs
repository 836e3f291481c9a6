//! Connections: taken up to a limit, each served by a task of its own, and drained at the end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::limits::{
    ASK_AFTER, ASK_TIME, CONCURRENT_CALLS_MAX, CONNECTIONS_MAX, DRAIN_TIME, HEADER_BYTES_MAX,
    HEADERS_MAX, HEADERS_TIME, HTTP1_BUFFER_BYTES, WINDOW_BYTES,
};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::router;
use crate::service::Service;

/// How long nothing is taken after the system refused a connection: too many files are open.
const PAUSE: Duration = Duration::from_millis(50);
/// Takes connections until `stop` becomes true, then lets what is being served end.
pub async fn serve(listener: TcpListener, service: Arc<Service>, mut stop: watch::Receiver<bool>) {
    let builder = Arc::new(builder());
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let taken = tokio::select! {
            taken = take(&listener, &places) => taken,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        if let Some((stream, place)) = taken {
            let (builder, service) = (Arc::clone(&builder), Arc::clone(&service));
            let stop = stop.clone();
            connections.spawn(async move {
                connection(&builder, stream, service, stop).await;
                drop(place);
            });
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    // What has not ended by then ends with the tasks that are dropped here.
    let _ = tokio::time::timeout(DRAIN_TIME, drained).await;
}

/// The next connection once there is a place for it; `None` where the system refused one.
async fn take(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(_) => {
            tokio::time::sleep(PAUSE).await;
            None
        }
    }
}

async fn connection(
    builder: &Builder<TokioExecutor>,
    stream: TcpStream,
    service: Arc<Service>,
    mut stop: watch::Receiver<bool>,
) {
    // Without it answers wait for more to send; where it cannot be set they are only later.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |request: hyper::Request<Incoming>| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(router::answer(service, request).await) }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answer));
    tokio::select! {
        // What goes wrong with a connection is the client's to notice.
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIME)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HTTP1_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(ASK_AFTER)
        .keep_alive_timeout(ASK_TIME)
        .max_concurrent_streams(CONCURRENT_CALLS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    builder
}
