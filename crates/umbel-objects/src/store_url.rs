//! URLs of object stores.

use std::path::PathBuf;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Env, Objects};
use url::Url;

use crate::directory_objects::DirectoryObjects;
#[cfg(feature = "s3")]
use crate::s3::{S3Objects, S3Options};

/// Opens the object store that a URL names: `file:///DIRECTORY`, a directory of a mounted file
/// system, or with the feature `s3` a bucket, `s3://BUCKET/PREFIX`.
///
/// # Errors
/// [`Error::Invalid`] if the URL names no store that this program knows; other errors if the store
/// cannot be opened.
pub fn open(env: &Env, url: &str) -> Result<Arc<dyn Objects>> {
    #[cfg(feature = "s3")]
    if url.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("s3://")) {
        let (bucket, prefix) = parse_bucket(url)?;
        let options = S3Options { bucket, prefix, ..S3Options::default() };
        return Ok(Arc::new(S3Objects::open(&options)?));
    }
    let directory = parse_directory(url)?;
    Ok(Arc::new(DirectoryObjects::open(env, &directory)?))
}

/// Returns the bucket and the prefix of an `s3:` URL.
#[cfg(feature = "s3")]
fn parse_bucket(text: &str) -> Result<(String, String)> {
    let (bucket, prefix) = text[5..].split_once('/').unwrap_or((&text[5..], ""));
    if bucket.is_empty() || bucket.contains(['@', ':', '?', '#']) {
        return Err(Error::invalid(format!(
            "{:?} is not the URL of a bucket; write s3://BUCKET/PREFIX, and credentials and the \
             endpoint in the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL)",
            without_credentials(text)
        )));
    }
    Ok((bucket.to_owned(), prefix.trim_matches('/').to_owned()))
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
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(error) => return invalid(&error.to_string()),
    };
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

    #[cfg(feature = "s3")]
    #[test]
    fn bucket_urls_have_a_bucket_and_a_prefix() {
        for (url, bucket, prefix) in
            [("s3://b", "b", ""), ("s3://b/", "b", ""), ("S3://my.b-1/a/b/", "my.b-1", "a/b")]
        {
            let parsed = parse_bucket(url).expect(url);
            assert_eq!((parsed.0.as_str(), parsed.1.as_str()), (bucket, prefix));
        }
        let store = open(&Env::system(), "s3://b/a").expect("no request is sent");
        assert_eq!(store.location(), "s3://b/a");
        for url in ["s3://", "s3:///p", "s3://user:secret@b/p", "s3://b?x=1"] {
            let error = parse_bucket(url).expect_err(url).to_string();
            assert!(error.contains("s3://BUCKET/PREFIX") && !error.contains("secret"), "{error}");
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
        }
        let error = parse_directory("s3://id:secret@b/p").expect_err("another scheme");
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[test]
    fn file_urls_name_absolute_directories_of_this_host() {
        for (url, path) in [
            ("file:///mnt/share/backups", "/mnt/share/backups"),
            ("file:///mnt/a%20b", "/mnt/a b"),
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
        ] {
            let error = parse_directory(url).expect_err(url).to_string();
            assert!(error.contains("file:///mnt/share/backups"), "{url}: {error}");
        }
    }
}
