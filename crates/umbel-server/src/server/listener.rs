//! Accepts connections up to a limit, serves each on its own task, and drains them at the end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::auth::authorization::CertificateUser;
use crate::limits::{
    CONCURRENT_CALLS_MAX, DRAIN_TIME, HEADER_BYTES_MAX, HEADERS_MAX, HEADERS_TIME,
    HTTP1_BUFFER_BYTES, IDLE_CONNECTION_TIME, PREFACE_TIME, QUOTA_WAIT_TIME, WINDOW_BYTES,
};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::auth::tls::Tls;
use crate::config::Config;
use crate::grpc::response_body::ResponseBody;
use crate::resources::connection_registry::{Connection, ConnectionRegistry, OpenCall};
use crate::resources::worker_times::TaskSpawner;
use crate::server::preface_timeout::PrefaceTimeout;
use crate::server::router;
use crate::server_context::ServerContext;

/// Pause in accepting connections after the system refused one because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Pause in accepting connections if the server ends another connection to free a file, which takes
/// a moment.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(5);

/// File descriptors that neither connections nor tables use: those of logs, locks and the program.
const FILES_KEPT: u64 = 32;

/// An accepted socket and its peer address.
type AcceptedStream = (TcpStream, SocketAddr);

/// An accepted connection without a slot.
struct WaitingConnection {
    accepted: AcceptedStream,
    /// Time at which the server ends an idle connection to free a slot for this one, if it has not
    /// done so before.
    evict_at: Instant,
}

/// Limits on connections.
#[derive(Debug, Clone, Copy)]
pub struct ListenerLimits {
    /// Maximum number of connections.
    pub connections_max: usize,
    /// Time limit for the first bytes of a connection, which show the protocol.
    pub preface_time: Duration,
    /// Idle time before a keepalive ping.
    pub keepalive_interval: Duration,
    /// Time limit for the answer to a keepalive ping.
    pub keepalive_timeout: Duration,
}

impl ListenerLimits {
    /// Reads the limits from a configuration. `open_files_max` is the number of files that the
    /// process can open; connections get half of it, so that stores find a descriptor.
    pub fn new(config: &Config, open_files_max: Option<u64>) -> ListenerLimits {
        let limits = ListenerLimits::from_config(config);
        let share = open_files_max.map_or(u64::MAX, |files| files.saturating_sub(FILES_KEPT) / 2);
        let share = usize::try_from(share).unwrap_or(usize::MAX).max(1);
        if share < limits.connections_max {
            tracing::warn!(
                connections_max = share,
                "the limit of open files reduces the number of connections; raise `ulimit -n`"
            );
        }
        ListenerLimits { connections_max: limits.connections_max.min(share), ..limits }
    }

    /// Reads the limits from a configuration.
    pub fn from_config(config: &Config) -> ListenerLimits {
        let Config {
            connections_max,
            keepalive_interval: ask_after,
            keepalive_timeout: ask_time,
            ..
        } = *config;
        ListenerLimits {
            connections_max,
            preface_time: PREFACE_TIME,
            keepalive_interval: ask_after,
            keepalive_timeout: ask_time,
        }
    }
}

