//! Certificates and keys in PEM files that an option names. Errors name option, file, cause and
//! remedy.

use std::path::Path;

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::errors::{CommandError, CommandResult};

/// File that an option names, and its expected content.
#[derive(Debug, Clone, Copy)]
pub struct PemFile<'a> {
    /// The option.
    pub option: &'static str,
    /// The file.
    pub path: &'a Path,
    /// Expected content, such as "a certificate".
    pub content: &'static str,
}

impl PemFile<'_> {
    /// Reads the certificates, at least one.
    ///
    /// # Errors
    /// The file cannot be read, or has no certificate.
    pub fn certificates(&self) -> CommandResult<Vec<CertificateDer<'static>>> {
        let read = CertificateDer::pem_file_iter(self.path).and_then(Iterator::collect);
        let found: Vec<_> = read.map_err(|error| self.error(&error))?;
        match found.is_empty() {
            true => Err(self.error(&Error::NoItemsFound)),
            false => Ok(found),
        }
    }

    /// Reads the first private key.
    ///
    /// # Errors
    /// The file cannot be read, or has no private key.
    pub fn private_key(&self) -> CommandResult<PrivateKeyDer<'static>> {
        PrivateKeyDer::from_pem_file(self.path).map_err(|error| self.error(&error))
    }

    /// The error of a file that can be read, but has none of the content.
    pub fn without_content(&self) -> CommandError {
        self.error(&Error::NoItemsFound)
    }

    fn error(&self, error: &Error) -> CommandError {
        let PemFile { option, path, content } = self;
        let cause = match error {
            Error::Io(source) => format!("cannot be read: {source}"),
            Error::NoItemsFound => format!("has no PEM section with {content}"),
            Error::MissingSectionEnd { .. } => "is cut off: a section has no END line".to_string(),
            Error::IllegalSectionStart { .. } => {
                "is not a PEM file: a BEGIN line is invalid".into()
            }
            error => format!("is not a valid PEM file: {error}"),
        };
        let remedy = match error {
            Error::Io(source) if source.kind() == std::io::ErrorKind::NotFound => {
                "check the path, which can be relative to the current directory"
            }
            Error::Io(source) if source.kind() == std::io::ErrorKind::PermissionDenied => {
                "give this user the permission to read it"
            }
            _ => "name another file",
        };
        CommandError::usage(format!(
            "{option} names {}, which {cause}; {remedy} (a PEM file with {content})",
            path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: a missing file was "not a certificate file: I/O error", and a file without a
    /// certificate was answered with the advice to name a file.
    #[test]
    fn errors_name_option_file_cause_and_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let error = |name: &str, text: Option<&str>| {
            let path = directory.path().join(name);
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let file = PemFile { option: "tlsCaFile", path: &path, content: "a CA certificate" };
            let error = file.certificates().expect_err(name);
            assert_eq!(error.exit_code(), 2);
            let error = error.to_string();
            assert!(error.starts_with(&format!("tlsCaFile names {}, ", path.display())), "{error}");
            assert!(error.ends_with("(a PEM file with a CA certificate)"), "{error}");
            error
        };
        let missing = error("missing.pem", None);
        assert!(
            missing.contains("No such file") && missing.contains("check the path"),
            "{missing}"
        );
        let directory_error = error(".", None);
        assert!(directory_error.contains("cannot be read: Is a directory"), "{directory_error}");
        let text = error("text.pem", Some("text\n"));
        assert!(text.contains("has no PEM section with a CA certificate"), "{text}");
        let cut = error("cut.pem", Some("-----BEGIN CERTIFICATE-----\nAAAA\n"));
        assert!(cut.contains("is cut off"), "{cut}");
        let path = directory.path().join("text.pem");
        let key = PemFile { option: "userKeyFile", path: &path, content: "a private key" };
        let error = key.private_key().expect_err("text").to_string();
        assert!(error.contains("has no PEM section with a private key"), "{error}");
    }
}
