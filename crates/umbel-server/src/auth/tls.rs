//! [`Tls`]: encrypted connections, and users that authenticate with certificates.
//!
//! The certificate is read at the start and checked for changes while the server runs. New
//! connections get the new certificate; open connections keep the old one. If the new files are
//! invalid, the former certificate stays in use and the operator gets a report.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use umbel_env::Clock;

use crate::auth::authorization::CertificateUser;
use crate::auth::client_certificate_verifier::ClientCertificateVerifier;
use crate::auth::x509_certificate::{
    certificate_user, expiry_warning, parse_pem, validity, validity_problem,
};
use crate::limits::{CERTIFICATE_TIME, HANDSHAKE_TIME};

/// Supported HTTP versions, in order of preference.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// First byte that a TLS client sends.
const HANDSHAKE: u8 = 0x16;
/// The response to a client without TLS.
const PLAINTEXT_RESPONSE: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n\
    connection: close\r\ncontent-length: 74\r\n\r\n\
    this port speaks TLS: write https://, or tls=true in the connection string";

/// Certificates and a key as PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem {
    /// The server's certificate and the intermediate certificates, in order, up to an authority
    /// that clients trust.
    pub certificates: Vec<u8>,
    /// The private key of the first certificate.
    pub key: Vec<u8>,
    /// Certificates of authorities. A client with a certificate of such an authority is the user
    /// that the certificate names. Empty if the server requests no client certificates.
    pub authorities: Vec<u8>,
}

/// Source of a server's certificates.
pub trait CertificateStore: Send + Sync + fmt::Debug {
    /// The present certificates.
    ///
    /// # Errors
    /// The certificates could not be read; the error names the file.
    fn read(&self) -> io::Result<Pem>;

    /// Names of the files, for errors.
    fn names(&self) -> CertificateNames {
        CertificateNames::default()
    }

    /// Reports to the operator that the present certificates cannot be used, and why.
    fn report(&self, problem: &str);

    /// Reports to the operator that replaced certificates are in use.
    fn report_replacement(&self, news: &str);
}

/// Names of a certificate's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateNames {
    /// File of the certificate and its chain.
    pub certificate: String,
    /// File of the private key.
    pub key: String,
    /// File or directory of the CA certificates.
    pub authorities: String,
}

impl Default for CertificateNames {
    fn default() -> CertificateNames {
        CertificateNames {
            certificate: "certificate".to_string(),
            key: "private key".to_string(),
            authorities: "CA certificates".to_string(),
        }
    }
}

/// TLS configuration of a listener.
#[derive(Debug)]
pub struct Tls {
    certificates: Arc<dyn CertificateStore>,
    clock: Arc<dyn Clock>,
    loaded: watch::Sender<LoadedCertificate>,
    /// Wakes the watching task for each request; a `Wakeup` of the event store would wake it only
    /// once.
    reload_request: Notify,
    /// The last reported problem with the certificate's period of validity.
    reported_problem: Mutex<Option<String>>,
    /// The last reported warning that the certificate expires soon.
    reported_expiry: Mutex<Option<String>>,
    /// The last reported reason why the replaced certificate is not in use.
    reported_refusal: Mutex<Option<String>>,
    /// Held during a reload, so that an older reading replaces no newer one.
    reloading: Mutex<()>,
}

#[derive(Debug, Clone)]
struct LoadedCertificate {
    pem: Pem,
    config: Arc<ServerConfig>,
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pem(not shown)")
    }
}

impl Tls {
    /// Loads the present certificates.
    ///
    /// # Errors
    /// The certificates cannot be read or are invalid; the error is a sentence.
    pub fn open(
        certificates: Arc<dyn CertificateStore>,
        clock: Arc<dyn Clock>,
    ) -> Result<Tls, String> {
        let pem = certificates.read().map_err(|error| error.to_string())?;
        let config = server_config(&pem, &certificates.names())?;
        let latest = watch::Sender::new(LoadedCertificate { pem, config });
        let tls = Tls {
            certificates,
            clock,
            loaded: latest,
            reload_request: Notify::new(),
            reported_problem: Mutex::default(),
            reported_expiry: Mutex::default(),
            reported_refusal: Mutex::default(),
            reloading: Mutex::default(),
        };
        tls.report_validity();
        Ok(tls)
    }

    /// Time since 1970 at which the certificate in use expires.
    pub fn certificate_end(&self) -> Option<Duration> {
        let validity = validity(&self.loaded.borrow().pem.certificates)?;
        Some(validity.not_after.to_unix_duration())
    }

