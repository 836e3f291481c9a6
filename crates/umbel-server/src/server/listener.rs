//! Connections: taken up to a limit, each served by a task of its own, and drained at the end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::access::CertificateUser;
use crate::limits::{
    CONCURRENT_CALLS_MAX, DRAIN_TIME, HEADER_BYTES_MAX, HEADERS_MAX, HEADERS_TIME,
    HTTP1_BUFFER_BYTES, OPENING_TIME, QUIET_TIME, ROOM_TIME, WINDOW_BYTES,
};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::Config;
use crate::counted::Counted;
use crate::opening::Opening;
use crate::peers::{Peer, Peers};
use crate::router;
use crate::service::Service;
use crate::tls::Tls;

/// How long nothing is taken after the system refused a connection: too many files are open.
const PAUSE: Duration = Duration::from_millis(50);

/// The same where a connection was ended for it, which takes a moment.
const SHORT_PAUSE: Duration = Duration::from_millis(5);

/// Who came, and from where.
type Came = (TcpStream, SocketAddr);

/// Who came and has no place yet.
struct Waiting {
    came: Came,
    /// When the next connection is ended for him, if none was before.
    looks: Instant,
}

/// What connections may have.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Most of them at a time.
    pub connections_max: usize,
    /// How long each has until it says what it speaks.
    pub opening_time: Duration,
    /// How long one may say nothing before it is asked whether it is there,
    pub ask_after: Duration,
    /// and how long it has to answer.
    pub ask_time: Duration,
}

impl Limits {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Limits {
        let Config { connections_max, ask_after, ask_time, .. } = *config;
        Limits { connections_max, opening_time: OPENING_TIME, ask_after, ask_time }
    }
}