/// Accepts connections until `stop` becomes true, then drains them.
pub async fn serve(
    listener: TcpListener,
    service: Arc<ServerContext>,
    tls: Option<Arc<Tls>>,
    limits: ListenerLimits,
    mut stop: watch::Receiver<bool>,
) {
    let following = tls.as_ref().map(|tls| tokio::spawn(Arc::clone(tls).watch()));
    let builder = Arc::new(http_builder(limits, service.tasks.clone()));
    let slots = Arc::new(Semaphore::new(limits.connections_max));
    let (mut connections, mut waiting) = (JoinSet::new(), None);
    loop {
        let taken = tokio::select! {
            taken = accept_next(&listener, &mut waiting, &slots, &service.connections) => taken,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        if let Some(((stream, address), slot)) = taken {
            // Every response has a date, for which hyper panics before 1970.
            if service.env.clock.wall_micros() == 0 {
                tracing::warn!("a connection is refused: this machine's clock is before 1970");
                continue;
            }
            let (builder, service) = (Arc::clone(&builder), Arc::clone(&service));
            let (tls, stop) = (tls.clone(), stop.clone());
            // Without it responses wait for more data to send; a failure to set it only delays
            // them.
            let _ = stream.set_nodelay(true);
            let opening = limits.preface_time;
            let tasks = service.tasks.clone();
            let serving = async move {
                let among = service.connections.register(Some(address));
                let peer = Arc::clone(&among.connection);
                tokio::select! {
                    () = serve_tls(&builder, stream, (service, peer), (tls, opening), stop) => {}
                    () = among.connection.closed() => {}
                }
                drop(slot);
            };
            tasks.spawn_in(&mut connections, serving);
        }
    }
    drop(listener);
    service.outbound_quota.close();
    if let Some(following) = following {
        following.abort();
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    // Connections that have not ended by then end with the tasks dropped here.
    let _ = tokio::time::timeout(DRAIN_TIME, drained).await;
}

/// Accepts the next connection once a slot is free; `None` if the system refused a connection.
/// Without a free slot, ends one idle connection at once for each new connection, so that a crowd
/// does not delay other clients. An accepted connection without a slot stays in `waiting`, which
/// makes this function cancel safe.
async fn accept_next(
    listener: &TcpListener,
    waiting: &mut Option<WaitingConnection>,
    slots: &Arc<Semaphore>,
    registry: &ConnectionRegistry,
) -> Option<(AcceptedStream, OwnedSemaphorePermit)> {
    if waiting.is_none() {
        match listener.accept().await {
            Ok(connection) => {
                *waiting =
                    Some(WaitingConnection { accepted: connection, evict_at: Instant::now() })
            }
            Err(error) => {
                tracing::debug!(%error, "the server could not accept a connection");
                // Too many files are open: a slot and a file descriptor are the same here.
                let has_ended = registry.close_idle(IDLE_CONNECTION_TIME);
                tokio::time::sleep(if has_ended { ACCEPT_RETRY_PAUSE } else { ACCEPT_PAUSE }).await;
                return None;
            }
        }
    }
    let mut slot = pin!(Arc::clone(slots).acquire_owned());
    loop {
        let next_eviction = &mut waiting.as_mut()?.evict_at;
        if *next_eviction <= Instant::now() && slots.available_permits() == 0 {
            registry.close_idle(IDLE_CONNECTION_TIME);
            *next_eviction = Instant::now() + QUOTA_WAIT_TIME;
        }
        tokio::select! {
            biased;
            slot = &mut slot => return Some((waiting.take()?.accepted, slot.ok()?)),
            () = tokio::time::sleep_until(*next_eviction) => {}
        }
    }
}

/// Serves a connection, which is encrypted if the server has certificates.
async fn serve_tls(
    builder: &Builder<TaskSpawner>,
    stream: TcpStream,
    of: (Arc<ServerContext>, Arc<Connection>),
    (tls, opening_time): (Option<Arc<Tls>>, Duration),
    mut stop: watch::Receiver<bool>,
) {
    let Some(tls) = tls else {
        let stream = PrefaceTimeout::new(stream, opening_time);
        return serve_connection(builder, stream, of, None, stop).await;
    };
    let accepted = tokio::select! {
        accepted = tls.accept(stream, opening_time) => accepted,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    // A client whose handshake fails notices that itself.
    if let Some((stream, user)) = accepted {
        let stream = PrefaceTimeout::new(stream, opening_time);
        serve_connection(builder, stream, of, user, stop).await;
    }
}

async fn serve_connection<S>(
    builder: &Builder<TaskSpawner>,
    stream: PrefaceTimeout<S>,
    (service, peer): (Arc<ServerContext>, Arc<Connection>),
    user: Option<CertificateUser>,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
        let (service, call) = (Arc::clone(&service), peer.begin_call());
        request.extensions_mut().insert(call.connection());
        if let Some(user) = &user {
            request.extensions_mut().insert(user.clone());
        }
        respond(service, call, request)
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answer));
    tokio::select! {
        // The client notices errors of its connection.
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Responds to a request. The task of a connection creates and moves this future for each request,
/// hundreds of them in one poll. So the state of the call, which takes kilobytes, is allocated in
/// the call's own task. It is freed once the response begins.
async fn respond(
    service: Arc<ServerContext>,
    call: OpenCall,
    request: hyper::Request<Incoming>,
) -> Result<hyper::Response<ResponseBody>, Infallible> {
    let unread = Arc::clone(&service.outbound_quota);
    let (answer, end) = Box::pin(router::route(service, request)).await;
    Ok(ResponseBody::wrap(call, unread, answer, end))
}

fn http_builder(limits: ListenerLimits, tasks: TaskSpawner) -> Builder<TaskSpawner> {
    let mut builder = Builder::new(tasks);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_TIME)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HTTP1_BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(limits.keepalive_interval)
        .keep_alive_timeout(limits.keepalive_timeout)
        .max_concurrent_streams(CONCURRENT_CALLS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    builder
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::test_support::test_service::TestService;

    /// Time limit for the first bytes of a connection in these tests.
    const SHORT: Duration = Duration::from_millis(100);
    /// Upper bound of every wait in these tests.
    const TEST_TIMEOUT: Duration = Duration::from_secs(60);
    /// Preface of HTTP/2 and empty settings.
    const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    /// Connects a client that has sent these bytes.
    async fn client(listener: &TcpListener, bytes: &[u8]) -> TcpStream {
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.writable().await.unwrap();
        assert_eq!(client.try_write(bytes).unwrap(), bytes.len());
        client
    }

    /// Reads what the server sends next; returns the number of bytes, 0 if it closed the
    /// connection.
    async fn bytes_received(client: &TcpStream) -> usize {
        loop {
            client.readable().await.unwrap();
            match client.try_read(&mut [0; 1024]) {
                Ok(bytes) => return bytes,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return 0,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    /// Waits until the server has closed the connection.
    async fn wait_for_close(client: &TcpStream) {
        while bytes_received(client).await > 0 {}
    }

    /// Story: a client that connected and sent nothing, or only the start of HTTP/2, kept its slot
    /// for ever. So 4,096 such clients blocked the server.
    #[test]
    fn connection_without_a_preface_frees_its_slot() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fixture = TestService::new();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut silent = Vec::new();
            for bytes in [&b""[..], &BEGIN[..3], &BEGIN[..12], &BEGIN[..23]] {
                silent.push(client(&listener, bytes).await);
            }
            // They connect first and take all slots.
            let speaks = client(&listener, BEGIN).await;
            let (_stop, stopped) = watch::channel(false);
            let service = Arc::clone(&fixture.service);
            let config = Config { connections_max: silent.len(), ..Config::default() };
            let limits =
                ListenerLimits { preface_time: SHORT, ..ListenerLimits::from_config(&config) };
            let serving = tokio::spawn(serve(listener, service, None, limits, stopped));
            let answered = tokio::time::timeout(TEST_TIMEOUT, bytes_received(&speaks)).await;
            assert!(answered.expect("the active client is served") > 0);
            for client in &silent {
                tokio::time::timeout(TEST_TIMEOUT, wait_for_close(client))
                    .await
                    .expect("the idle connection is closed");
            }
            let early = tokio::time::timeout(SHORT * 4, wait_for_close(&speaks)).await;
            assert!(early.is_err(), "an HTTP/2 connection was closed");
            serving.abort();
        });
    }

    /// Story: the task of a connection with 400 calls held a worker for milliseconds. It moved the
    /// whole state of each call into the call's task.
    #[test]
    fn connection_moves_little_state_for_each_call() {
        fn future_bytes<A, B, C, F: Future>(_: impl Fn(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        let bytes = future_bytes(respond);
        assert!(bytes <= 1 << 10, "{bytes}");
    }

    #[test]
    fn connections_leave_half_of_the_descriptors_to_stores() {
        let config = Config::default();
        let limits = |files| ListenerLimits::new(&config, files).connections_max;
        assert_eq!([limits(None), limits(Some(1 << 20))], [config.connections_max; 2]);
        assert_eq!([1024, 100, 32, 0].map(|files| limits(Some(files))), [496, 34, 1, 1]);
    }

    /// Story: when idle connections took all slots, the server ended only four of them per second.
    /// A client that came after a hundred others waited for half a minute, and after thousands for
    /// minutes.
    #[test]
    fn idle_connections_do_not_delay_an_active_client() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let fixture = TestService::new();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut idle_clients = Vec::new();
            for _ in 0..60 {
                idle_clients.push(client(&listener, BEGIN).await);
            }
            let speaks = client(&listener, BEGIN).await;
            let (_stop, stopped) = watch::channel(false);
            let config = Config { connections_max: 30, ..Config::default() };
            let service = Arc::clone(&fixture.service);
            let begun = Instant::now();
            let serving = tokio::spawn(serve(
                listener,
                service,
                None,
                ListenerLimits::from_config(&config),
                stopped,
            ));
            let answered = tokio::time::timeout(TEST_TIMEOUT, bytes_received(&speaks)).await;
            assert!(answered.expect("the active client is served") > 0);
            // Each batch of thirty connections has been idle for long enough after a second.
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(5), "{waited:?}");
            assert_eq!(
                fixture.service.connections.count(),
                30,
                "only idle connections were closed"
            );
            serving.abort();
        });
    }
}