    /// Makes [`Tls::watch`] check for changes at once.
    pub fn request_reload(&self) {
        // The operator wants to know it again.
        self.report_change(&self.reported_refusal, None);
        self.reload_request.notify_one();
    }

    /// Checks for changed certificates until the server stops.
    pub async fn watch(self: Arc<Tls>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(CERTIFICATE_TIME) => {}
                () = self.reload_request.notified() => {}
            }
            let tls = Arc::clone(&self);
            // An error of the task means that the server stops; a refusal is in the log.
            if tokio::task::spawn_blocking(move || drop(tls.reload())).await.is_err() {
                return;
            }
        }
    }

    /// Loads changed certificates now, as a request of an operator. Blocks.
    ///
    /// # Errors
    /// The reason why the present certificates are not used; the former ones stay in use.
    pub fn reload_on_request(&self) -> Result<(), String> {
        // The operator wants to know it again.
        self.report_change(&self.reported_refusal, None);
        self.reload()
    }

    fn reload(&self) -> Result<(), String> {
        let _reloading = self.reloading.lock().ignore_poison();
        let former = self.loaded.borrow().pem.clone();
        let pem = match self.certificates.read() {
            // The certificate may have expired meanwhile.
            Ok(pem) if pem == former => {
                self.report_change(&self.reported_refusal, None);
                self.report_validity();
                return Ok(());
            }
            Ok(pem) => pem,
            Err(error) => return self.report_refusal(&error.to_string()),
        };
        let problem = |pem: &Pem| validity_problem(&pem.certificates, &*self.clock);
        if let Some(why) = problem(&pem)
            && problem(&former).is_none()
        {
            return self.report_refusal(&why);
        }
        match server_config(&pem, &self.certificates.names()) {
            Ok(config) => {
                self.report_change(&self.reported_refusal, None);
                let end = validity(&pem.certificates).map(|validity| validity.not_after);
                let end = end.map_or(String::new(), |end| format!("; it expires at {end}"));
                let news = format!("the new certificate is in use{end}");
                self.certificates.report_replacement(&news);
                self.loaded.send_replace(LoadedCertificate { pem, config });
                self.report_validity();
                Ok(())
            }
            // The files are written one after the other: the next check may find both.
            Err(why) => self.report_refusal(&why),
        }
    }

    /// Reports why the files' certificate cannot be used, and the validity of the one in use.
    /// Returns the reason as an error.
    fn report_refusal(&self, reason: &str) -> Result<(), String> {
        let refusal = format!("{reason}; the former certificate stays in use");
        self.report_change(&self.reported_refusal, Some(refusal.clone()));
        self.report_validity();
        Err(refusal)
    }

    /// Reports that the server's certificate has expired, expires soon or is not valid yet.
    fn report_validity(&self) {
        let (problem, warning) = {
            let loaded = self.loaded.borrow();
            let pem = &loaded.pem.certificates;
            let problem = validity_problem(pem, &*self.clock);
            let is_valid = problem.is_none();
            (problem, expiry_warning(pem, &*self.clock).filter(|_| is_valid))
        };
        self.report_change(&self.reported_problem, problem);
        self.report_change(&self.reported_expiry, warning);
    }

    /// Reports `problem` unless it is the last one that was reported. `None` ends a problem.
    fn report_change(&self, last_report: &Mutex<Option<String>>, problem: Option<String>) {
        let mut last_report = last_report.lock().ignore_poison();
        if let Some(problem) = &problem
            && last_report.as_ref() != Some(problem)
        {
            self.certificates.report(problem);
        }
        *last_report = problem;
    }

    /// Performs the TLS handshake; `None` if the handshake fails or the client does not use TLS.
    pub async fn accept(
        &self,
        stream: TcpStream,
        time: Duration,
    ) -> Option<(TlsStream<TcpStream>, Option<CertificateUser>)> {
        let config = Arc::clone(&self.loaded.borrow().config);
        let handshake = async {
            let mut first = [0];
            if stream.peek(&mut first).await.ok()? == 0 {
                return None;
            }
            if first[0] != HANDSHAKE {
                reject_plaintext(stream).await;
                return None;
            }
            TlsAcceptor::from(config).accept(stream).await.ok()
        };
        let stream = tokio::time::timeout(time.min(HANDSHAKE_TIME), handshake).await.ok()??;
        let user = certificate_user(stream.get_ref().1);
        Some((stream, user))
    }
}

