//! The host under which clients reach a server: one that its certificate names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Returns a host that the first certificate of a PEM text names: the IP address of the listener if
/// the certificate has it, otherwise its first DNS name without a wildcard.
pub fn certificate_host(pem: &[u8], address: SocketAddr) -> Option<String> {
    let first = CertificateDer::pem_slice_iter(pem).next()?.ok()?;
    let certificate = Certificate::from_der(&first).ok()?;
    let (_, names) = certificate.tbs_certificate.get::<SubjectAltName>().ok()??;
    let is_own = |name: &GeneralName| match (name, address.ip()) {
        (GeneralName::IpAddress(bytes), IpAddr::V4(ip)) => bytes.as_bytes() == ip.octets(),
        (GeneralName::IpAddress(bytes), IpAddr::V6(ip)) => bytes.as_bytes() == ip.octets(),
        _ => false,
    };
    if names.0.iter().any(is_own) {
        return Some(address.ip().to_string());
    }
    names.0.iter().find_map(|name| match name {
        GeneralName::DnsName(name) if !name.as_str().contains('*') => Some(name.to_string()),
        _ => None,
    })
}

/// Returns an address at which programs on this machine reach the server that listens at `address`.
pub fn reachable_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_address_is_shown_as_loopback() {
        let shown = |address: &str| reachable_address(address.parse().unwrap()).to_string();
        assert_eq!(shown("0.0.0.0:7"), "127.0.0.1:7");
        assert_eq!(shown("[::]:7"), "[::1]:7");
        assert_eq!(shown("10.0.0.1:7"), "10.0.0.1:7");
    }

    #[test]
    fn host_is_one_that_the_certificate_names() {
        let host = |names: &[&str], address: &str| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let certificate = rcgen::generate_simple_self_signed(names).unwrap().cert;
            certificate_host(certificate.pem().as_bytes(), address.parse().unwrap())
        };
        let names = ["*.db.example", "db.example", "10.0.0.1", "::1"];
        assert_eq!(host(&names, "10.0.0.1:7").as_deref(), Some("10.0.0.1"));
        assert_eq!(host(&names, "[::1]:7").as_deref(), Some("::1"));
        assert_eq!(host(&names, "10.0.0.2:7").as_deref(), Some("db.example"));
        assert_eq!(host(&["*.db.example"], "10.0.0.2:7"), None);
        assert_eq!(certificate_host(b"no certificate", "10.0.0.2:7".parse().unwrap()), None);
    }
}
