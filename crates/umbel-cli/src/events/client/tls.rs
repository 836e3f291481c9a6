//! Encrypting a connection to a server: whom one believes, and who one is.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::server_address::Encryption;
use crate::errors::{Failure, Outcome};

/// Encrypts a connection to `host`. Returns the server's certificate with it.
///
/// # Errors
/// Files that are no certificates or keys; a server that does not encrypt or whose certificate is
/// not believed.
pub async fn wrap(
    stream: TcpStream,
    host: &str,
    wanted: &Encryption,
) -> Outcome<(TlsStream<TcpStream>, Option<Vec<u8>>)> {
    let config = config(wanted)?;
    let name = ServerName::try_from(host.to_string())
        .map_err(|_| Failure::usage(format!("{host} is no name that a certificate can be for")))?;
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name, stream).await.map_err(|error| refused(&error))?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let certificate = shown.map(|certificate| certificate.to_vec());
    Ok((stream, certificate))
}

fn refused(error: &io::Error) -> Failure {
    let reason = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let hint = match reason {
        Some(Error::InvalidMessage(_)) => {
            "; it does not seem to encrypt: write tls=false or http://"
        }
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            "; name the file of the authority that signed it with tlsCaFile=FILE"
        }
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "; come by a name that is in it",
        Some(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => "; it has to be replaced on the server",
        // The kind of what is below has no name here.
        Some(Error::InvalidCertificate(why))
            if format!("{why:?}").contains("CaUsedAsEndEntity") =>
        {
            "; it is that of an authority, as openssl req -x509 makes it: have it sign another one \
             for the server, or write tlsVerifyCert=false"
        }
        Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)) => {
            "; what listens there speaks no HTTP/2, and may be no server of this kind"
        }
        _ => "",
    };
    Failure::System(format!("no encrypted connection: {error}{hint}"))
}

fn config(wanted: &Encryption) -> Outcome<ClientConfig> {
    let provider = Arc::new(default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::System(format!("could not encrypt: {error}")))?;
    let builder = match wanted.verifies {
        true => builder.with_root_certificates(authorities(wanted.authorities.as_deref())?),
        false => {
            let anybody = Arc::new(Anybody(provider));
            builder.dangerous().with_custom_certificate_verifier(anybody)
        }
    };
    let mut config = match &wanted.user {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificates = certificates(certificate)?;
            let wrong = |error: &dyn std::fmt::Display| {
                Failure::usage(format!("{}: this is no private key: {error}", key.display()))
            };
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong(&error))?;
            let chosen = builder.with_client_auth_cert(certificates, key);
            chosen.map_err(|error| {
                Failure::usage(format!(
                    "the user's certificate and key do not go together: {error}"
                ))
            })?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Whose certificates are believed: those in the file, or those that the system believes.
fn authorities(file: Option<&Path>) -> Outcome<RootCertStore> {
    let mut store = RootCertStore::empty();
    let (found, what) = match file {
        Some(file) => (certificates(file)?, file.display().to_string()),
        None => (rustls_native_certs::load_native_certs().certs, "this system".to_string()),
    };
    let (taken, _) = store.add_parsable_certificates(found);
    if taken == 0 {
        return Err(Failure::usage(format!(
            "{what} has no certificate of an authority; name a file with tlsCaFile=FILE"
        )));
    }
    Ok(store)
}

fn certificates(file: &Path) -> Outcome<Vec<CertificateDer<'static>>> {
    let wrong = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("{}: these are no certificates: {error}", file.display()))
    };
    let read = CertificateDer::pem_file_iter(file).map_err(|error| wrong(&error))?;
    read.collect::<Result<Vec<_>, _>>().map_err(|error| wrong(&error))
}

/// Believes whoever answers, but not that somebody else signed for him.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
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

    /// What is said of a server that shows a certificate of its own and speaks this.
    fn said(is_authority: bool, protocol: &[u8]) -> String {
        let mut params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.pem");
        std::fs::write(&file, certificate.pem()).unwrap();
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let chain = vec![certificate.der().clone()];
        let mut server = builder.with_no_client_auth().with_single_cert(chain, key.into()).unwrap();
        server.alpn_protocols = vec![protocol.to_vec()];
        let wanted = Encryption { verifies: true, authorities: Some(file), user: None };
        let runtime = crate::events::connection::runtime().unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            tokio::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                drop(TlsAcceptor::from(Arc::new(server)).accept(stream).await);
            });
            let wrapped = wrap(stream, "localhost", &wanted).await;
            wrapped.map(drop).expect_err("refused").to_string()
        })
    }

    /// A certificate as `openssl req -x509` makes it was refused with the name of a kind of errors.
    #[test]
    fn why_there_is_no_encryption_is_told_with_what_to_do() {
        let of_authority = said(true, b"h2");
        assert!(of_authority.contains("have it sign another one"), "{of_authority}");
        let other = said(false, b"http/1.1");
        assert!(other.contains("speaks no HTTP/2"), "{other}");
    }
}