/// Responds to a client that does not use TLS.
async fn reject_plaintext(stream: TcpStream) {
    // Reads first what the client sent: otherwise the response may be lost with the connection.
    let mut sent = [0; 4096];
    let _ = stream.try_read(&mut sent);
    if stream.writable().await.is_ok() {
        let _ = stream.try_write(PLAINTEXT_RESPONSE);
    }
}

fn server_config(pem: &Pem, names: &CertificateNames) -> Result<Arc<ServerConfig>, String> {
    let CertificateNames { certificate, key: key_name, authorities } = names;
    let chain = parse_pem(&pem.certificates, "certificate")
        .map_err(|error| format!("{certificate}: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|error| {
        format!("{key_name}: the private key is not a key in PEM format: {error}")
    })?;
    let provider = Arc::new(default_provider());
    let verifier: Arc<dyn ClientCertVerifier> = if pem.authorities.is_empty() {
        WebPkiClientVerifier::no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        let parsed = parse_pem(&pem.authorities, "CA certificate")
            .map_err(|error| format!("{authorities}: {error}"))?;
        for authority in parsed {
            let added = roots.add(authority);
            added
                .map_err(|error| format!("{authorities}: a CA certificate is invalid: {error}"))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::clone(&provider));
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
        // Clients without a certificate may still send a password.
        let verifier = verifier.allow_unauthenticated().build();
        let verifier = verifier.map_err(|error| {
            format!("{authorities}: the CA certificates cannot be used: {error}")
        })?;
        Arc::new(ClientCertificateVerifier(verifier))
    };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = builder
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| key_error(&error, names))?;
    config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    Ok(Arc::new(config))
}

