//! TLS of a connection to a server: trusted authorities, and the certificate of the client.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::TlsOptions;
use crate::events::client::pem_files::PemFile;

/// Option of a connection string that names the file of trusted authorities.
const CA_OPTION: &str = "tlsCaFile";

/// Encrypts a connection to `host`. Returns the encrypted connection and the server's certificate.
///
/// # Errors
/// Files that are no certificates or keys; a server that does not use TLS, or whose certificate is
/// not trusted.
pub async fn encrypt(
    stream: TcpStream,
    host: &str,
    wanted: &TlsOptions,
) -> CommandResult<(TlsStream<TcpStream>, Option<Vec<u8>>)> {
    let config = client_config(wanted, CA_OPTION)?;
    let name = ServerName::try_from(host.to_string()).map_err(|_| {
        CommandError::usage(format!("{host} is not a valid host name for a certificate"))
    })?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream).await;
    let stream = stream.map_err(|error| tls_error(&error, wanted))?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate = shown.map(|certificate| certificate.to_vec());
    Ok((stream, certificate))
}

fn tls_error(error: &io::Error, wanted: &TlsOptions) -> CommandError {
    let other_authority = wanted.authorities.as_deref().map(|file| {
        format!(
            "; no CA certificate of {} (tlsCaFile) signed the server's certificate: name the file \
             of the CA that did",
            file.display()
        )
    });
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let hint = match reason {
        Some(Error::InvalidMessage(_)) => {
            "; the server seems not to use TLS: write tls=false or http://"
        }
        // The second one is that of a CA with the name of the right one, but another key.
        Some(Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => {
            let unnamed = "; name the file of the CA certificate with tlsCaFile=FILE";
            other_authority.as_deref().unwrap_or(unnamed)
        }
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "; connect by a name that is in the certificate",
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "; replace the certificate of the server",
        // The kind of what is below has no name here.
        Some(Error::InvalidCertificate(why))
            if format!("{why:?}").contains("CaUsedAsEndEntity") =>
        {
            "; the server's certificate is a CA certificate, as openssl req -x509 creates: sign a \
             server certificate with it, or write tlsVerifyCert=false"
        }
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            "; the server does not speak HTTP/2 and may not be an event store server"
        }
        _ => "",
    };
    CommandError::System(format!("no encrypted connection: {error}{hint}"))
}

fn client_config(wanted: &TlsOptions, ca_option: &'static str) -> CommandResult<ClientConfig> {
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| CommandError::System(format!("could not encrypt: {error}")))?;
    let builder = match wanted.verifies {
        true => {
            let file = wanted.authorities.as_deref();
            builder.with_root_certificates(trusted_authorities(file, ca_option)?)
        }
        false => {
            let verifier = Arc::new(NoVerifier(provider));
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    let mut config = match &wanted.user {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let (option, content) = ("userCertFile", "the certificate of a user");
            let certificates = PemFile { option, path: certificate, content }.certificates()?;
            let (option, content) = ("userKeyFile", "the private key of a user");
            let private_key = PemFile { option, path: key, content }.private_key()?;
            builder.with_client_auth_cert(certificates, private_key).map_err(|error| {
                CommandError::usage(format!(
                    "userCertFile names {} and userKeyFile names {}, which do not match: {error}; \
                     name a certificate and its own key",
                    certificate.display(),
                    key.display()
                ))
            })?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// The settings of a client of HTTP/1.1 that trusts the authorities in the file if given, otherwise
/// those of the operating system. `option` names the file.
///
/// # Errors
/// The file has no certificate, or the system has none.
pub fn verifying_config(
    authorities: Option<&Path>,
    option: &'static str,
) -> CommandResult<ClientConfig> {
    let authorities = authorities.map(Path::to_path_buf);
    let options = TlsOptions { verifies: true, authorities, user: None };
    let mut config = client_config(&options, option)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the trusted authorities: those in the file if given, otherwise those of the operating
/// system.
fn trusted_authorities(file: Option<&Path>, option: &'static str) -> CommandResult<RootCertStore> {
    let mut store = RootCertStore::empty();
    let file = file.map(|path| PemFile { option, path, content: "a CA certificate" });
    let found = match &file {
        Some(file) => file.certificates()?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let (added, _) = store.add_parsable_certificates(found);
    match file {
        Some(file) if added == 0 => Err(file.without_content()),
        None if added == 0 => Err(CommandError::usage(format!(
            "this system has no CA certificate; name a file with {option}=FILE"
        ))),
        _ => Ok(store),
    }
}

/// Verifier that trusts any certificate, but still checks that the server has the certificate's
/// private key.
#[derive(Debug)]
struct NoVerifier(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerifier {
    fn verify_server_cert(
        &self,
        _certificate: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// Error for a server with a self-signed certificate and this protocol.
    fn error_for(is_authority: bool, protocol: &[u8]) -> String {
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.pem");
        std::fs::write(&file, certificate.pem()).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let chain = vec![certificate.der().clone()];
        let mut server = builder.with_no_client_auth().with_single_cert(chain, key.into()).unwrap();
        server.alpn_protocols = vec![protocol.to_vec()];
        let wanted = TlsOptions { verifies: true, authorities: Some(file), user: None };
        let runtime = crate::events::client::grpc_connection::runtime().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            tokio::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                drop(TlsAcceptor::from(Arc::new(server)).accept(stream).await);
            });
            let wrapped = encrypt(stream, "localhost", &wanted).await;
            wrapped.map(drop).expect_err("refused").to_string()
        })
    }

    /// Regression: the error for a self-signed certificate, as `openssl req -x509` makes it, was
    /// only the name of an error kind.
    #[test]
    fn tls_failure_is_reported_with_remedy() {
        let of_authority = error_for(true, b"h2");
        assert!(of_authority.contains("sign a server certificate"), "{of_authority}");
        let other = error_for(false, b"http/1.1");
        assert!(other.contains("does not speak HTTP/2"), "{other}");
    }
}
