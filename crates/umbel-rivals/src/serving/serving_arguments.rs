//! Command line of `serving`.

use std::path::PathBuf;

/// Minimum of the events a second of a soak: batches make up what single appends leave.
pub const RATE_MIN: u64 = 500;

/// Help text of `--help`.
pub const USAGE: &str = "\
serving --umbel PATH [FLAGS]: `umbel serve` beside a bare tonic server, in one run
  --umbel PATH        the binary; built with `cargo build --release`
  --seconds N         how long each piece of work takes in each round (default 2)
  --rounds N          repetitions (default 5)
  --work A,B          only work whose name contains one of these
  --subscribers N     live subscriptions (default 1000)
  --dir DIR           where the stores are kept while it runs (default: the system's folder for
                      temporary files); they are removed
  --soak MINUTES      instead: all client calls against umbel alone for this time, with every
                      answer, memory and descriptors checked; exits with 1 if these grow or an
                      answer is wrong; the report is soak-DATE.md and .json
  --rate N            events a second of the soak (default 3000)
  --out DIR           write serving-DATE.md and .json there
  --label TEXT        text in those names after the date
  --bare              be the bare server: prints its address, ends with its input
  --sync FILE         with --bare: write and sync appends to this file";

/// Options of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServingArguments {
    /// The binary of Umbel.
    pub umbel: PathBuf,
    /// Seconds of each work in each round.
    pub seconds: u64,
    /// Repetitions.
    pub rounds: u64,
    /// Parts of names of the work to run; empty for all.
    pub work: Vec<String>,
    /// Number of live subscriptions.
    pub subscribers: usize,
    /// Folder of the stores.
    pub dir: PathBuf,
    /// Number of minutes of the soak, if there is one.
    pub soak: Option<u64>,
    /// Number of events a second that the soak appends.
    pub rate: u64,
    /// Folder of the reports.
    pub out: Option<PathBuf>,
    /// Text in the names of the reports.
    pub label: Option<String>,
    /// Whether to run as the bare server.
    pub bare: bool,
    /// File that the bare server writes appends to.
    pub sync: Option<PathBuf>,
}

impl Default for ServingArguments {
    fn default() -> ServingArguments {
        ServingArguments {
            umbel: PathBuf::new(),
            seconds: 2,
            rounds: 5,
            work: Vec::new(),
            subscribers: 1000,
            dir: std::env::temp_dir(),
            soak: None,
            rate: 3000,
            out: None,
            label: None,
            bare: false,
            sync: None,
        }
    }
}

impl ServingArguments {
    /// Parses the words of a command line.
    ///
    /// # Errors
    /// A sentence about the first word that is wrong.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<ServingArguments, String> {
        let mut arguments = ServingArguments::default();
        let mut words = words.into_iter();
        while let Some(flag) = words.next() {
            if flag == "--bare" {
                arguments.bare = true;
                continue;
            }
            let value = words.next().ok_or(format!("{flag} needs a value, or is no flag"))?;
            arguments.set(&flag, value)?;
        }
        if !arguments.bare && arguments.umbel.as_os_str().is_empty() {
            return Err("--umbel PATH is required; see --help".to_string());
        }
        Ok(arguments)
    }

    fn set(&mut self, flag: &str, value: String) -> Result<(), String> {
        let number = |least: u64, most: u64| -> Result<u64, String> {
            let wrong =
                || format!("{flag} is a whole number from {least} to {most}, not `{value}`");
            let number = value.replace('_', "").parse().map_err(|_| wrong())?;
            if (least..=most).contains(&number) { Ok(number) } else { Err(wrong()) }
        };
        match flag {
            "--umbel" => self.umbel = PathBuf::from(value),
            "--seconds" => self.seconds = number(1, 3_600)?,
            "--rounds" => self.rounds = number(1, 1_000)?,
            "--subscribers" => self.subscribers = number(1, 20_000)? as usize,
            "--soak" => self.soak = Some(number(1, 14_400)?),
            "--rate" => self.rate = number(RATE_MIN, 100_000)?,
            "--work" => self.work = value.split(',').map(str::to_string).collect(),
            "--dir" => self.dir = PathBuf::from(value),
            "--out" => self.out = Some(PathBuf::from(value)),
            "--label" => self.label = Some(value),
            "--sync" => self.sync = Some(PathBuf::from(value)),
            _ => return Err(format!("there is no flag `{flag}`; --help lists them")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_parsed_and_wrong_ones_are_reported() {
        let parse =
            |line: &str| ServingArguments::parse(line.split_whitespace().map(str::to_string));
        let arguments = parse("--umbel u --rounds 3 --work append,read").unwrap();
        assert_eq!((arguments.rounds, arguments.seconds, arguments.bare), (3, 2, false));
        assert_eq!(arguments.work, ["append", "read"]);
        assert!(parse("--bare").unwrap().bare);
        let soak = parse("--umbel u --soak 60 --rate 4_000").unwrap();
        assert_eq!((soak.soak, soak.rate), (Some(60), 4000));
        assert!(parse("--umbel u --rate 499").unwrap_err().contains("from 500 to"));
        assert!(parse("--rounds 3").unwrap_err().contains("--umbel"));
        assert!(parse("--umbel u --rounds 0").unwrap_err().contains("from 1 to 1000"));
        assert!(parse("--umbel u --speed 3").unwrap_err().contains("no flag `--speed`"));
        assert!(parse("--umbel").is_err());
    }
}
