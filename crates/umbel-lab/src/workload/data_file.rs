//! `--data FILE`: the user's own keys and queries.
//!
//! FORMAT: a text file of lines. `put<tab>KEY` puts a value of 100 bytes, and
//! `put<tab>KEY<tab>BYTES` a value of that many bytes. `get<tab>KEY` looks up a key. All puts come
//! before the first get. Words are separated by one tab; a key is all bytes between its tabs or the
//! line's end. Empty lines and lines that begin with `#` are ignored.

use std::collections::HashSet;
use std::path::Path;

use umbel_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};
use umbel_env::{Access, Env, check_path};

/// Default number of bytes of a value.
const VALUE_BYTES: usize = 100;
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// A key that is put, and the bytes of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: Vec<u8>,
    /// Bytes of its value.
    pub value_bytes: usize,
}

/// The user's own keys and queries, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UserData {
    /// Name of the file.
    pub name: String,
    /// XXH3-64 of its bytes.
    pub digest: u64,
    /// The puts.
    pub puts: Vec<Put>,
    /// Keys to look up.
    pub gets: Vec<Vec<u8>>,
    /// Keys to look up that were never put.
    pub missing: Vec<Vec<u8>>,
}

impl UserData {
    /// Reads a file.
    ///
    /// # Errors
    /// A sentence that names the file and, for a wrong line, the line.
    pub fn read(env: &Env, path: &Path) -> Result<UserData, String> {
        check_path("the data", path).map_err(|error| error.to_string())?;
        let name = path.display().to_string();
        let refused = |error| format!("could not read {name}: {error}");
        let file = env.files.open(path, Access::Read).map_err(refused)?;
        let bytes = file.len().map_err(refused)?;
        if bytes > FILE_BYTES_MAX {
            return Err(format!("{name} has {bytes} bytes; a file of data may have 4 GiB"));
        }
        let mut text = vec![0; bytes as usize];
        file.read_exact_at(&mut text, 0).map_err(refused)?;
        UserData::parse(&name, &text)
    }

    /// Parses the lines.
    ///
    /// # Errors
    /// A sentence that names the line.
    pub fn parse(name: &str, text: &[u8]) -> Result<UserData, String> {
        let digest = xxhash_rust::xxh3::xxh3_64(text);
        let mut data = UserData { name: name.to_string(), digest, ..UserData::default() };
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() && !line.starts_with(b"#") {
                data.take(line).map_err(|reason| format!("{name}, line {number}: {reason}"))?;
            }
        }
        if data.puts.is_empty() || data.gets.is_empty() {
            let (puts, gets) = (data.puts.len(), data.gets.len());
            return Err(format!(
                "{name} has {puts} lines with `put` and {gets} with `get`, but must have at least \
                 one of each: `put<tab>KEY` puts a key, `get<tab>KEY` looks one up"
            ));
        }
        let there: HashSet<&[u8]> = data.puts.iter().map(|put| put.key.as_slice()).collect();
        let missing = data.gets.iter().filter(|key| !there.contains(key.as_slice()));
        data.missing = missing.cloned().collect();
        Ok(data)
    }

    /// Returns the bytes of all keys and values that are put.
    pub fn bytes(&self) -> u64 {
        self.puts.iter().map(|put| (put.key.len() + put.value_bytes) as u64).sum()
    }

    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
        let key_of = |key: &[u8]| match key.len() {
            0 => Err("the key is empty".to_string()),
            bytes if bytes > KEY_BYTES_MAX => {
                Err(format!("the key has {bytes} bytes, but may have {KEY_BYTES_MAX}"))
            }
            _ => Ok(key.to_vec()),
        };
        match words.as_slice() {
            [b"get", key] => self.gets.push(key_of(key)?),
            [b"put", key] => {
                self.puts.push(Put { key: key_of(key)?, value_bytes: VALUE_BYTES });
            }
            [b"put", key, bytes] => {
                let text = String::from_utf8_lossy(bytes);
                let value_bytes: usize = text
                    .parse()
                    .map_err(|_| format!("`{}` is no number of bytes", text.escape_debug()))?;
                if value_bytes > VALUE_BYTES_MAX {
                    return Err(format!(
                        "a value of {value_bytes} bytes, but one may have {VALUE_BYTES_MAX}"
                    ));
                }
                self.puts.push(Put { key: key_of(key)?, value_bytes });
            }
            [first, ..] => {
                let output = String::from_utf8_lossy(&first[..first.len().min(40)]);
                return Err(format!(
                    "`{}` is neither `put<tab>KEY`, `put<tab>KEY<tab>BYTES` nor `get<tab>KEY`",
                    output.escape_debug()
                ));
            }
            [] => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_puts_and_gets() {
        let data = UserData::parse("f", b"# mine\nput\ta b\r\nput\tc\t7\n\nget\tc\nget\td\n");
        let data = data.expect("good lines");
        assert_eq!(data.puts[0], Put { key: b"a b".to_vec(), value_bytes: 100 });
        assert_eq!(data.puts[1], Put { key: b"c".to_vec(), value_bytes: 7 });
        assert_eq!((data.gets.len(), data.missing), (2, vec![b"d".to_vec()]));
    }

    #[test]
    fn one_bad_line_is_named() {
        for (line, reason) in [
            ("puts\tk", "neither `put<tab>KEY`"),
            ("put k", "neither"),
            ("put\tk\tmany", "`many` is no number"),
            ("put\tk\t-1", "no number"),
            ("put\tk\t99999999999", "but one may have"),
            ("get\t", "the key is empty"),
            ("get\tk\t1", "neither"),
            ("\x1b[31mred", "\\u{1b}[31mred"),
        ] {
            let text = format!("put\ta\nget\ta\n{line}\nget\tb\n");
            let error = UserData::parse("f", text.as_bytes()).expect_err("a bad line");
            assert!(error.starts_with("f, line 3: ") && error.contains(reason), "{error}");
        }
        let long = [b"get\t".as_slice(), &vec![b'k'; KEY_BYTES_MAX + 1]].concat();
        assert!(UserData::parse("f", &long).expect_err("too long").contains("may have"));
        assert!(UserData::parse("f", b"get\ta\n").expect_err("no put").contains("0 lines"));
    }
}
