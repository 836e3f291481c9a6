//! Connections: taken up to a limit, each served by a task of its own, and drained at the end.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::access::CertificateUser;
use crate::limits::{
    ASK_AFTER, ASK_TIME, CONCURRENT_CALLS_MAX, CONNECTIONS_MAX, DRAIN_TIME, HEADER_BYTES_MAX,
    HEADERS_MAX, HEADERS_TIME, HTTP1_BUFFER_BYTES, OPENING_TIME, WINDOW_BYTES,
};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use crate::opening::Opening;
use crate::router;
use crate::service::Service;
use crate::tls::Tls;

/// How long nothing is taken after the system refused a connection: too many files are open.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes connections until `stop` becomes true, then lets what is being served end.
pub async fn serve(
    listener: TcpListener,
    service: Arc<Service>,
    tls: Option<Arc<Tls>>,
    stop: watch::Receiver<bool>,
) {
    let following = tls.as_ref().map(|tls| tokio::spawn(Arc::clone(tls).follow()));
    serve_some(listener, service, tls, stop, (CONNECTIONS_MAX, OPENING_TIME)).await;
    if let Some(following) = following {
        following.abort();
    }
}

/// As [`serve`], so many connections at a time, each of which has so long until it says what it
/// speaks.
async fn serve_some(
    listener: TcpListener,
    service: Arc<Service>,
    tls: Option<Arc<Tls>>,
    mut stop: watch::Receiver<bool>,
    (connections_max, opening_time): (usize, Duration),
) {
    let builder = Arc::new(builder());
    let places = Arc::new(Semaphore::new(connections_max));
    let mut connections = JoinSet::new();
    loop {
        let taken = tokio::select! {
            taken = take(&listener, &places) => taken,
            Some(_) = connections.join_next() => continue,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        if let Some((stream, place)) = taken {
            let (builder, service) = (Arc::clone(&builder), Arc::clone(&service));
            let (tls, stop) = (tls.clone(), stop.clone());
            // Without it answers wait for more to send; where it cannot be set they are only later.
            let _ = stream.set_nodelay(true);
            connections.spawn(async move {
                encrypted(&builder, stream, service, (tls, opening_time), stop).await;
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

/// Serves a connection, encrypted where there are certificates.
async fn encrypted(
    builder: &Builder<TokioExecutor>,
    stream: TcpStream,
    service: Arc<Service>,
    (tls, opening_time): (Option<Arc<Tls>>, Duration),
    mut stop: watch::Receiver<bool>,
) {
    let Some(tls) = tls else {
        let stream = Opening::new(stream, opening_time);
        return connection(builder, stream, service, None, stop).await;
    };
    let accepted = tokio::select! {
        accepted = tls.accept(stream, opening_time) => accepted,
        _ = stop.wait_for(|stop| *stop) => return,
    };
    // Who does not come through notices that himself.
    if let Some((stream, user)) = accepted {
        let stream = Opening::new(stream, opening_time);
        connection(builder, stream, service, user, stop).await;
    }
}

async fn connection<S>(
    builder: &Builder<TokioExecutor>,
    stream: Opening<S>,
    service: Arc<Service>,
    user: Option<CertificateUser>,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let answer = service_fn(move |mut request: hyper::Request<Incoming>| {
        let service = Arc::clone(&service);
        if let Some(user) = &user {
            request.extensions_mut().insert(user.clone());
        }
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
            let room = (silent.len(), SHORT);
            let serving = tokio::spawn(serve_some(listener, service, None, stopped, room));
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
}
