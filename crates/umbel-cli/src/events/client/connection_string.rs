//! [`ConnectionString`]: address, encryption and user of a connection, parsed from a connection
//! string.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use url::{Host, Url};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::password_source::prompt;

/// Default port of a server.
const PORT_DEFAULT: u16 = 2113;
/// Schemes of connection strings that name one server.
const SCHEMES: [&str; 3] = ["esdb", "kurrentdb", "kdb"];
/// Environment variable with the password for a user that the connection string names without a
/// password.
const PASSWORD_VARIABLE: &str = "UMBEL_PASSWORD";

/// Address of a server, encryption and user of its connections.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectionString {
    /// Name or address of the server, without brackets.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Encryption of connections; `None` if connections are not encrypted.
    pub encryption: Option<TlsOptions>,
    /// User and password of connections.
    pub user: Option<(String, String)>,
}

/// Encryption of connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsOptions {
    /// Whether the server's certificate must be signed by a trusted authority and name the server
    /// (`tlsVerifyCert`).
    pub verifies: bool,
    /// File of trusted authorities, instead of those of the operating system (`tlsCaFile`).
    pub authorities: Option<PathBuf>,
    /// Files of the certificate that identifies the user, and of the certificate's private key
    /// (`userCertFile`, `userKeyFile`).
    pub user: Option<(PathBuf, PathBuf)>,
}

impl ConnectionString {
    /// Parses `http://HOST:PORT`, `https://HOST:PORT`, `HOST:PORT`, or a connection string. A user
    /// without a password gets the one of the environment, or on a terminal the one that the
    /// operator enters. `flag` is the flag that has the text.
    ///
    /// # Errors
    /// The text names no server, or several.
    pub fn parse(flag: &str, text: &str) -> CommandResult<ConnectionString> {
        // An empty variable is one that is not set.
        let variable =
            || std::env::var(PASSWORD_VARIABLE).ok().filter(|password| !password.is_empty());
        let password = |user: &str| {
            variable().or_else(|| prompt(&format!("password of {}", user.escape_default())))
        };
        parse(text, password).map_err(|why| {
            CommandError::usage(format!("{flag} is {}: {why}", without_password(text)))
        })
    }

    /// Returns host and port as text.
    pub fn host_and_port_text(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// Returns the origin (scheme, host and port) for requests.
    pub fn origin(&self) -> String {
        let scheme = if self.encryption.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.host_and_port_text())
    }

    /// Returns a text that parses to this address. It has the user but no password, so that it can
    /// be shown.
    pub fn to_text_without_password(&self) -> String {
        let user = self.user.as_ref().map(|(user, _)| format!("{}@", percent_encode(user)));
        let mut options: Vec<(&str, Cow<'_, str>)> = Vec::new();
        match &self.encryption {
            None => options.push(("tls", "false".into())),
            Some(TlsOptions { verifies, authorities, user }) => {
                if !verifies {
                    options.push(("tlsVerifyCert", "false".into()));
                }
                let (certificate, key) = user.as_ref().map(|(file, key)| (file, key)).unzip();
                let files = [
                    ("tlsCaFile", authorities.as_ref()),
                    ("userCertFile", certificate),
                    ("userKeyFile", key),
                ];
                for (name, file) in files {
                    options.extend(file.map(|file| (name, file.to_string_lossy())));
                }
            }
        }
        let is_plain = matches!(&options[..], [] | [("tls", _)]);
        if user.is_none() && is_plain {
            return self.origin();
        }
        let options: Vec<String> = options
            .iter()
            .map(|(name, value)| format!("{name}={}", percent_encode(value)))
            .collect();
        let query = if options.is_empty() { "" } else { "?" };
        format!(
            "kurrentdb://{}{}{query}{}",
            user.unwrap_or_default(),
            self.host_and_port_text(),
            options.join("&")
        )
    }
}

impl fmt::Debug for ConnectionString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(user, _)| user);
        f.debug_struct("ServerAddress")
            .field("origin", &self.origin())
            .field("user", &user)
            .finish_non_exhaustive()
    }
}

