//! X.509 certificates: the user that one names, its validity, and their parser for PEM texts.

use std::time::Duration;

use rustls::CommonState;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use umbel_env::Clock;
use x509_cert::Certificate;
use x509_cert::der::asn1::{PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::oid::db::rfc5280::ID_KP_CLIENT_AUTH;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::ExtendedKeyUsage;
use x509_cert::time::Validity;

use crate::auth::authorization::CertificateUser;
use crate::limits::EXPIRY_WARNING_TIME;

/// The user of the client's certificate, which the handshake has verified.
pub fn certificate_user(connection: &CommonState) -> Option<CertificateUser> {
    let certificate = Certificate::from_der(connection.peer_certificates()?.first()?).ok()?;
    common_name(&certificate).map(|name| CertificateUser(name.into()))
}

/// Whether a certificate has the extended key usage `clientAuth`.
pub fn is_for_clients(certificate: &CertificateDer<'_>) -> bool {
    let Ok(certificate) = Certificate::from_der(certificate) else { return false };
    let usages = certificate.tbs_certificate.get::<ExtendedKeyUsage>();
    matches!(usages, Ok(Some((_, usages))) if usages.0.contains(&ID_KP_CLIENT_AUTH))
}

/// The user name in a certificate; `None` without one, or with two.
fn common_name(certificate: &Certificate) -> Option<String> {
    let names = certificate.tbs_certificate.subject.0.iter().flat_map(|name| name.0.iter());
    let mut names = names.filter(|name| name.oid == COMMON_NAME);
    let value = &names.next()?.value;
    // With two names it is ambiguous which one is the user.
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

/// Period of validity of the first certificate of a PEM text; `None` if it cannot be parsed.
pub fn validity(pem: &[u8]) -> Option<Validity> {
    let first = CertificateDer::pem_slice_iter(pem).next()?.ok()?;
    Some(Certificate::from_der(&first).ok()?.tbs_certificate.validity)
}

/// The report that the first certificate of a PEM text has expired or is not valid yet.
pub fn validity_problem(pem: &[u8], clock: &dyn Clock) -> Option<String> {
    let Validity { not_before, not_after } = validity(pem)?;
    let now = u128::from(clock.wall_micros());
    if not_after.to_unix_duration().as_micros() < now {
        return Some(format!(
            "the server's certificate expired at {not_after}; clients reject the certificate"
        ));
    }
    let is_early = not_before.to_unix_duration().as_micros() > now;
    is_early.then(|| {
        format!(
            "the server's certificate is valid from {not_before} on; until then clients reject \
             the certificate"
        )
    })
}

/// The warning that the first certificate of a PEM text expires within a week, or within the last
/// quarter of its validity if that is shorter. The text is the same each time.
pub fn expiry_warning(pem: &[u8], clock: &dyn Clock) -> Option<String> {
    let Validity { not_before, not_after } = validity(pem)?;
    let end = not_after.to_unix_duration();
    let whole = end.saturating_sub(not_before.to_unix_duration());
    let left = end.saturating_sub(Duration::from_micros(clock.wall_micros()));
    (left < EXPIRY_WARNING_TIME.min(whole / 4)).then(|| {
        format!(
            "the server's certificate expires at {not_after}; replace its files, which the server \
             then loads without a restart"
        )
    })
}

/// Returns the certificates of a PEM text; `what` names it in errors.
pub fn parse_pem(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(read) if !read.is_empty() => Ok(read),
        Ok(_) => Err(format!("the {what} is not in PEM format: it has no BEGIN CERTIFICATE")),
        Err(error) => Err(format!("the {what} is not in PEM format: {error}")),
    }
}
