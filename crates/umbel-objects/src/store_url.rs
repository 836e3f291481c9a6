//! URLs of object stores.

use std::path::PathBuf;
use std::sync::Arc;

use umbel_base::{Error, Result};
use umbel_env::{Env, Objects};
use url::Url;

use crate::directory_objects::DirectoryObjects;

/// Opens the object store that a URL names: `file:///DIRECTORY`, a directory of a mounted file
/// system.
///
/// # Errors
/// [`Error::Invalid`] if the URL names no store that this program knows; other errors if the store
/// cannot be opened.
pub fn open(env: &Env, url: &str) -> Result<Arc<dyn Objects>> {
    let directory = parse_directory(url)?;
    Ok(Arc::new(DirectoryObjects::open(env, &directory)?))
}

/// Returns the directory of a `file:` URL.
fn parse_directory(text: &str) -> Result<PathBuf> {
    let invalid = |reason: &str| {
        Err(Error::invalid(format!(
            "{text:?} is not the URL of an object store: {reason}; write for example \
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