fn parse(
    text: &str,
    password: impl FnOnce(&str) -> Option<String>,
) -> Result<ConnectionString, &'static str> {
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let scheme = scheme.to_ascii_lowercase();
    let is_plain = matches!(&*scheme, "http" | "https");
    if !is_plain && !SCHEMES.contains(&&*scheme) {
        return Err(
            "the address must name one server: write http://HOST:PORT, https://HOST:PORT, or \
             kurrentdb://USER@HOST:PORT?tlsCaFile=FILE (also esdb:// or kdb://)",
        );
    }
    let option = |name: &str| -> Result<Option<String>, &'static str> {
        let mut pairs = query.split('&').filter_map(|one| one.split_once('='));
        let pair = pairs.find(|(key, _)| key.eq_ignore_ascii_case(name));
        pair.map(|(_, value)| percent_decode(value)).transpose()
    };
    let file = |name: &str| match option(name)? {
        Some(path) if path.is_empty() => {
            Err("an option that names a file is empty; name the file, or leave out the option")
        }
        path => Ok(path.map(PathBuf::from)),
    };
    let switch = |name: &str, default: bool| match option(name)? {
        None => Ok(default),
        Some(value) if value.eq_ignore_ascii_case("true") => Ok(true),
        Some(value) if value.eq_ignore_ascii_case("false") => Ok(false),
        Some(_) => Err("tls and tlsVerifyCert must be true or false; write one of them"),
    };
    let (userinfo, place) =
        place.rsplit_once('@').map_or((None, place), |(userinfo, at)| (Some(userinfo), at));
    let place = place.split('/').next().unwrap_or_default();
    if place.contains(',') {
        return Err("name one of these servers");
    }
    let (host, port) = host_and_port(place, is_plain)?;
    let encryption = TlsOptions {
        verifies: switch("tlsVerifyCert", true)?,
        authorities: file("tlsCaFile")?,
        user: match (file("userCertFile")?, file("userKeyFile")?) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("userCertFile and userKeyFile are valid only together; write both"),
        },
    };
    let encryption = switch("tls", scheme != "http")?.then_some(encryption);
    let user = userinfo.map(|userinfo| credentials(userinfo, password)).transpose()?;
    Ok(ConnectionString { host, port, encryption, user })
}

/// Parses the credentials before the `@`: a user with a password; without one, the password comes
/// from the environment.
fn credentials(
    userinfo: &str,
    password: impl FnOnce(&str) -> Option<String>,
) -> Result<(String, String), &'static str> {
    let missing = "the user has no password: write USER:PASSWORD@, or set UMBEL_PASSWORD";
    let (user, written) = match userinfo.split_once(':') {
        Some((user, password)) => (percent_decode(user)?, Some(percent_decode(password)?)),
        None => (percent_decode(userinfo)?, None),
    };
    // A request says both with a colon between them.
    if user.is_empty() || user.contains(':') {
        return Err(
            "the user name is empty or has a colon, which is invalid; write USER@ before the host",
        );
    }
    let password = written.or_else(|| password(&user)).ok_or(missing)?;
    Ok((user, password))
}

fn host_and_port(place: &str, needs_port: bool) -> Result<(String, u16), &'static str> {
    let wrong = "the address names no host and port; write http://HOST:PORT, or \
                 kurrentdb://USER@HOST:PORT?tlsCaFile=FILE";
    // A URL parser drops white space, cuts at # and \, and takes an empty port for none.
    let is_odd = |letter: char| {
        letter.is_whitespace() || letter.is_control() || matches!(letter, '#' | '\\')
    };
    if place.contains(is_odd) || place.ends_with(':') {
        return Err(wrong);
    }
    // With a scheme that has a default port, the parser would drop that port.
    let url = Url::parse(&format!("kdb://{place}")).map_err(|_| wrong)?;
    // Of such a scheme it checks addresses of IPv6 only.
    let host = match Host::parse(url.host_str().ok_or(wrong)?).map_err(|_| wrong)? {
        Host::Ipv6(address) => address.to_string(),
        host => host.to_string(),
    };
    match url.port() {
        Some(port) => Ok((host, port)),
        None if !needs_port => Ok((host, PORT_DEFAULT)),
        None => Err(wrong),
    }
}

