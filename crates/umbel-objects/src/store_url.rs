//! URLs of object stores.

use std::path::PathBuf;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Env, Objects};
use url::{ParseError, Url};

#[cfg(feature = "buckets")]
use crate::bucket::{BucketObjects, BucketUrl};
use crate::directory_objects::DirectoryObjects;
use crate::variables::Variables;

/// Schemes of buckets.
const BUCKET_SCHEMES: [&str; 3] = ["s3", "gs", "az"];

/// Opens the object store that a URL names, with the environment variables of this process.
///
/// The URL is `file:///DIRECTORY`, a directory of a mounted file system, or with the feature
/// `buckets` one of `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` (Google Cloud Storage) and
/// `az://CONTAINER/PREFIX` (Azure).
///
/// # Errors
/// [`Error::Invalid`] if the URL names no store that this program knows, or a setting is invalid;
/// other errors if the store cannot be opened.
pub fn open(env: &Env, url: &str) -> Result<Arc<dyn Objects>> {
    open_with(env, url, &Variables::of_process())
}

/// Opens a store like [`open`], with these variables in the place of the environment's.
///
/// # Errors
/// As [`open`].
pub fn open_with(env: &Env, url: &str, variables: &Variables) -> Result<Arc<dyn Objects>> {
    #[cfg(feature = "buckets")]
    if let Some(url) = BucketUrl::parse(url)? {
        return Ok(Arc::new(BucketObjects::open(env, &url, variables)?));
    }
    // Directories have no settings.
    let _ = variables;
    let directory = parse_directory(url)?;
    Ok(Arc::new(DirectoryObjects::open(env, &directory)?))
}

/// Returns a URL for messages: without its options, which can have the password of a proxy, and
/// without a slash at its end, so that a prefix can follow.
///
/// ```
/// assert_eq!(umbel_objects::location("s3://b/shop/?region=eu-west-1"), "s3://b/shop");
/// ```
pub fn location(url: &str) -> String {
    let (place, _) = url.split_once('?').unwrap_or((url, ""));
    without_credentials(place.trim_end_matches('/'))
}

/// Returns a URL for messages, without a user and a password before its host.
fn without_credentials(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(end) => format!("{scheme}://***{}", &rest[end..]),
        None => text.to_owned(),
    }
}

/// Returns the directory of a `file:` URL.
fn parse_directory(text: &str) -> Result<PathBuf> {
    let shown = without_credentials(text);
    let invalid = |reason: &str| {
        Err(Error::invalid(format!(
            "{shown:?} is not the URL of an object store: {reason}; write for example \
             file:///mnt/share/backups"
        )))
    };
    // The parser drops some of these, and takes a backslash for a slash: another directory.
    let is_dropped = |c: char| c.is_ascii_control() || c == '\\';
    if text.contains(is_dropped) || text.starts_with(' ') || text.ends_with(' ') {
        return invalid(
            "a control character, a backslash, or a blank at its end must be percent-encoded, as \
             %09 for a tab, %5C or %20",
        );
    }
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(_) if text.is_empty() => return invalid("it is empty"),
        Err(ParseError::RelativeUrlWithoutBase) => {
            return invalid("it has no scheme, such as s3:// or file:// before an absolute path");
        }
        Err(error) => return invalid(&error.to_string()),
    };
    if !cfg!(feature = "buckets") && BUCKET_SCHEMES.contains(&url.scheme()) {
        return invalid("this program was built without the feature \"buckets\"");
    }
    if url.scheme() != "file" {
        return invalid(&format!("this program has no store with the scheme {:?}", url.scheme()));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return invalid("a directory has no query and no fragment; write `?` as %3F, `#` as %23");
    }
    if !text.to_ascii_lowercase().starts_with("file:///")
        && !text.to_ascii_lowercase().starts_with("file://localhost/")
    {
        return invalid("the path must be absolute, after file://");
    }
    match url.to_file_path() {
        Ok(path) if path.as_os_str().as_encoded_bytes().contains(&0) => {
            invalid("the path contains a zero byte")
        }
        Ok(path) => Ok(path),
        Err(()) => invalid("the path must be absolute, and on this host"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[cfg(feature = "buckets")]
    #[test]
    fn buckets_are_opened_without_a_request() {
        let variables = Variables::new([
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("GOOGLE_BEARER_TOKEN", "token"),
            ("AZURE_STORAGE_ACCOUNT", "a"),
            ("AZURE_STORAGE_KEY", "a2V5"),
        ]);
        for url in ["s3://b/a", "gs://b/a", "az://c/a"] {
            let store = open_with(&Env::system(), url, &variables).expect(url);
            assert_eq!(store.location(), url);
            let shown = format!("{store:?}");
            assert!(!shown.contains("secret") && !shown.contains("token"), "{shown}");
        }
    }

    #[test]
    fn messages_show_no_credentials() {
        for (url, shown) in [
            ("s3://id:secret@b/p@q", "s3://***@b/p@q"),
            ("file://u@h:p@host/x", "file://***@host/x"),
            ("file:///a@b", "file:///a@b"),
            ("s3://b", "s3://b"),
            ("x", "x"),
        ] {
            assert_eq!(without_credentials(url), shown);
            assert_eq!(location(url), shown);
        }
        let url = "s3://b/p?proxy=http%3A%2F%2Fada%3Asecret%40proxy%3A3128&region=eu-west-1";
        assert_eq!(location(url), "s3://b/p");
        let error = parse_directory("s3://id:secret@b/p").expect_err("another scheme");
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn file_urls_name_absolute_directories_of_this_host() {
        for (url, path) in [
            ("file:///mnt/share/backups", "/mnt/share/backups"),
            ("file:///mnt/a%20b", "/mnt/a b"),
            ("file:///mnt/a b", "/mnt/a b"),
            ("file:///mnt/a%09%5C%20", "/mnt/a\t\\ "),
            ("file://localhost/mnt", "/mnt"),
            ("FILE:///mnt", "/mnt"),
            ("file:///", "/"),
        ] {
            assert_eq!(parse_directory(url).expect(url), Path::new(path));
        }
        for url in [
            "",
            "/mnt/share",
            "mnt",
            "file:mnt",
            "file://host/mnt",
            "file:/mnt",
            "s3://bucket/p",
            "file:///mnt?x=1",
            "file:///mnt#x",
            "file:///a%00b",
            // Regression: these named another directory.
            "file:///mnt/a\tb",
            "file:///mnt/a\nb",
            "file:///mnt/a\\b",
            "file:///mnt/a ",
            " file:///mnt/a",
        ] {
            let error = parse_directory(url).expect_err(url).to_string();
            assert!(error.contains("file:///mnt/share/backups"), "{url}: {error}");
            assert!(!error.contains("base"), "{url}: {error}");
        }
    }
}
