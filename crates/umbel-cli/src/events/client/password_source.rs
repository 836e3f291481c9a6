//! Sources of passwords: a file, standard input, the environment, or a prompt without echo. No
//! password is an argument, because other users of a machine can see arguments.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use console::Term;

use crate::errors::{CommandError, CommandResult};

/// Environment variable with the new password of a user.
const NEW_PASSWORD_VARIABLE: &str = "UMBEL_NEW_PASSWORD";
/// Maximum length of a file with a password.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Source of a user's new password.
#[derive(Debug, Args)]
pub struct NewPasswordArgs {
    /// File whose first line is the new password; `-` is standard input [default: the variable
    /// UMBEL_NEW_PASSWORD, or a prompt without echo]
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
}

impl NewPasswordArgs {
    /// Reads the new password of a user.
    ///
    /// # Errors
    /// No source has a password, the password is empty, or its repetition differs.
    pub fn read(&self, login: &str) -> CommandResult<String> {
        if let Some(path) = &self.password_file {
            return read_file(path);
        }
        match std::env::var(NEW_PASSWORD_VARIABLE) {
            Ok(password) if !password.is_empty() => return Ok(password),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(CommandError::usage(format!("{NEW_PASSWORD_VARIABLE} is not UTF-8")));
            }
            _ => {}
        }
        let login = login.escape_default();
        let missing = || {
            CommandError::usage(format!(
                "no new password for {login}: name a file with --password-file FILE, set \
                 {NEW_PASSWORD_VARIABLE}, or run the command on a terminal"
            ))
        };
        let password = prompt(&format!("new password of {login}")).ok_or_else(missing)?;
        let again = prompt("the same password again").ok_or_else(missing)?;
        match password == again {
            true => check_not_empty(password, "the new password"),
            false => Err(CommandError::usage("the passwords differ; nothing was changed")),
        }
    }
}

/// Prompts for a password on the terminal, without echo; `None` without a terminal.
pub fn prompt(what: &str) -> Option<String> {
    let terminal = Term::stderr();
    if !terminal.is_term() {
        return None;
    }
    terminal.write_str(&format!("{what}: ")).ok()?;
    terminal.read_secure_line().ok()
}

/// Reads the first line of a file, without its line break.
fn read_file(path: &Path) -> CommandResult<String> {
    let is_stdin = path == Path::new("-");
    let name = if is_stdin { Path::new("standard input") } else { path };
    let failed = |error| CommandError::system("read", name, &error);
    let mut bytes = Vec::new();
    let read = match is_stdin {
        true => std::io::stdin().lock().take(FILE_BYTES_MAX).read_to_end(&mut bytes),
        false => std::fs::File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)),
    };
    read.map_err(failed)?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let not_text = |_| CommandError::usage(format!("{} is not UTF-8", name.display()));
    let password = String::from_utf8(line.to_vec()).map_err(not_text)?;
    check_not_empty(password, &format!("the first line of {}", name.display()))
}

fn check_not_empty(password: String, what: &str) -> CommandResult<String> {
    match password.is_empty() {
        true => Err(CommandError::usage(format!("{what} is empty, but must be a password"))),
        false => Ok(password),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_of_a_file_is_the_password() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        for (bytes, password) in [
            (&b"secret"[..], "secret"),
            (b"secret\n", "secret"),
            (b"two words\r\nmore\n", "two words"),
            (" spaces stay \u{e9} ".as_bytes(), " spaces stay \u{e9} "),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read_file(&path).unwrap(), password);
        }
        for bytes in [&b""[..], b"\nsecret", b"\xff"] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(read_file(&path).expect_err("no password").exit_code(), 2);
        }
        assert_eq!(read_file(&directory.path().join("none")).expect_err("missing").exit_code(), 4);
    }
}
