//! [`ServerSecurity`]: encryption and authentication of a server, and their files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_server::{BootstrapPasswords, CertificateNames, CertificateStore, Pem};

use super::serve_config::ServeConfig;
use crate::errors::{CommandError, CommandResult};

/// Extensions of the files that are read in a directory of certificates.
const CERTIFICATE_ENDINGS: [&str; 3] = ["crt", "pem", "cer"];
/// Byte order mark that some editors write.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Maximum length of a file of certificates or of a key.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Encryption and authentication of a server.
#[derive(Debug, Clone)]
pub enum ServerSecurity {
    /// The server serves every client that reaches it, without encryption and authentication.
    Insecure,
    /// The server authenticates users.
    Users {
        /// Passwords of the first users, if the operator chose them.
        first: BootstrapPasswords,
        /// Certificate files; `None` if a proxy encrypts.
        tls: Option<Arc<CertificateFiles>>,
    },
}

/// Files of certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    authorities: Option<PathBuf>,
}

impl ServerSecurity {
    /// Derives the security of the server from its options.
    ///
    /// # Errors
    /// The options contradict each other, or a certificate or key for encryption is missing.
    pub fn from_config(config: &ServeConfig) -> CommandResult<ServerSecurity> {
        let options = &config.options;
        let files = [
            ("certificate-file", &options.certificate_file),
            ("certificate-private-key-file", &options.certificate_private_key_file),
            ("trusted-root-certificates-path", &options.trusted_root_certificates_path),
        ];
        let is_clear = options.insecure || options.disable_tls;
        let clear = if options.insecure { "insecure" } else { "disable-tls" };
        if let Some((name, _)) = files.iter().find(|(_, file)| is_clear && file.is_some()) {
            return Err(CommandError::usage(format!(
                "{clear} and {name} contradict each other: {clear} serves without TLS; keep one \
                 of them"
            )));
        }
        if options.insecure {
            if options.disable_tls {
                return Err(CommandError::usage(
                    "insecure and disable-tls contradict each other: only disable-tls \
                     authenticates users; keep one of them",
                ));
            }
            return Ok(ServerSecurity::Insecure);
        }
        let tls = match (&options.certificate_file, &options.certificate_private_key_file) {
            _ if is_clear => None,
            (Some(certificate), Some(key)) => {
                let (certificate, key) = (certificate.clone(), key.clone());
                Some(Arc::new(CertificateFiles {
                    certificate,
                    key,
                    authorities: options.trusted_root_certificates_path.clone(),
                }))
            }
            (Some(_), None) => return Err(missing_option("the private key of the certificate")),
            (None, Some(_)) => return Err(missing_option("the certificate of the private key")),
            (None, None) => {
                return Err(missing_option("a certificate to encrypt connections with"));
            }
        };
        let first = BootstrapPasswords {
            admin: config.admin_password.clone(),
            ops: config.ops_password.clone(),
        };
        Ok(ServerSecurity::Users { first, tls })
    }
}

fn missing_option(what: &str) -> CommandError {
    CommandError::usage(format!(
        "{what} is missing: name both with --certificate-file FILE and \
         --certificate-private-key-file FILE; or serve without TLS with --insecure, where every \
         client that reaches the port may read and write"
    ))
}

impl CertificateFiles {
    /// File of the server's certificate and its chain.
    pub fn certificate_file(&self) -> &Path {
        &self.certificate
    }
}

impl CertificateStore for CertificateFiles {
    fn read(&self) -> io::Result<Pem> {
        Ok(Pem {
            certificates: read(&self.certificate)?,
            key: read_key(&self.key)?,
            authorities: match &self.authorities {
                Some(path) => read_authorities(path)?,
                None => Vec::new(),
            },
        })
    }

    fn names(&self) -> CertificateNames {
        let shown = |path: &Path| path.display().to_string();
        CertificateNames {
            certificate: shown(&self.certificate),
            key: shown(&self.key),
            authorities: self.authorities.as_deref().map(shown).unwrap_or_default(),
        }
    }

    fn report(&self, problem: &str) {
        tracing::warn!("{problem}");
    }

    fn report_replacement(&self, news: &str) {
        tracing::info!("{news}");
    }
}

/// Reads a private key that has no passphrase.
fn read_key(path: &Path) -> io::Result<Vec<u8>> {
    let pem = read(path)?;
    if contains_pem(&pem, "ENCRYPTED") {
        let why = "this private key is protected by a passphrase, which the server cannot enter; \
                   write it without one, readable only by the server";
        return Err(with_path(path, io::Error::other(why)));
    }
    Ok(pem)
}

fn contains_pem(pem: &[u8], text: &str) -> bool {
    pem.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Reads the CA certificates of a file, or of all files in a directory.
fn read_authorities(path: &Path) -> io::Result<Vec<u8>> {
    let named = |error| with_path(path, error);
    if !std::fs::metadata(path).map_err(named)?.is_dir() {
        return read_authority(path);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(named)? {
        let file = entry.map_err(named)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if CERTIFICATE_ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)) {
            files.push(file);
        }
    }
    if files.is_empty() {
        let endings = CERTIFICATE_ENDINGS.map(|ending| format!("*.{ending}")).join(", ");
        let why = format!("{}: the directory has no certificates ({endings})", path.display());
        return Err(io::Error::other(why));
    }
    files.sort_unstable();
    let mut pem = Vec::new();
    for file in files {
        pem.extend(read_authority(&file)?);
        pem.push(b'\n');
    }
    Ok(pem)
}

fn read_authority(path: &Path) -> io::Result<Vec<u8>> {
    let pem = read(path)?;
    // Without a CA certificate the server would not request certificates of users.
    if !contains_pem(&pem, "BEGIN") {
        let why = "it has no CA certificate";
        return Err(with_path(path, io::Error::other(why)));
    }
    Ok(pem)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let named = |error| with_path(path, error);
    let about = std::fs::metadata(path).map_err(named)?;
    if !about.is_file() || about.len() > FILE_BYTES_MAX {
        let why = format!("{}: this is not a file of certificates or a key", path.display());
        return Err(io::Error::other(why));
    }
    let mut bytes = std::fs::read(path).map_err(named)?;
    // The byte order mark is not part of the first line.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

fn with_path(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: an empty file of CA certificates was accepted, and a key with a passphrase was
    /// reported as missing.
    #[test]
    fn invalid_certificate_and_key_files_are_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.pem");
        let written = |text: &str| std::fs::write(&path, text).unwrap();
        written("");
        let message = read_authorities(&path).expect_err("empty").to_string();
        assert!(message.contains("a.pem: it has no CA certificate"), "{message}");
        let message = read_authorities(directory.path()).expect_err("of empty files").to_string();
        assert!(message.contains("it has no CA certificate"), "{message}");
        for text in ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED"] {
            written(text);
            let message = read_key(&path).expect_err("encrypted").to_string();
            assert!(message.contains("a.pem: this private key is protected"), "{message}");
        }
        written("\u{feff}-----BEGIN CERTIFICATE-----");
        assert!(read_authorities(&path).unwrap().starts_with(b"-----BEGIN"));
    }
}