/// Encodes text for [`percent_decode`]; a path of a file stays legible.
pub fn percent_encode(text: &str) -> percent_encoding::PercentEncode<'_> {
    const ENCODED: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');
    percent_encoding::utf8_percent_encode(text, ENCODED)
}

/// Decodes text in which `%` and two hexadecimal digits stand for a byte.
fn percent_decode(text: &str) -> Result<String, &'static str> {
    let wrong =
        "a % is not followed by two hex digits, or the bytes are not UTF-8; write % itself as %25";
    // The crate keeps a % that encodes no byte.
    let is_code = |after: &str| {
        after.len() >= 2 && after.bytes().take(2).all(|digit| digit.is_ascii_hexdigit())
    };
    if !text.split('%').skip(1).all(is_code) {
        return Err(wrong);
    }
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| wrong)
}

/// Returns a connection string without its password, so that it can be shown.
fn without_password(text: &str) -> String {
    let hidden = text.rsplit_once('@').and_then(|(before, after)| {
        let is_scheme =
            |start: &str| start.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'+');
        let parts = before.split_once("://").filter(|(start, _)| is_scheme(start));
        let (start, userinfo) = parts.unwrap_or(("", before));
        let (user, _) = userinfo.split_once(':')?;
        let scheme = if start.is_empty() { String::new() } else { format!("{start}://") };
        Some(format!("{scheme}{user}:...@{after}"))
    });
    hidden.unwrap_or_else(|| text.to_string())
}

