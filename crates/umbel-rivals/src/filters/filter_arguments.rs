//! Command line of `filters`.

use std::path::PathBuf;

/// Help text of `--help`.
pub const USAGE: &str = "\
filters [FLAGS]: the same keys and probes for the filters of several crates, in one run
  --small N           keys of filters that fit the caches (default 100000; 0 leaves them out)
  --num N             keys of filters that do not (default 30000000; 0 leaves them out); each
                      million takes 50 MB, and 20 more while a filter is built
  --rounds N          repetitions of probing (default 7)
  --build-rounds N    repetitions of building small filters (default 5); large ones are built once
                      unless --build-large is given
  --build-large N     repetitions of building large filters (default 1)
  --questions N       probes of a repetition to a large filter (default 2000000)
  --filters A,B       only those whose names contain one of these
  --out DIR           write filters-DATE-NUM.md and .json there
  --label TEXT        text in those names in place of NUM";

/// Options of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterArguments {
    /// Number of keys of small filters.
    pub small: u64,
    /// Number of keys of large filters.
    pub num: u64,
    /// Repetitions of probing.
    pub rounds: u64,
    /// Repetitions of building small filters.
    pub build_rounds: u64,
    /// Repetitions of building large ones.
    pub build_large: u64,
    /// Probes of a repetition to a large filter.
    pub questions: u64,
    /// Parts of names of the filters to run; empty for all.
    pub filters: Vec<String>,
    /// Folder of the reports.
    pub out: Option<PathBuf>,
    /// Text in the names of the reports.
    pub label: Option<String>,
}

impl FilterArguments {
    /// Parses the words of a command line.
    ///
    /// # Errors
    /// A sentence about the first word that is wrong.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<FilterArguments, String> {
        let mut arguments = FilterArguments {
            small: 100_000,
            num: 30_000_000,
            rounds: 7,
            build_rounds: 5,
            build_large: 1,
            questions: 2_000_000,
            filters: Vec::new(),
            out: None,
            label: None,
        };
        let mut words = words.into_iter();
        while let Some(flag) = words.next() {
            let value = words.next().ok_or(format!("{flag} needs a value, or is no flag"))?;
            arguments.set(&flag, value)?;
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
            "--small" => self.small = number(0, 1_000_000)?,
            "--num" => self.num = number(0, 1_000_000_000)?,
            "--rounds" => self.rounds = number(1, 1_000)?,
            "--build-rounds" => self.build_rounds = number(1, 1_000)?,
            "--build-large" => self.build_large = number(1, 100)?,
            "--questions" => self.questions = number(1, 100_000_000)?,
            "--filters" => self.filters = value.split(',').map(str::to_string).collect(),
            "--out" => self.out = Some(PathBuf::from(value)),
            "--label" => self.label = Some(value),
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
            |line: &str| FilterArguments::parse(line.split_whitespace().map(str::to_string));
        let arguments = parse("--num 1_000 --filters bloom,xorf --rounds 3").unwrap();
        assert_eq!((arguments.num, arguments.small, arguments.rounds), (1_000, 100_000, 3));
        assert_eq!(arguments.filters, ["bloom", "xorf"]);
        assert!(parse("--rounds 0").unwrap_err().contains("from 1 to 1000"));
        assert!(parse("--num few").unwrap_err().contains("--num"));
        assert!(parse("--speed 3").unwrap_err().contains("no flag `--speed`"));
        assert!(parse("--num").is_err());
    }
}
