//! Commands as text that a shell runs as it is printed: they name the user, the CA file and the
//! user's certificate, but never a password. `curl` and `umbel` then prompt for the password.

use std::borrow::Cow;
use std::path::Path;

use umbel_base::shell_word::{path_word, quote};

use crate::events::client::connection_string::ConnectionString;

/// A `curl` command for a path of this server. `options` are words between `curl` and the address.
pub fn curl_command(address: &ConnectionString, options: &[&str], path: &str) -> String {
    let mut words: Vec<Cow<'_, str>> = vec!["curl".into()];
    let certificate = address.encryption.as_ref().and_then(|tls| tls.user.as_ref());
    match &address.user {
        Some((user, _)) => words.extend(["-u".into(), user.as_str().into()]),
        None => {
            for (flag, file) in certificate.iter().flat_map(|(certificate, key)| {
                [("--cert", certificate.as_path()), ("--key", key.as_path())]
            }) {
                words.extend([flag.into(), path_word(file)]);
            }
        }
    }
    if let Some(tls) = &address.encryption {
        match &tls.authorities {
            _ if !tls.verifies => words.push("--insecure".into()),
            Some(file) => words.extend(["--cacert".into(), path_word(file)]),
            None => {}
        }
    }
    words.extend(options.iter().map(|option| Cow::Borrowed(*option)));
    words.push(format!("{}{path}", address.origin()).into());
    join(&words)
}

/// An `umbel` command that works at this server, such as `umbel scavenge --history --connect …`.
pub fn umbel_command(words: &[&str], address: &ConnectionString) -> String {
    let connection = address.to_text_without_password();
    let words = ["umbel"].iter().chain(words).chain(&["--connect"]).map(|word| (*word).into());
    join(&words.chain([connection.into()]).collect::<Vec<Cow<'_, str>>>())
}

/// An `umbel` command on the store in a directory, such as `umbel verify --db …`.
pub fn store_command(words: &[&str], directory: &Path) -> String {
    let words = ["umbel"].iter().chain(words).chain(&["--db"]).map(|word| (*word).into());
    join(&words.chain([path_word(directory)]).collect::<Vec<Cow<'_, str>>>())
}

fn join(words: &[Cow<'_, str>]) -> String {
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> ConnectionString {
        ConnectionString::parse("--connect", text).unwrap()
    }

    /// Story: the printed commands omitted user and CA file, so that none of them worked at a
    /// server with TLS and users.
    #[test]
    fn commands_name_user_and_files_but_no_password() {
        let full = address("kurrentdb://ops:sec%20ret@db?tlsCaFile=/etc/my%20ca.crt");
        assert_eq!(
            curl_command(&full, &[], "/admin/backup/1?a=b&c"),
            "curl -u ops --cacert '/etc/my ca.crt' 'https://db:2113/admin/backup/1?a=b&c'"
        );
        assert_eq!(
            umbel_command(&["scavenge", "--history"], &full),
            "umbel scavenge --history --connect 'kurrentdb://ops@db:2113?tlsCaFile=/etc/my%20ca.crt'"
        );
        assert_eq!(
            store_command(&["scavenge", "--now"], Path::new("/a b")),
            "umbel scavenge --now --db '/a b'"
        );
        let plain = address("127.0.0.1:2113");
        assert_eq!(
            curl_command(&plain, &["-X", "POST"], "/a"),
            "curl -X POST http://127.0.0.1:2113/a"
        );
        assert_eq!(
            umbel_command(&["doctor"], &plain),
            "umbel doctor --connect http://127.0.0.1:2113"
        );
        let options = "tlsVerifyCert=false&userCertFile=-a.crt&userKeyFile=it's.key";
        let certificate = address(&format!("kurrentdb://db?{options}"));
        assert_eq!(
            curl_command(&certificate, &[], "/"),
            r"curl --cert ./-a.crt --key 'it'\''s.key' --insecure https://db:2113/"
        );
    }

    /// A printed connection string parses to the same server, except for the password.
    #[test]
    fn printed_connection_strings_are_read_back() {
        for text in [
            "http://h:1",
            "https://h:1",
            "https://[::1]:1",
            "kdb://h",
            "kdb://o%3Fp%40s:x@h:7?tls=false",
            "kdb://ops:x@h?tlsVerifyCert=false&tlsCaFile=a%26b%25%3F.pem",
            "kdb://h?userCertFile=c%20d&userKeyFile=k%23",
            "http://ops:x@h:1",
        ] {
            let before = address(text);
            let shown = before.to_text_without_password();
            assert!(!shown.contains(":x@"), "{shown}");
            let again = match &before.user {
                Some(_) => address(&shown.replace('@', ":x@")),
                None => address(&shown),
            };
            assert_eq!(again, before, "{text} is shown as {shown}");
        }
    }
}