/// Takes connections until `stop` becomes true, then lets what is being served end.
pub async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    tls: Option<Arc<Tls>>,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let following = tls.as_ref().map(|tls| tokio::spawn(Arc::clone(tls).follow()));
    let builder = Arc::new(builder(limits));
    let places = Arc::new(Semaphore::new(limits.connections_max));
    let (mut connections, mut waiting) = (JoinSet::new(), None);
    loop {
        let taken = tokio::select! {
            taken = take(&listener, &mut waiting, &places, &service.peers) => taken,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        if let Some(((stream, address), place)) = taken {
            let (builder, service) = (Arc::clone(&builder), Arc::clone(&service));
            let (tls, stop) = (tls.clone(), stop.clone());
            // Without it answers wait for more to send; where it cannot be set they are only later.
            let _ = stream.set_nodelay(true);
            let opening = limits.opening_time;
            connections.spawn(async move {
                let among = service.peers.place(Some(address));
                let peer = Arc::clone(&among.peer);
                tokio::select! {
                    () = encrypted(&builder, stream, (service, peer), (tls, opening), stop) => {}
                    () = among.peer.ended() => {}
                }
                drop(place);
            });
        }
    }
    drop(listener);
    service.unread.close();
    if let Some(following) = following {
        following.abort();
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    // What has not ended by then ends with the tasks that are dropped here.
    let _ = tokio::time::timeout(DRAIN_TIME, drained).await;
}

/// The next connection once there is a place for it; `None` where the system refused one. Where
/// there is none, one makes room that has nothing to say: one for each who comes, at once, so that
/// a crowd of them does not keep others waiting. Who came and waits for a place is kept in
/// `waiting`: whoever waits for this may leave it and ask again.
async fn take(
    listener: &TcpListener,
    waiting: &mut Option<Waiting>,
    places: &Arc<Semaphore>,
    peers: &Peers,
) -> Option<(Came, OwnedSemaphorePermit)> {
    if waiting.is_none() {
        match listener.accept().await {
            Ok(came) => *waiting = Some(Waiting { came, looks: Instant::now() }),
            Err(error) => {
                tracing::debug!(%error, "a connection could not be taken");
                // Too many files are open: a place and a file are the same here.
                let has_ended = peers.end_the_quietest(QUIET_TIME);
                tokio::time::sleep(if has_ended { SHORT_PAUSE } else { PAUSE }).await;
                return None;
            }
        }
    }
    let mut place = pin!(Arc::clone(places).acquire_owned());
    loop {
        let looks = &mut waiting.as_mut()?.looks;
        if *looks <= Instant::now() && places.available_permits() == 0 {
            peers.end_the_quietest(QUIET_TIME);
            *looks = Instant::now() + ROOM_TIME;
        }
        tokio::select! {
            biased;
            place = &mut place => return Some((waiting.take()?.came, place.ok()?)),
            () = tokio::time::sleep_until(*looks) => {}
        }
    }
}

/// Serves a connection, encrypted where there are certificates.
async fn encrypted(
    builder: &Builder<TokioExecutor>,
    stream: TcpStream,
    of: (Arc<Service>, Arc<Peer>),
    (tls, opening_time): (Option<Arc<Tls>>, Duration),
    mut stop: watch::Receiver<bool>,
) {
    let Some(tls) = tls else {
        let stream = Opening::new(stream, opening_time);
        return connection(builder, stream, of, None, stop).await;
    };
    let accepted = tokio::select! {
        accepted = tls.accept(stream, opening_time) => accepted,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    // Who does not come through notices that himself.
    if let Some((stream, user)) = accepted {
        let stream = Opening::new(stream, opening_time);
        connection(builder, stream, of, user, stop).await;
    }
}

async fn connection<S>(
    builder: &Builder<TokioExecutor>,
    stream: Opening<S>,
    (service, peer): (Arc<Service>, Arc<Peer>),
    user: Option<CertificateUser>,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
        let (service, call) = (Arc::clone(&service), peer.call());
        request.extensions_mut().insert(call.peer());
        if let Some(user) = &user {
            request.extensions_mut().insert(user.clone());
        }
        async move {
            let unread = Arc::clone(&service.unread);
            let (answer, line) = router::answer(service, request).await;
            Ok::<_, Infallible>(Counted::of(call, unread, answer, line))
        }
    });
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answer));
    tokio::select! {
        // What goes wrong with a connection is the client's to notice.
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

fn builder(limits: Limits) -> Builder<TokioExecutor> {
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
        .keep_alive_interval(limits.ask_after)
        .keep_alive_timeout(limits.ask_time)
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
    use crate::stage::Stage;

    /// How long they have to say what they speak.
    const SHORT: Duration = Duration::from_millis(100);
    /// Nothing here takes longer, unless it never comes.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// The preface of HTTP/2, and settings that say nothing.
    const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    /// A client that has sent this.
    async fn client(listener: &TcpListener, bytes: &[u8]) -> TcpStream {
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        client.writable().await.unwrap();
        assert_eq!(client.try_write(bytes).unwrap(), bytes.len());
        client
    }

    /// Takes what the server says next; how many bytes, 0 where it has ended the connection.
    async fn heard(client: &TcpStream) -> usize {
        loop {
            client.readable().await.unwrap();
            match client.try_read(&mut [0; 1024]) {
                Ok(bytes) => return bytes,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return 0,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    /// Waits until the server has ended the connection.
    async fn ended(client: &TcpStream) {
        while heard(client).await > 0 {}
    }

    /// Who connected and said nothing, or only how HTTP/2 begins, kept his place for ever: 4,096 of
    /// them shut the server.
    #[test]
    fn who_does_not_say_what_he_speaks_keeps_no_place() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stage = Stage::new();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut silent = Vec::new();
            for bytes in [&b""[..], &BEGIN[..3], &BEGIN[..12], &BEGIN[..23]] {
                silent.push(client(&listener, bytes).await);
            }
            // They come before him and take all places.
            let speaks = client(&listener, BEGIN).await;
            let (_stop, stopped) = watch::channel(false);
            let service = Arc::clone(&stage.service);
            let config = Config { connections_max: silent.len(), ..Config::default() };
            let limits = Limits { opening_time: SHORT, ..Limits::of(&config) };
            let serving = tokio::spawn(serve(listener, service, None, limits, stopped));
            let answered = tokio::time::timeout(PATIENCE, heard(&speaks)).await;
            assert!(answered.expect("he is served in the end") > 0);
            for client in &silent {
                tokio::time::timeout(PATIENCE, ended(client)).await.expect("it is ended");
            }
            let early = tokio::time::timeout(SHORT * 4, ended(&speaks)).await;
            assert!(early.is_err(), "one that speaks HTTP/2 was ended");
            serving.abort();
        });
    }

    /// Story: where all places were taken by connections that did nothing, four of them a second
    /// were ended. Who came behind a hundred waited for half a minute, and behind thousands for
    /// minutes.
    #[test]
    fn a_crowd_that_does_nothing_keeps_nobody_waiting_for_long() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stage = Stage::new();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut crowd = Vec::new();
            for _ in 0..60 {
                crowd.push(client(&listener, BEGIN).await);
            }
            let speaks = client(&listener, BEGIN).await;
            let (_stop, stopped) = watch::channel(false);
            let config = Config { connections_max: 30, ..Config::default() };
            let service = Arc::clone(&stage.service);
            let begun = Instant::now();
            let serving =
                tokio::spawn(serve(listener, service, None, Limits::of(&config), stopped));
            let answered = tokio::time::timeout(PATIENCE, heard(&speaks)).await;
            assert!(answered.expect("he is served in the end") > 0);
            // Each thirty of them have done nothing for long enough after a second.
            let waited = begun.elapsed();
            assert!(waited < Duration::from_secs(5), "{waited:?}");
            assert_eq!(stage.service.peers.count(), 30, "no more were ended than have come");
            serving.abort();
        });
    }
}
