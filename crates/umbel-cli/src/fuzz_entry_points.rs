//! Entry points of the fuzz targets: each parses any text and checks the invariants of the result.

use std::ffi::OsString;
use std::path::Path;

use crate::errors::CommandResult;
use crate::events::client::connection_string::{self, ConnectionString};
use crate::events::serve::serve_config::ServeConfig;

/// Password that the fuzzed code must not show.
const SECRET: &str = "qX7-never-shown";

/// Runs the entry point that the first byte selects.
pub fn texts(input: &[u8]) {
    let Some((first, text)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    match first {
        b'c' => connection_string(text),
        _ => serve_options(text),
    }
}

/// Parses a connection string; checks that it round-trips and that its password is not shown.
pub fn connection_string(text: &str) {
    connection_string::check(text);
    // With its flag, as it is printed.
    let parsed = ConnectionString::parse("--connect", text).map_err(|failure| failure.to_string());
    std::hint::black_box(parsed.is_ok());
}

/// Parses a config file, followed by variables `NAME=VALUE` after NUL bytes. Checks that the
/// printed configuration parses to the same options, and that no password is printed.
pub fn serve_options(input: &str) {
    let (text, variables) = input.split_once('\0').unwrap_or((input, ""));
    let variables = variables.split('\0').filter_map(|one| one.split_once('='));
    let secret = (OsString::from("UMBEL_OPS_PASSWORD"), OsString::from(SECRET));
    let is_other = |name: &str| name != "UMBEL_OPS_PASSWORD";
    let variables = variables
        .filter(|(name, _)| is_other(name))
        .map(|(name, value)| (name.into(), value.into()))
        .chain([secret]);
    match read(text, variables) {
        Ok((mut config, printed)) => {
            assert!(!printed.contains(SECRET), "{printed}");
            // Passwords are not printed.
            (config.admin_password, config.ops_password) = (None, None);
            let again = read(&printed, std::iter::empty());
            let (again, _) = again.unwrap_or_else(|failure| panic!("{failure}: {printed}"));
            assert_eq!(again, config, "{printed}");
        }
        Err(failure) => assert!(!failure.to_string().contains(SECRET), "{failure}"),
    }
}

fn read(
    text: &str,
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> CommandResult<(ServeConfig, String)> {
    let file = Some((Path::new("fuzzed.toml"), text));
    let (config, sources) = ServeConfig::read(file, variables, None)?;
    let printed = config.to_toml(&sources);
    Ok((config, printed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Characters with a meaning in one of the texts, and some others.
    const LETTERS: &[u8] = b"\0\n\r\t\"'\\=#:/@?&%+[]{}.,-_ $0129aAfFuU\x7f\xc3\xa9";
    /// Number of changes of each seed.
    const ROUNDS: usize = 2000;

    fn seeds() -> Vec<Vec<u8>> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/cli_input");
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect()
    }

    /// Checks the seeds of the fuzz target. Regression: a name in `db` with a control character was
    /// printed as invalid TOML.
    #[test]
    fn fuzz_seeds_hold_invariants() {
        for seed in seeds() {
            texts(&seed);
        }
        serve_options("db = \"a\\u007f\\n\\\"b\"\nNodePort = 7\n\0UMBEL_SYNC=yes");
    }

    /// Replaces, removes or inserts some characters of each seed, the same ones in every run.
    #[test]
    fn mutated_seeds_are_parsed_or_rejected() {
        let mut state = 1_u64;
        let mut below = |limit: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % limit
        };
        for seed in seeds() {
            for _ in 0..ROUNDS {
                let mut input = seed.clone();
                for _ in 0..=below(4) {
                    let (at, letter) = (below(input.len()), LETTERS[below(LETTERS.len())]);
                    match below(3) {
                        0 => input.insert(at, letter),
                        1 if input.len() > 1 => drop(input.remove(at)),
                        _ => input[at] = letter,
                    }
                }
                texts(&input);
            }
        }
    }
}
