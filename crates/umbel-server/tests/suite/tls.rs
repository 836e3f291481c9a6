//! Tests of TLS: server certificates, their replacement, client certificates of users, and failed
//! handshakes.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::Code;
use umbel_server::{BootstrapPasswords, CertificateStore, Config, Pem, Secret};

use umbel_testing::server_connection::Connection;

use super::client::{ANY, Client, events, of_stream};
use super::monitoring::metric;
use super::test_server::{TestServer, run};
use super::users::{change, create};
use umbel_proto::streams::read_req::RevisionOption;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Creates a certificate with this name and extended key usage, valid until `year`, and its key.
fn generate_certificate(
    by: &Authority,
    name: &str,
    usage: impl Into<Option<ExtendedKeyUsagePurpose>>,
    until: i32,
) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = usage.into().into_iter().collect();
    params.not_after = date_time_ymd(until, 1, 1);
    (params.signed_by(&key, by).unwrap().pem(), key.serialize_pem())
}

fn of_server(by: &Authority) -> (String, String) {
    generate_certificate(by, "localhost", ExtendedKeyUsagePurpose::ServerAuth, 4000)
}

fn of_user(by: &Authority, name: &str) -> (String, String) {
    generate_certificate(by, name, ExtendedKeyUsagePurpose::ClientAuth, 4000)
}

/// Certificates that the server loads.
#[derive(Debug)]
struct MemoryCertificates(Mutex<Pem>);

impl CertificateStore for MemoryCertificates {
    fn read(&self) -> io::Result<Pem> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn report(&self, _: &str) {}

    fn report_replacement(&self, _: &str) {}
}

fn pem((certificate, key): (String, String), authorities: &[&Authority]) -> Pem {
    let pems = authorities.iter().map(|one| one.pem());
    Pem {
        certificates: certificate.into_bytes(),
        key: key.into_bytes(),
        authorities: pems.collect::<String>().into_bytes(),
    }
}

/// Starts a server with users that presents a certificate of this authority, and accepts user
/// certificates of the other authorities.
fn start_server(by: &Authority, of_users: &[&Authority]) -> (TestServer, Arc<MemoryCertificates>) {
    let certificates = Arc::new(MemoryCertificates(Mutex::new(pem(of_server(by), of_users))));
    let admin = Some(Secret::new("first"));
    let users = Some(BootstrapPasswords { admin, ops: Some(Secret::new("second")) });
    let tls = Some(Arc::clone(&certificates) as Arc<dyn CertificateStore>);
    (TestServer::with(Config { users, tls, ..Config::default() }), certificates)
}