/// Checks that a parsed connection string round-trips and that its password is not shown. For
/// fuzzing only.
pub fn check(text: &str) {
    let shown = without_password(text);
    let Ok(address) = parse(text, |_| Some("of the environment".to_string())) else { return };
    assert!(!address.host.is_empty() && !address.host.contains(['@', ' ', '/', ',']), "{text}");
    let mut rendered = format!("kdb://{}", address.host_and_port_text());
    if let Some((user, password)) = &address.user {
        assert!(!user.is_empty() && !user.contains(':'), "{text}");
        let coded =
            |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
        rendered =
            format!("kdb://{}:{}@{}", coded(user), coded(password), address.host_and_port_text());
        let written = text.rsplit_once('@').and_then(|(before, _)| {
            Some(
                before
                    .split_once("://")
                    .map_or(before, |(_, userinfo)| userinfo)
                    .split_once(':')?
                    .1,
            )
        });
        // What is as short may stand in the dots that stand for it.
        if let Some(written) = written.filter(|written| written.len() > 3) {
            let count = |text: &str| text.matches(written).count();
            assert!(count(&shown) < count(text), "{text} is shown as {shown}");
        }
    }
    let encryption = match &address.encryption {
        None => "?tls=false",
        Some(_) => "?tls=true",
    };
    let again = parse(&format!("{rendered}{encryption}"), |_| None);
    let again = again.unwrap_or_else(|why| panic!("{text}: {why}"));
    assert_eq!(
        (&again.host, again.port, &again.user),
        (&address.host, address.port, &address.user)
    );
    assert_eq!(again.origin(), address.origin());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ConnectionString, &'static str> {
        parse(text, |_| None)
    }

    #[test]
    fn connection_strings_and_addresses_are_parsed() {
        for (text, origin) in [
            ("127.0.0.1:2113", "http://127.0.0.1:2113"),
            ("http://[::1]:7/", "http://[::1]:7"),
            ("https://db.example:7", "https://db.example:7"),
            ("esdb://localhost:2113?tls=false", "http://localhost:2113"),
            ("kurrentdb://db.example?keepAlive=9&TLS=False", "http://db.example:2113"),
            ("esdb://admin:changeit@10.0.0.1:7?tls=false", "http://10.0.0.1:7"),
            ("kdb://[::1]:7/?tls=false", "http://[::1]:7"),
            ("kdb://[::1]?tls=false", "http://[::1]:2113"),
            ("esdb://localhost", "https://localhost:2113"),
            ("esdb://localhost:2113?tls=true", "https://localhost:2113"),
            ("KurrentDB://localhost?tls=false", "http://localhost:2113"),
            ("http://db_1.Example:80", "http://db_1.example:80"),
            ("https://[::0:1]:443", "https://[::1]:443"),
            ("b\u{fc}cher.example:7", "http://xn--bcher-kva.example:7"),
            ("esdb://ops:a/b#c@db:7?tls=false", "http://db:7"),
        ] {
            assert_eq!(read(text).map(|address| address.origin()).as_deref(), Ok(origin), "{text}");
        }
        for (text, why) in [
            ("localhost", "no host and port"),
            ("ftp://localhost:2113", "must name one server"),
            ("esdb+discover://cluster:2113?tls=false", "must name one server"),
            ("esdb://a:1,b:2?tls=false", "one of these"),
            ("esdb://:2113?tls=false", "no host and port"),
            ("esdb://a:x?tls=false", "no host and port"),
            ("a:70000", "no host and port"),
            ("esdb://a?tls=no", "true or false"),
            ("esdb://a?userCertFile=x", "valid only together"),
            ("esdb://a%4:b@c", "two hex digits"),
            ("esdb://ops@c", "UMBEL_PASSWORD"),
            // Regression: an address without brackets was parsed as the host `:` and the port 1.
            ("::1", "no host and port"),
            ("[::1", "no host and port"),
            ("[::1]7", "no host and port"),
            ("[localhost]:7", "no host and port"),
            ("a:+7", "no host and port"),
            ("a b:7", "no host and port"),
            ("a\tb:7", "no host and port"),
            ("a:7 ", "no host and port"),
            ("a#b:7", "no host and port"),
            ("a:7\\8", "no host and port"),
            ("a%20b:7", "no host and port"),
            ("esdb://a:/?tls=false", "no host and port"),
            ("", "no host and port"),
            ("esdb://ops:%+f@c", "two hex digits"),
            ("esdb://:secret@c", "is empty or has a colon"),
            ("esdb://a%3Ab:secret@c", "is empty or has a colon"),
        ] {
            let message = read(text).expect_err(text);
            assert!(message.contains(why), "{text}: {message}");
            // Story: an address without a password got advice about host and port, too.
            let is_about_address = why.contains("host and port") || why.contains("must name one");
            assert_eq!(message.contains("HOST:PORT"), is_about_address, "{text}: {message}");
        }
    }

    #[test]
    fn user_and_tls_options_are_parsed() {
        let text = "esdb://ops:p%40ss%3a1@db:7?tlsCaFile=/a%20b.pem&userCertFile=c&userKeyFile=k";
        let address = read(text).unwrap();
        assert_eq!(address.user, Some(("ops".into(), "p@ss:1".into())));
        let encryption = address.encryption.clone().unwrap();
        assert!(encryption.verifies);
        assert_eq!(encryption.authorities, Some("/a b.pem".into()));
        assert_eq!(encryption.user, Some(("c".into(), "k".into())));
        assert!(!format!("{address:?}").contains("p@ss"));
        let address = parse("kdb://ops@db?tlsVerifyCert=false", |_| Some("x".into())).unwrap();
        assert_eq!(address.user, Some(("ops".into(), "x".into())));
        assert!(!address.encryption.unwrap().verifies);
    }

    #[test]
    fn empty_file_option_is_rejected() {
        let named = "esdb://db:7?tlsCaFile=a&userCertFile=b&userKeyFile=c";
        assert!(read(named).is_ok());
        for file in ["=a", "=b", "=c"] {
            assert!(read(&named.replace(file, "=")).is_err(), "{file}");
        }
    }

    #[test]
    fn debug_output_hides_password() {
        let message =
            ConnectionString::parse("--connect", "esdb://ops:secret@a:x").expect_err("wrong");
        let message = message.to_string();
        assert!(message.contains("esdb://ops:...@a:x") && !message.contains("secret"), "{message}");
        assert_eq!(without_password("ops:secret@a:x"), "ops:...@a:x");
        assert_eq!(without_password("ops:sec://ret@a:x"), "ops:...@a:x");
        assert_eq!(without_password("a:7"), "a:7");
    }
}
