//! [`Tls`]: connections that nobody else reads, and users who say by certificates who they are.
//!
//! The certificate is read at the start and looked at again while the server runs: whoever connects
//! after it was replaced is shown the new one, and who is connected stays. Where what is there then
//! makes no sense, the former one is kept and that is told.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use rustls::{CommonState, RootCertStore};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use umbel_env::Clock;
use x509_cert::Certificate;
use x509_cert::der::asn1::{PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::time::Validity;

use crate::access::CertificateUser;
use crate::limits::{CERTIFICATE_TIME, HANDSHAKE_TIME};

/// The versions of HTTP that are spoken, in the order in which they are taken.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// With what a client that speaks TLS begins.
const HANDSHAKE: u8 = 0x16;
/// What a client is told that does not.
const IN_CLEAR: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    connection: close\r\ncontent-length: 74\r\n\r\n\
    this port speaks TLS: write https://, or tls=true in the connection string";

/// Certificates and a key as PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The server's certificate and those between it and an authority that clients know, in order.
    pub certificates: Vec<u8>,
    /// The key of the first of them.
    pub key: Vec<u8>,
    /// Certificates of authorities: whoever shows one of theirs is the user whose name is in it.
    /// Empty where no certificates are asked for.
    pub authorities: Vec<u8>,
}

/// Where a server's certificates are.
pub trait Certificates: Send + Sync + fmt::Debug {
    /// What is there now.
    ///
    /// # Errors
    /// It could not be read; the error says which file it was.
    fn read(&self) -> io::Result<Pem>;

    /// Takes what whoever runs the server should know: others are taken, or those that are there
    /// cannot be.
    fn tell(&self, news: &str);
}

/// How connections are encrypted.
#[derive(Debug)]
pub struct Tls {
    certificates: Arc<dyn Certificates>,
    clock: Arc<dyn Clock>,
    latest: watch::Sender<Latest>,
    look: Notify,
    /// Why clients refuse the certificate, as it was told last.
    refused: Mutex<Option<String>>,
}

#[derive(Debug, Clone)]
struct Latest {
    pem: Pem,
    config: Arc<ServerConfig>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pem(not shown)")
    }
}

impl Tls {
    /// With the certificates that are there.
    ///
    /// # Errors
    /// They cannot be read, or make no sense; a sentence.
    pub fn open(certificates: Arc<dyn Certificates>, clock: Arc<dyn Clock>) -> Result<Tls, String> {
        let pem = certificates.read().map_err(|error| error.to_string())?;
        let config = config(&pem)?;
        let latest = watch::Sender::new(Latest { pem, config });
        let tls =
            Tls { certificates, clock, latest, look: Notify::new(), refused: Mutex::default() };
        tls.tell_when_it_holds();
        Ok(tls)
    }

    /// Has [`Tls::follow`] look at once.
    pub fn look(&self) {
        self.look.notify_one();
    }

    /// Looks again and again whether there are other certificates.
    pub async fn follow(self: Arc<Tls>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CERTIFICATE_TIME) => {}
                () = self.look.notified() => {}
            }
            let tls = Arc::clone(&self);
            // An error says that the server stops.
            if tokio::task::spawn_blocking(move || tls.renew()).await.is_err() {
                return;
            }
        }
    }

    fn renew(&self) {
        let former = self.latest.borrow().pem.clone();
        let pem = match self.certificates.read() {
            // It may have come to its end meanwhile.
            Ok(pem) if pem == former => return self.tell_when_it_holds(),
            Ok(pem) => pem,
            Err(error) => return self.certificates.tell(&format!("{error}; the former is kept")),
        };
        match config(&pem) {
            Ok(config) => {
                self.certificates.tell("another certificate is shown from now on");
                self.latest.send_replace(Latest { pem, config });
                self.tell_when_it_holds();
            }
            // The files are written one after the other: the next look may find both.
            Err(why) => self.certificates.tell(&format!("{why}; the former is kept")),
        }
    }

    /// Tells once where the server's certificate holds no longer, or not yet.
    fn tell_when_it_holds(&self) {
        let news = refused(&self.latest.borrow().pem, &*self.clock);
        let mut told = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = news.as_ref().filter(|news| told.as_ref() != Some(news)) {
            self.certificates.tell(news);
        }
        *told = news;
    }

    /// Shakes hands with who connected; `None` where he does not come through, or does not speak
    /// TLS.
    pub async fn accept(
        &self,
        stream: TcpStream,
        time: Duration,
    ) -> Option<(TlsStream<TcpStream>, Option<CertificateUser>)> {
        let config = Arc::clone(&self.latest.borrow().config);
        let shaken = async {
            let mut first = [0];
            if stream.peek(&mut first).await.ok()? == 0 {
                return None;
            }
            if first[0] != HANDSHAKE {
                refuse(stream).await;
                return None;
            }
            TlsAcceptor::from(config).accept(stream).await.ok()
        };
        let stream = tokio::time::timeout(time.min(HANDSHAKE_TIME), shaken).await.ok()??;
        let user = user(stream.get_ref().1);
        Some((stream, user))
    }
}

