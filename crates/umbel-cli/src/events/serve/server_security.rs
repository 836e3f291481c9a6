//! [`Security`]: whether a server encrypts and asks who somebody is, and the files it needs for it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_server::{Certificates, FirstPasswords, Pem};

use super::serve_config::ServeConfig;
use crate::errors::{Failure, Outcome};

/// How the names of files end that are taken from a folder of certificates.
const ENDINGS: [&str; 3] = ["crt", "pem", "cer"];
/// What some editors write before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// The longest file of certificates or of a key.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What a server does about who reaches it.
#[derive(Debug, Clone)]
pub enum Security {
    /// Nothing: it serves whoever reaches it, in clear.
    Insecure,
    /// It asks who he is.
    Users {
        /// The passwords of the first users, where somebody chose them.
        first: FirstPasswords,
        /// With what it encrypts; nothing where something in front of it does.
        tls: Option<Arc<Files>>,
    },
}

/// Files of certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    certificate: PathBuf,
    key: PathBuf,
    authorities: Option<PathBuf>,
}

impl Security {
    /// What the options come to.
    ///
    /// # Errors
    /// They contradict each other, or there is nothing to encrypt with.
    pub fn of(config: &ServeConfig) -> Outcome<Security> {
        let files = [
            ("certificate-file", &config.certificate),
            ("certificate-private-key-file", &config.key),
            ("trusted-root-certificates-path", &config.authorities),
        ];
        let is_clear = config.insecure || config.disable_tls;
        let clear = if config.insecure { "insecure" } else { "disable-tls" };
        if let Some((name, _)) = files.iter().find(|(_, file)| is_clear && file.is_some()) {
            return Err(Failure::usage(format!(
                "{clear} and {name} contradict each other: the one serves in clear, the other \
                 encrypts; keep one of them"
            )));
        }
        if config.insecure {
            if config.disable_tls {
                return Err(Failure::usage(
                    "insecure and disable-tls contradict each other: the one asks nobody who he \
                     is, the other does; keep one of them",
                ));
            }
            return Ok(Security::Insecure);
        }
        let tls = match (&config.certificate, &config.key) {
            _ if is_clear => None,
            (Some(certificate), Some(key)) => {
                let (certificate, key) = (certificate.clone(), key.clone());
                Some(Arc::new(Files { certificate, key, authorities: config.authorities.clone() }))
            }
            (Some(_), None) => return Err(missing("the private key of the certificate")),
            (None, Some(_)) => return Err(missing("the certificate of the private key")),
            (None, None) => return Err(missing("a certificate to encrypt connections with")),
        };
        let first = FirstPasswords {
            admin: config.admin_password.clone(),
            ops: config.ops_password.clone(),
        };
        Ok(Security::Users { first, tls })
    }
}

fn missing(what: &str) -> Failure {
    Failure::usage(format!(
        "{what} is missing: name both with --certificate-file FILE and \
         --certificate-private-key-file FILE; or serve in clear with --insecure, where whoever \
         reaches the port may read and write"
    ))
}

impl Certificates for Files {
    fn read(&self) -> io::Result<Pem> {
        Ok(Pem {
            certificates: read(&self.certificate)?,
            key: key(&self.key)?,
            authorities: match &self.authorities {
                Some(path) => authorities(path)?,
                None => Vec::new(),
            },
        })
    }

    fn tell(&self, news: &str) {
        tracing::warn!("{news}");
    }
}

/// A private key that can be read without being asked for a word.
fn key(path: &Path) -> io::Result<Vec<u8>> {
    let pem = read(path)?;
    if holds(&pem, "ENCRYPTED") {
        let why = "this private key is protected by a passphrase, which nobody could type; write \
                   it without one, and let only the server read it";
        return Err(named(path, io::Error::other(why)));
    }
    Ok(pem)
}

fn holds(pem: &[u8], text: &str) -> bool {
    pem.windows(text.len()).any(|part| part == text.as_bytes())
}

/// Certificates of authorities: those of a file, or of all files in a folder.
fn authorities(path: &Path) -> io::Result<Vec<u8>> {
    let named = |error| named(path, error);
    if !std::fs::metadata(path).map_err(named)?.is_dir() {
        return authority(path);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(named)? {
        let file = entry.map_err(named)?.path();
        let ending = file.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if ENDINGS.iter().any(|known| ending.eq_ignore_ascii_case(known)) {
            files.push(file);
        }
    }
    if files.is_empty() {
        let endings = ENDINGS.map(|ending| format!("*.{ending}")).join(", ");
        let why = format!("{}: there are no certificates ({endings})", path.display());
        return Err(io::Error::other(why));
    }
    files.sort_unstable();
    let mut pem = Vec::new();
    for file in files {
        pem.extend(authority(&file)?);
        pem.push(b'\n');
    }
    Ok(pem)
}

fn authority(path: &Path) -> io::Result<Vec<u8>> {
    let pem = read(path)?;
    // Without an authority no certificate of a user would be asked for.
    if !holds(&pem, "BEGIN") {
        let why = "there is no certificate of an authority in it";
        return Err(named(path, io::Error::other(why)));
    }
    Ok(pem)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let named = |error| named(path, error);
    let about = std::fs::metadata(path).map_err(named)?;
    if !about.is_file() || about.len() > FILE_BYTES_MAX {
        let why = format!("{}: this is no file of certificates or of a key", path.display());
        return Err(io::Error::other(why));
    }
    let mut bytes = std::fs::read(path).map_err(named)?;
    // A mark of the order of bytes, as some editors write it, is no part of the first line.
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An empty file of authorities was taken, and no user was asked for his certificate; of a key
    /// with a passphrase it was said that there is none.
    #[test]
    fn what_is_no_file_of_its_kind_is_told_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pem");
        let written = |text: &str| std::fs::write(&path, text).unwrap();
        written("");
        let said = authorities(&path).expect_err("empty").to_string();
        assert!(said.contains("a.pem: there is no certificate"), "{said}");
        let said = authorities(folder.path()).expect_err("of empty files").to_string();
        assert!(said.contains("there is no certificate"), "{said}");
        for text in ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED"] {
            written(text);
            let said = key(&path).expect_err("encrypted").to_string();
            assert!(said.contains("a.pem: this private key is protected"), "{said}");
        }
        written("\u{feff}-----BEGIN CERTIFICATE-----");
        assert!(authorities(&path).unwrap().starts_with(b"-----BEGIN"));
    }
}