/// Performs a handshake of a client that trusts this authority and presents this certificate.
async fn handshake(
    address: SocketAddr,
    believed: &Authority,
    shown: Option<&(String, String)>,
    protocol: &[u8],
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(believed.pem().as_bytes()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shown {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

async fn client(
    address: SocketAddr,
    believed: &Authority,
    shown: Option<&(String, String)>,
) -> Client {
    let stream = handshake(address, believed, shown, b"h2").await.unwrap();
    Client(Connection::over(stream, &format!("https://{address}")).await.unwrap())
}

/// Status code of an append.
async fn code(client: &Client) -> Code {
    match client.append("mine", ANY, &events(0..1)).await {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    }
}

#[test]
fn calls_and_pages_are_encrypted_on_one_port() {
    let by = authority("ours");
    let (server, _shelf) = start_server(&by, &[]);
    run(async {
        let client = client(server.address(), &by, None).await;
        let admin = client.with_user("admin", "first");
        assert_eq!(code(&admin).await, Code::Ok);
        let read = admin.read(of_stream("mine", RevisionOption::Start(()))).await.unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!(code(&client).await, Code::PermissionDenied);
        let mut stream = handshake(server.address(), &by, None, b"http/1.1").await.unwrap();
        stream
            .write_all(b"GET /ping HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        let mut stream = handshake(server.address(), &by, None, b"http/1.1").await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\
                       authorization: Basic YWRtaW46Zmlyc3Q=\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        // The first second of the year 4000.
        let end = metric(&answer, "umbel_certificate_expiry_timestamp_seconds", &[]);
        assert_eq!(end, 64_060_588_800.0);
    });
}

#[test]
fn plaintext_gets_a_hint_and_garbage_is_dropped() {
    let by = authority("ours");
    let (server, _shelf) = start_server(&by, &[]);
    run(async {
        for (sent, gets_hint) in [
            (&b"GET /ping HTTP/1.1\r\nhost: a\r\n\r\n"[..], true),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", true),
            (b"\x16\x03\x01\x00\x05hello and more that is no handshake", false),
            (b"\x16", false),
            (b"", false),
        ] {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(sent).await.unwrap();
            stream.shutdown().await.unwrap();
            let mut answer = Vec::new();
            // An error means that the server closed it at once.
            let _ = stream.read_to_end(&mut answer).await;
            let text = String::from_utf8_lossy(&answer);
            assert_eq!(text.contains("speaks TLS"), gets_hint, "{sent:?}: {text}");
        }
        let client = client(server.address(), &by, None).await;
        assert_eq!(code(&client.with_user("admin", "first")).await, Code::Ok);
    });
}

#[test]
fn client_certificate_names_the_user() {
    let (by, of_users, foreign) = (authority("ours"), authority("users"), authority("strange"));
    let (server, _shelf) = start_server(&by, &[&of_users]);
    run(async {
        let address = server.address();
        let plain = client(address, &by, None).await;
        let admin = plain.with_user("admin", "first");
        create(&admin, "ada", "third", &[]).await.unwrap();
        let certificate = of_user(&of_users, "ada");
        let ada = client(address, &by, Some(&certificate)).await;
        assert_eq!(code(&ada).await, Code::Ok);
        let unknown_user = client(address, &by, Some(&of_user(&of_users, "eve"))).await;
        assert_eq!(code(&unknown_user).await, Code::Unauthenticated);
        // A password takes precedence: a client with one is that user or is refused.
        assert_eq!(code(&unknown_user.with_user("ada", "third")).await, Code::Ok);
        assert_eq!(code(&ada.with_user("ada", "wrong")).await, Code::Unauthenticated);
        change(&admin, "Disable", "ada").await.unwrap();
        assert_eq!(code(&ada).await, Code::Unauthenticated);
        // Certificates of other authorities, expired ones, and those for another purpose.
        let usage = ExtendedKeyUsagePurpose::ClientAuth;
        let server_purpose = ExtendedKeyUsagePurpose::ServerAuth;
        for refused in [
            of_user(&foreign, "admin"),
            generate_certificate(&of_users, "admin", usage, 2001),
            generate_certificate(&of_users, "admin", server_purpose, 4000),
            // Story: a certificate without an extended key usage was accepted, such as a server's.
            generate_certificate(&of_users, "admin", None, 4000),
            generate_certificate(&of_users, "admin", ExtendedKeyUsagePurpose::Any, 4000),
            of_user(&by, "admin"),
        ] {
            let result = handshake(address, &by, Some(&refused), b"h2").await;
            let ended = match result {
                // The server rejects a client certificate only after the handshake.
                Ok(stream) => match Connection::over(stream, &format!("https://{address}")).await {
                    Ok(connection) => code(&Client(connection)).await,
                    Err(_) => Code::Unavailable,
                },
                Err(_) => Code::Unavailable,
            };
            assert!(
                matches!(ended, Code::Unavailable | Code::Unknown | Code::Internal),
                "{ended:?}"
            );
        }
        assert_eq!(code(&plain.with_user("admin", "first")).await, Code::Ok);
    });
}

/// Story: a server had to be stopped to replace its certificate.
#[test]
fn replaced_certificate_is_used_for_new_connections() {
    let (by, other) = (authority("ours"), authority("the next"));
    let (server, certificates) = start_server(&by, &[]);
    run(async {
        let address = server.address();
        let before = client(address, &by, None).await.with_user("admin", "first");
        assert_eq!(code(&before).await, Code::Ok);
        *certificates.0.lock().unwrap() = pem(of_server(&other), &[]);
        while handshake(address, &other, None, b"h2").await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(handshake(address, &by, None, b"h2").await.is_err());
        assert_eq!(code(&before).await, Code::Ok, "who was connected stays");
    });
}