/// Tells a client that does not speak TLS.
async fn refuse(stream: TcpStream) {
    // What it sent is taken first: else the answer may be lost with the connection.
    let mut sent = [0; 4096];
    let _ = stream.try_read(&mut sent);
    if stream.writable().await.is_ok() {
        let _ = stream.try_write(IN_CLEAR);
    }
}

/// Whose certificate a client has shown. It was checked when hands were shaken.
fn user(connection: &CommonState) -> Option<CertificateUser> {
    let certificate = Certificate::from_der(connection.peer_certificates()?.first()?).ok()?;
    common_name(&certificate).map(|name| CertificateUser(name.into()))
}

fn common_name(certificate: &Certificate) -> Option<String> {
    let names = certificate.tbs_certificate.subject.0.iter().flat_map(|name| name.0.iter());
    let mut names = names.filter(|name| name.oid == COMMON_NAME);
    let value = &names.next()?.value;
    // Of two names nobody knows which one is meant.
    if names.next().is_some() {
        return None;
    }
    let text = match value.tag() {
        Tag::Utf8String => Utf8StringRef::try_from(value).ok()?.to_string(),
        Tag::PrintableString => PrintableStringRef::try_from(value).ok()?.to_string(),
        Tag::TeletexString => TeletexStringRef::try_from(value).ok()?.to_string(),
        _ => return None,
    };
    Some(text)
}

/// What is to be told where the server's certificate holds no longer, or not yet.
fn refused(pem: &Pem, clock: &dyn Clock) -> Option<String> {
    let first = CertificateDer::pem_slice_iter(&pem.certificates).next()?.ok()?;
    let certificate = Certificate::from_der(&first).ok()?;
    let Validity { not_before, not_after } = certificate.tbs_certificate.validity;
    let now = u128::from(clock.wall_micros());
    if not_after.to_unix_duration().as_micros() < now {
        return Some(format!(
            "the certificate holds until {not_after} only: clients will refuse it"
        ));
    }
    let is_early = not_before.to_unix_duration().as_micros() > now;
    is_early.then(|| {
        format!("the certificate holds from {not_before} on only: clients refuse it until then")
    })
}

