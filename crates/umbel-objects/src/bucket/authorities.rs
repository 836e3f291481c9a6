//! Trusted certificate authorities of stores.

use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use umbel_env::{Access, Env};

/// Maximum length of a file of certificates.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Returns the authorities of a PEM file, or without one those of the system. The variables
/// `SSL_CERT_FILE` and `SSL_CERT_DIR` replace the system's.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub(super) fn authorities(env: &Env, file: Option<&str>) -> Result<RootCertStore, String> {
    let mut authorities = RootCertStore::empty();
    let Some(path) = file else {
        authorities.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(authorities);
    };
    let bytes = read(env, Path::new(path)).map_err(|error| error.to_string())?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let certificates =
        certificates.map_err(|error| format!("{path} is no PEM file of certificates: {error}"))?;
    let (added, _) = authorities.add_parsable_certificates(certificates);
    match added {
        0 => Err(format!("{path} has no certificate of an authority in the PEM format")),
        _ => Ok(authorities),
    }
}

fn read(env: &Env, path: &Path) -> umbel_base::Result<Vec<u8>> {
    let file = env.files.open(path, Access::Read)?;
    let len = file.len()?.min(FILE_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}
