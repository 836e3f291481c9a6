//! Words of commands and paths in messages, which an operator can paste into a shell.

use std::borrow::Cow;
use std::path::Path;

/// Scheme of URLs of directories.
const FILE_SCHEME: &str = "file://";

/// Returns the word as a POSIX shell reads it back: in quotes where it needs them.
///
/// ```
/// assert_eq!(umbel_base::shell_word::quote("/mnt/my share"), "'/mnt/my share'");
/// ```
pub fn quote(word: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:@%+,=".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.into(),
        false => format!("'{}'", word.replace('\'', r"'\''")).into(),
    }
}

/// Returns a path as a word that no program reads as an option, without quotes.
pub fn path_word(path: &Path) -> Cow<'_, str> {
    match path.to_string_lossy() {
        text if text.starts_with('-') => format!("./{text}").into(),
        text => text,
    }
}

/// Returns a path as a word for a shell.
pub fn quote_path(path: &Path) -> String {
    quote(&path_word(path)).into_owned()
}

/// Returns the URL of an absolute directory. It needs no quotes.
pub fn directory_url(path: &Path) -> String {
    let mut url = String::from(FILE_SCHEME);
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte.is_ascii_alphanumeric() || b"-_./".contains(byte) {
            true => url.push(char::from(*byte)),
            false => url.push_str(&format!("%{byte:02X}")),
        }
    }
    url
}

/// Returns the path of the URL of a directory, without its percent-encoding; `None` for another
/// URL.
pub fn directory_of_url(url: &str) -> Option<String> {
    let mut rest = url.strip_prefix(FILE_SCHEME)?.as_bytes();
    let mut path = Vec::with_capacity(rest.len());
    while let Some((first, after)) = rest.split_first() {
        let is_code = |digits: &&[u8]| *first == b'%' && digits.iter().all(u8::is_ascii_hexdigit);
        let digits = after.get(..2).filter(is_code);
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[2..];
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    Some(String::from_utf8_lossy(&path).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_change_them() {
        for (word, shown) in [
            ("/mnt/a-b_c.d", "/mnt/a-b_c.d"),
            ("s3://b/p", "s3://b/p"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$$a", "'$$a'"),
            ("s3://b/p?region=x&y=z", "'s3://b/p?region=x&y=z'"),
        ] {
            assert_eq!(quote(word), shown);
        }
        assert_eq!(quote_path(Path::new("-a b")), "'./-a b'");
    }

    #[test]
    fn urls_of_directories_are_decoded_and_encoded() {
        for (path, url) in [
            ("/mnt/share", "file:///mnt/share"),
            ("/mnt/my share", "file:///mnt/my%20share"),
            ("/mnt/50%/ü?#'", "file:///mnt/50%25/%C3%BC%3F%23%27"),
        ] {
            assert_eq!(directory_url(Path::new(path)), url);
            assert_eq!(directory_of_url(url).as_deref(), Some(path));
        }
        assert_eq!(directory_of_url("file:///a%2").as_deref(), Some("/a%2"));
        assert_eq!(directory_of_url("file:///a%+f%").as_deref(), Some("/a%+f%"));
        assert_eq!(directory_of_url("s3://b/p"), None);
    }
}