/// The reason why a certificate and its key cannot be used, and the remedy.
fn key_error(error: &rustls::Error, names: &CertificateNames) -> String {
    let CertificateNames { certificate, key, .. } = names;
    match error {
        rustls::Error::InconsistentKeys(_) => format!(
            "{key}: the private key does not belong to the certificate in {certificate}: the \
             first certificate of that file must be the server's own, and the key the one with \
             which it was requested"
        ),
        rustls::Error::General(_) => format!(
            "{key}: the certificate and private key cannot be used: {error}; keys may be RSA with \
             2,048 to 4,096 bits, ECDSA with P-256 or P-384, Ed25519"
        ),
        _ => format!(
            "{certificate}: the certificate and private key cannot be used: {error}; the key is \
             in {key}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use umbel_env::Env;

    use super::*;

    #[test]
    fn plaintext_response_has_a_correct_content_length() {
        let text = std::str::from_utf8(PLAINTEXT_RESPONSE).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        assert_eq!(length, body.len().to_string());
    }

    /// Certificates in memory, and the reports about them.
    #[derive(Debug)]
    struct MemoryCertificates(Mutex<(Result<Pem, &'static str>, Vec<String>)>);

    impl CertificateStore for MemoryCertificates {
        fn read(&self) -> io::Result<Pem> {
            self.0.lock().unwrap().0.clone().map_err(io::Error::other)
        }

        fn report(&self, problem: &str) {
            self.0.lock().unwrap().1.push(problem.to_string());
        }

        fn report_replacement(&self, news: &str) {
            self.report(news);
        }
    }

    impl MemoryCertificates {
        fn put(&self, pem: Result<Pem, &'static str>) {
            self.0.lock().unwrap().0 = pem;
        }

        fn reports(&self) -> Vec<String> {
            std::mem::take(&mut self.0.lock().unwrap().1)
        }
    }

    fn generate_until(year: i32) -> Pem {
        generate_valid(1990, year)
    }

    #[test]
    fn invalid_certificates_fail_the_start_with_a_reason() {
        let valid = generate_until(4000);
        let other = generate_until(4000);
        let no_key = b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let cases = [
            (Pem { certificates: b"x".to_vec(), ..valid.clone() }, "no BEGIN CERTIFICATE"),
            (Pem { certificates: valid.key.clone(), ..valid.clone() }, "no BEGIN CERTIFICATE"),
            (
                Pem { key: valid.certificates.clone(), ..valid.clone() },
                "private key is not a key in PEM",
            ),
            (Pem { key: Vec::new(), ..valid.clone() }, "private key is not a key in PEM"),
            (
                Pem { key: other.key, ..valid.clone() },
                "private key: the private key does not belong to the certificate in certificate",
            ),
            // Story: an RSA key of 1,024 bits was reported as not RSA.
            (Pem { key: no_key.to_vec(), ..valid.clone() }, "RSA with 2,048 to 4,096 bits"),
            (
                Pem { authorities: b"x".to_vec(), ..valid.clone() },
                "the CA certificate is not in PEM",
            ),
        ];
        for (pem, why) in cases {
            let pem_source = Arc::new(MemoryCertificates(Mutex::new((Ok(pem), Vec::new()))));
            let error = Tls::open(pem_source, Env::system().clock).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let pem_source =
            Arc::new(MemoryCertificates(Mutex::new((Err("a.pem: not there"), Vec::new()))));
        assert_eq!(Tls::open(pem_source, Env::system().clock).unwrap_err(), "a.pem: not there");
    }

    #[test]
    fn replaced_certificate_is_loaded_if_valid() {
        let (first, second) = (generate_until(4000), generate_until(4000));
        let certificates =
            Arc::new(MemoryCertificates(Mutex::new((Ok(first.clone()), Vec::new()))));
        let tls = Tls::open(Arc::clone(&certificates) as _, Env::system().clock).unwrap();
        let shown = || tls.loaded.borrow().pem.clone();
        let _ = tls.reload();
        assert!(certificates.reports().is_empty());
        // Between the writes of two files, and while one is missing.
        let half = Pem { key: second.key.clone(), ..first.clone() };
        for (there, why) in [
            (Ok(half), "the private key does not belong to the certificate"),
            (Err("a.pem: not there"), "not there"),
        ] {
            certificates.put(there);
            let _ = tls.reload();
            let reports = certificates.reports();
            assert!(shown() == first && reports.len() == 1, "{reports:?}");
            assert!(
                reports[0].contains(why)
                    && reports[0].contains("the former certificate stays in use"),
                "{reports:?}"
            );
        }
        certificates.put(Ok(second.clone()));
        let _ = tls.reload();
        assert!(shown() == second);
        assert_eq!(
            certificates.reports(),
            ["the new certificate is in use; it expires at 4000-01-01T00:00:00Z"]
        );
        let end = Duration::from_secs(64_060_588_800);
        assert_eq!(tls.certificate_end(), Some(end));
    }

    /// Story: an expired certificate replaced a valid one, and every client was cut off.
    #[test]
    fn certificate_that_clients_reject_replaces_no_valid_one() {
        let (valid, expired) = (generate_valid(1971, 1973), generate_valid(1971, 1972));
        let certificates =
            Arc::new(MemoryCertificates(Mutex::new((Ok(valid.clone()), Vec::new()))));
        let clock = Arc::new(FixedClock::default());
        let year = 366 * 86_400_000_000;
        clock.0.store(2 * year + year / 2, Ordering::Relaxed);
        let tls = Tls::open(Arc::clone(&certificates) as _, Arc::clone(&clock) as _).unwrap();
        let shown = || tls.loaded.borrow().pem.clone();
        for (years, why) in [((1971, 1972), "expired"), ((1980, 1990), "valid from 1980")] {
            certificates.put(Ok(generate_valid(years.0, years.1)));
            let _ = tls.reload();
            let reports = certificates.reports();
            assert_eq!(tls.reload_on_request(), Err(reports[0].clone()));
            assert_eq!(certificates.reports(), reports);
            assert!(shown() == valid && reports.len() == 1, "{reports:?}");
            assert!(reports[0].contains(why) && reports[0].contains("stays in use"), "{reports:?}");
        }
        // Where the former one is no better, the operator's choice holds.
        clock.0.store(4 * year, Ordering::Relaxed);
        certificates.put(Ok(expired.clone()));
        let _ = tls.reload();
        assert!(shown() == expired);
    }

    /// Story: while the key could not be read, the log had the same line every 10 s.
    #[test]
    fn unusable_certificate_is_reported_once() {
        let first = generate_until(4000);
        let certificates =
            Arc::new(MemoryCertificates(Mutex::new((Ok(first.clone()), Vec::new()))));
        let tls = Tls::open(Arc::clone(&certificates) as _, Env::system().clock).unwrap();
        let reported = |there: Result<Pem, &'static str>| {
            certificates.put(there);
            let _ = tls.reload();
            certificates.reports().len()
        };
        assert_eq!([0; 3].map(|_| reported(Err("a.pem: not there"))), [1, 0, 0]);
        assert_eq!([0; 2].map(|_| reported(Err("a.pem: denied"))), [1, 0]);
        assert_eq!(reported(Ok(first)), 0);
        assert_eq!([0; 2].map(|_| reported(Err("a.pem: denied"))), [1, 0]);
        tls.request_reload();
        assert_eq!([0; 2].map(|_| reported(Err("a.pem: denied"))), [1, 0]);
    }

    #[test]
    fn reload_request_loads_a_replaced_certificate_at_once() {
        let second = generate_until(4000);
        let certificates =
            Arc::new(MemoryCertificates(Mutex::new((Ok(generate_until(4000)), Vec::new()))));
        let tls = Arc::new(Tls::open(Arc::clone(&certificates) as _, Env::system().clock).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            tokio::spawn(Arc::clone(&tls).watch());
            certificates.put(Ok(second.clone()));
            tls.request_reload();
            let mut shown = tls.loaded.subscribe();
            let taken = shown.wait_for(|latest| latest.pem == second);
            tokio::time::timeout(CERTIFICATE_TIME / 2, taken).await.unwrap().unwrap();
        });
    }

    fn generate_valid(from: i32, to: i32) -> Pem {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        params.not_before = date_time_ymd(from, 1, 1);
        params.not_after = date_time_ymd(to, 1, 1);
        let certificate = params.self_signed(&key).unwrap();
        let certificates = certificate.pem().into_bytes();
        Pem { certificates, key: key.serialize_pem().into_bytes(), authorities: Vec::new() }
    }

    /// Story: a certificate that expired three hours later was loaded without a warning.
    #[test]
    fn certificate_that_expires_soon_is_reported_once() {
        let day = 86_400_000_000;
        let pem = generate_valid(1971, 1973);
        let certificates = Arc::new(MemoryCertificates(Mutex::new((Ok(pem), Vec::new()))));
        let clock = Arc::new(FixedClock::default());
        let end = (365 + 365 + 366) * day;
        clock.0.store(end - 8 * day, Ordering::Relaxed);
        let tls = Tls::open(Arc::clone(&certificates) as _, Arc::clone(&clock) as _).unwrap();
        assert!(certificates.reports().is_empty());
        for hours in [6 * 24, 3, 1] {
            clock.0.store(end - hours * day / 24, Ordering::Relaxed);
            let _ = tls.reload();
        }
        let reports = certificates.reports();
        assert!(reports.len() == 1 && reports[0].contains("expires at 1973-01-01"), "{reports:?}");
        clock.0.store(end + day, Ordering::Relaxed);
        let _ = tls.reload();
        let reports = certificates.reports();
        assert!(reports.len() == 1 && reports[0].contains("expired at 1973-01-01"), "{reports:?}");
    }

    /// Story: a certificate that was not valid yet was used without a report.
    #[test]
    fn certificate_outside_its_validity_is_reported_once() {
        for (years, why) in
            [((1990, 2001), "expired at 2001-01-01"), ((3000, 4000), "valid from 3000-01-01")]
        {
            let pem = generate_valid(years.0, years.1);
            let certificates = Arc::new(MemoryCertificates(Mutex::new((Ok(pem), Vec::new()))));
            let tls = Tls::open(Arc::clone(&certificates) as _, Env::system().clock).unwrap();
            let _ = tls.reload();
            let reports = certificates.reports();
            assert!(reports.len() == 1 && reports[0].contains(why), "{reports:?}");
        }
    }

    /// A clock that a test sets.
    #[derive(Debug, Default)]
    struct FixedClock(AtomicU64);

    impl Clock for FixedClock {
        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn wall_micros(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Story: a certificate expired while in use, without a report.
    #[test]
    fn certificate_that_expires_in_use_is_reported() {
        let certificates =
            Arc::new(MemoryCertificates(Mutex::new((Ok(generate_valid(1971, 1972)), Vec::new()))));
        let clock = Arc::new(FixedClock::default());
        let year = 366 * 86_400_000_000;
        clock.0.store(year + year / 2, Ordering::Relaxed);
        let tls = Tls::open(Arc::clone(&certificates) as _, Arc::clone(&clock) as _).unwrap();
        let _ = tls.reload();
        assert!(certificates.reports().is_empty());
        clock.0.store(2 * year, Ordering::Relaxed);
        let _ = tls.reload();
        let _ = tls.reload();
        let reports = certificates.reports();
        assert!(reports.len() == 1 && reports[0].contains("expired at 1972-01-01"), "{reports:?}");
    }
}