fn config(pem: &Pem) -> Result<Arc<ServerConfig>, String> {
    let chain = certificates(&pem.certificates, "certificate")?;
    let key = PrivateKeyDer::from_pem_slice(&pem.key)
        .map_err(|error| format!("the private key is no PEM text of a key: {error}"))?;
    let provider = Arc::new(default_provider());
    let verifier = if pem.authorities.is_empty() {
        WebPkiClientVerifier::no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for authority in certificates(&pem.authorities, "certificate of an authority")? {
            let added = roots.add(authority);
            added.map_err(|error| format!("a certificate of an authority is wrong: {error}"))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::clone(&provider));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        // Who shows none may still say a password.
        let verifier = verifier.allow_unauthenticated().build();
        verifier.map_err(|error| format!("the authorities cannot be used: {error}"))?
    };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| {
            let hint = match error {
                rustls::Error::General(_) => {
                    "; keys may be RSA with 2,048 to 4,096 bits, ECDSA with P-256 or P-384, Ed25519"
                }
                _ => "",
            };
            format!("the certificate and the private key do not serve: {error}{hint}")
        })?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) => Err(format!("the {what} is no PEM text: it has no BEGIN CERTIFICATE")),
        Err(error) => Err(format!("the {what} is no PEM text: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use umbel_env::Env;

    use super::*;

    #[test]
    fn the_answer_in_clear_says_how_long_it_is() {
        let text = std::str::from_utf8(IN_CLEAR).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let said = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        assert_eq!(said, body.len().to_string());
    }

    /// What is there now, and what was told.
    #[derive(Debug)]
    struct Shelf(Mutex<(Result<Pem, &'static str>, Vec<String>)>);

    impl Certificates for Shelf {
        fn read(&self) -> io::Result<Pem> {
            self.0.lock().unwrap().0.clone().map_err(io::Error::other)
        }

        fn tell(&self, news: &str) {
            self.0.lock().unwrap().1.push(news.to_string());
        }
    }

    impl Shelf {
        fn put(&self, pem: Result<Pem, &'static str>) {
            self.0.lock().unwrap().0 = pem;
        }

        fn told(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap().1)
        }
    }

    fn made(year: i32) -> Pem {
        made_from(1990, year)
    }

    #[test]
    fn what_makes_no_sense_is_told_at_the_start() {
        let whole = made(4000);
        let other = made(4000);
        let no_key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let cases = [
            (Pem { certificates: b"x".to_vec(), ..whole.clone() }, "no BEGIN CERTIFICATE"),
            (Pem { certificates: whole.key.clone(), ..whole.clone() }, "no BEGIN CERTIFICATE"),
            (Pem { key: whole.certificates.clone(), ..whole.clone() }, "private key is no PEM"),
            (Pem { key: Vec::new(), ..whole.clone() }, "private key is no PEM"),
            (Pem { key: other.key, ..whole.clone() }, "do not serve"),
            // Story: of an RSA key of 1,024 bits it was said that it is none of RSA.
            (Pem { key: no_key.to_vec(), ..whole.clone() }, "RSA with 2,048 to 4,096 bits"),
            (Pem { authorities: b"x".to_vec(), ..whole.clone() }, "of an authority is no PEM"),
        ];
        for (pem, why) in cases {
            let shelf = Arc::new(Shelf(Mutex::new((Ok(pem), Vec::new()))));
            let said = Tls::open(shelf, Env::system().clock).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let shelf = Arc::new(Shelf(Mutex::new((Err("a.pem: not there"), Vec::new()))));
        assert_eq!(Tls::open(shelf, Env::system().clock).unwrap_err(), "a.pem: not there");
    }

    #[test]
    fn what_was_replaced_is_taken_if_it_makes_sense() {
        let (first, second) = (made(4000), made(4000));
        let shelf = Arc::new(Shelf(Mutex::new((Ok(first.clone()), Vec::new()))));
        let tls = Tls::open(Arc::clone(&shelf) as _, Env::system().clock).unwrap();
        let shown = || tls.latest.borrow().pem.clone();
        tls.renew();
        assert!(shelf.told().is_empty());
        // Between the writing of two files, and where one is away.
        let half = Pem { key: second.key.clone(), ..first.clone() };
        for (there, why) in [(Ok(half), "do not serve"), (Err("a.pem: not there"), "not there")] {
            shelf.put(there);
            tls.renew();
            let told = shelf.told();
            assert!(shown() == first && told.len() == 1, "{told:?}");
            assert!(told[0].contains(why) && told[0].contains("the former is kept"), "{told:?}");
        }
        shelf.put(Ok(second.clone()));
        tls.renew();
        assert!(shown() == second);
        assert_eq!(shelf.told().len(), 1);
    }

    #[test]
    fn what_was_replaced_is_taken_at_once_where_that_is_asked_for() {
        let second = made(4000);
        let shelf = Arc::new(Shelf(Mutex::new((Ok(made(4000)), Vec::new()))));
        let tls = Arc::new(Tls::open(Arc::clone(&shelf) as _, Env::system().clock).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            tokio::spawn(Arc::clone(&tls).follow());
            shelf.put(Ok(second.clone()));
            tls.look();
            let mut shown = tls.latest.subscribe();
            let taken = shown.wait_for(|latest| latest.pem == second);
            tokio::time::timeout(CERTIFICATE_TIME / 2, taken).await.unwrap().unwrap();
        });
    }

    fn made_from(from: i32, to: i32) -> Pem {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let certificate = params.self_signed(&key).unwrap();
        let certificates = certificate.pem().into_bytes();
        Pem { certificates, key: key.serialize_pem().into_bytes(), authorities: Vec::new() }
    }

    /// One that was not valid yet was shown without a word.
    #[test]
    fn a_certificate_that_is_too_old_or_too_new_is_told_once() {
        for (years, why) in
            [((1990, 2001), "holds until 2001-01-01"), ((3000, 4000), "holds from 3000-01-01")]
        {
            let pem = made_from(years.0, years.1);
            let shelf = Arc::new(Shelf(Mutex::new((Ok(pem), Vec::new()))));
            let tls = Tls::open(Arc::clone(&shelf) as _, Env::system().clock).unwrap();
            tls.renew();
            let told = shelf.told();
            assert!(told.len() == 1 && told[0].contains(why), "{told:?}");
        }
    }

    /// A clock that is put where it is wanted.
    #[derive(Debug, Default)]
    struct Put(AtomicU64);

    impl Clock for Put {
        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn wall_micros(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// The end of one that is shown came, and nobody was told.
    #[test]
    fn a_certificate_that_comes_to_its_end_while_it_is_shown_is_told() {
        let shelf = Arc::new(Shelf(Mutex::new((Ok(made_from(1971, 1972)), Vec::new()))));
        let clock = Arc::new(Put::default());
        let year = 366 * 86_400_000_000;
        clock.0.store(year + year / 2, Ordering::Relaxed);
        let tls = Tls::open(Arc::clone(&shelf) as _, Arc::clone(&clock) as _).unwrap();
        tls.renew();
        assert!(shelf.told().is_empty());
        clock.0.store(2 * year, Ordering::Relaxed);
        tls.renew();
        tls.renew();
        let told = shelf.told();
        assert!(told.len() == 1 && told[0].contains("holds until 1972-01-01"), "{told:?}");
    }
}
