//! Certificates for suites whose packages contain none, made by `openssl`.

use std::path::Path;
use std::process::Command;

use crate::tools::tool_install;

/// Creates an authority (`ca/ca.crt`), a node (`node/node.crt`, and `node1/node.crt`, which
/// is no authority) and a user (`user-admin/user-admin.crt`) in a folder.
pub fn create(folder: &Path) -> Result<(), String> {
    for name in ["ca", "node", "node1", "user-admin"] {
        let own = folder.join(name);
        std::fs::create_dir_all(&own).map_err(|error| format!("{}: {error}", own.display()))?;
    }
    openssl(
        folder,
        &["req", "-x509", "-subj", "/CN=Umbel suite", "-days", "30"],
        "ca/ca",
        &["-addext", "basicConstraints=critical,CA:TRUE"],
    )?;
    let issued = ["-CA", "ca/ca.crt", "-CAkey", "ca/ca.key"];
    let own = ["-addext", "basicConstraints=critical,CA:FALSE", "-addext"];
    let node = [&own[..], &["subjectAltName=DNS:localhost,IP:127.0.0.1"]].concat();
    let base = ["req", "-x509", "-days", "30", "-subj"];
    openssl(
        folder,
        &[&base[..], &["/CN=eventstoredb-node"], &issued].concat(),
        "node/node",
        &node,
    )?;
    let user = [&own[..], &["extendedKeyUsage=clientAuth"]].concat();
    let subject = ["/CN=admin"];
    openssl(folder, &[&base[..], &subject, &issued].concat(), "user-admin/user-admin", &user)?;
    let copied = std::fs::copy(folder.join("node/node.crt"), folder.join("node1/node.crt"));
    copied.map(drop).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Adds the flags of a server with these certificates.
pub fn add_flags<'a>(command: &'a mut Command, folder: &Path) -> &'a mut Command {
    command.arg("--certificate-file").arg(folder.join("node/node.crt"));
    command.arg("--certificate-private-key-file").arg(folder.join("node/node.key"));
    command.arg("--trusted-root-certificates-path").arg(folder.join("ca/ca.crt"))
}

/// Makes a key and a certificate of this name.
fn openssl(folder: &Path, words: &[&str], name: &str, more: &[&str]) -> Result<(), String> {
    let (key, certificate) = (format!("{name}.key"), format!("{name}.crt"));
    let mut command = Command::new("openssl");
    command.args(words).args(["-newkey", "rsa:2048", "-nodes", "-keyout", &key, "-out"]);
    command.arg(certificate).args(more).current_dir(folder);
    tool_install::succeeded("openssl", command.output())
}
