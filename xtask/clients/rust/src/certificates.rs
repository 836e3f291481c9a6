//! Creates certificate authorities and certificates for a TLS server, which are new at each run.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Creates two authorities; the first one signs certificates for the server and for the user `ops`.
pub fn make(folder: &Path) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(folder).map_err(|error| said(&error))?;
    let write = |name: &str, text: String| {
        std::fs::write(folder.join(name), text).map_err(|error| said(&error))
    };
    let (ours, strange) = (authority("ours"), authority("strange"));
    let (ours, strange) = (ours.map_err(|e| said(&e))?, strange.map_err(|e| said(&e))?);
    write("ca.crt", ours.pem())?;
    write("strange.crt", strange.pem())?;
    for (name, common_name, usage) in [
        ("server", "localhost", ExtendedKeyUsagePurpose::ServerAuth),
        ("ops", "ops", ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let (certificate, key) = signed(&ours, common_name, usage).map_err(|e| said(&e))?;
        write(&format!("{name}.crt"), certificate)?;
        write(&format!("{name}.key"), key)?;
    }
    Ok(())
}

fn authority(name: &str) -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.distinguished_name.push(DnType::CommonName, name);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn signed(
    by: &Authority,
    name: &str,
    usage: ExtendedKeyUsagePurpose,
) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["localhost".to_string()])?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    Ok((params.signed_by(&key, by)?.pem(), key.serialize_pem()))
}
