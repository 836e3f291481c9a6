//! Command line of `filters`.

use std::path::PathBuf;

use clap::Parser;

use crate::whole_number::whole_number;

/// Compare the filters of several crates: the same keys and probes, in one run
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "filters", max_term_width = 100)]
pub struct FilterArguments {
    /// Keys of filters that fit the caches; 0 leaves these filters out
    #[arg(long, value_name = "N", default_value = "100000",
        value_parser = whole_number::<u64>(0, 1_000_000))]
    pub small: u64,
    /// Keys of filters that do not fit the caches; 0 leaves these filters out. Each million takes
    /// 50 MB, and 20 MB more while a filter is built
    #[arg(long, value_name = "N", default_value = "30000000",
        value_parser = whole_number::<u64>(0, 1_000_000_000))]
    pub num: u64,
    /// Repetitions of probing
    #[arg(long, value_name = "N", default_value = "7",
        value_parser = whole_number::<u64>(1, 1_000))]
    pub rounds: u64,
    /// Repetitions of building small filters
    #[arg(long, value_name = "N", default_value = "5",
        value_parser = whole_number::<u64>(1, 1_000))]
    pub build_rounds: u64,
    /// Repetitions of building large filters
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number::<u64>(1, 100))]
    pub build_large: u64,
    /// Probes of a repetition to a large filter
    #[arg(long, value_name = "N", default_value = "2000000",
        value_parser = whole_number::<u64>(1, 100_000_000))]
    pub questions: u64,
    /// Only filters whose names contain one of these
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub filters: Vec<String>,
    /// Directory of the reports filters-DATE-NUM.md and .json
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Text in the names of the reports in place of NUM
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_parsed_and_wrong_ones_are_reported() {
        let parse = |line: &str| {
            let words = std::iter::once("filters").chain(line.split_whitespace());
            FilterArguments::try_parse_from(words).map_err(|error| error.to_string())
        };
        let arguments = parse("--num 1_000 --filters bloom,xorf --rounds 3").unwrap();
        assert_eq!((arguments.num, arguments.small, arguments.rounds), (1_000, 100_000, 3));
        assert_eq!(arguments.filters, ["bloom", "xorf"]);
        assert!(parse("--rounds 0").unwrap_err().contains("from 1 to 1000"));
        assert!(parse("--num few").unwrap_err().contains("--num"));
        assert!(parse("--speed 3").unwrap_err().contains("unexpected argument '--speed'"));
        assert!(parse("--num").is_err());
    }
}
