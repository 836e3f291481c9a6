//! Command line of `umbel-rivals`.

use std::path::PathBuf;

use clap::{ArgAction, Parser};
use umbel_keygen::keys::KeyShape;
use umbel_lab::engine::EngineSettings;

use crate::whole_number::whole_number;

/// Shapes of keys. The alias makes clap treat the list as one value.
type KeyShapes = Vec<KeyShape>;

/// Compare key-value engines: the same work for each, in one run
///
/// `umbel-rivals lab ...` runs the experiments of `umbel lab`, with --engine NAME or --engine all.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "umbel-rivals", max_term_width = 100)]
pub struct KvArguments {
    /// Use 1000000 random keys and few rounds, for some minutes; other flags change that
    #[arg(long)]
    pub quick: bool,
    /// Number of keys
    #[arg(long, value_name = "N", default_value = "1000000",
        value_parser = whole_number::<u64>(1, 1_000_000_000))]
    pub num: u64,
    /// Engines of umbel, lmdb, rocksdb, leveldb, pebble, fjall, redb, sled, surrealkv and none,
    /// which measures the harness alone [default: all that are built in]
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub engines: Vec<String>,
    /// Shapes of keys, with a run for each: random, decimal, path, url, category-id, or all
    #[arg(long = "shape", value_name = "A,B", default_value = "random",
        value_parser = parse_shapes)]
    pub shapes: KeyShapes,
    /// Repetitions of reading, opening and synced puts
    #[arg(long, value_name = "N", default_value = "5", default_value_if("quick", "true", "3"),
        value_parser = whole_number::<u64>(1, 1000))]
    pub rounds: u64,
    /// Repetitions of filling [default: 3, and 1 from 5000000 keys on]
    #[arg(long, value_name = "N", default_value = "0", default_value_if("quick", "true", "1"),
        hide_default_value = true, value_parser = whole_number::<u64>(0, i64::MAX))]
    pub fill_rounds: u64,
    /// Repetitions of reading beside a writer
    #[arg(long = "beside-rounds", value_name = "N", default_value = "3",
        default_value_if("quick", "true", "1"), value_parser = whole_number::<u64>(0, i64::MAX))]
    pub concurrent_rounds: u64,
    /// Point reads of a repetition, at most --num
    #[arg(long, value_name = "N", default_value = "500000",
        default_value_if("quick", "true", "200000"),
        value_parser = whole_number::<u64>(0, i64::MAX))]
    pub reads: u64,
    /// Reads of a repetition beside a writer [default: twice --reads]
    #[arg(long = "beside-reads", value_name = "N", default_value = "0",
        default_value_if("quick", "true", "300000"), hide_default_value = true,
        value_parser = whole_number::<u64>(0, i64::MAX))]
    pub concurrent_reads: u64,
    /// Synced puts of a repetition
    #[arg(long, value_name = "N", default_value = "2000",
        default_value_if("quick", "true", "500"), value_parser = whole_number::<u64>(0, i64::MAX))]
    pub synced: u64,
    /// Bytes of a value
    #[arg(long, value_name = "N", default_value = "100",
        value_parser = whole_number::<usize>(0, 1 << 20))]
    pub value: usize,
    /// Bytes of a key; paths, URLs and stream ids have their own length
    #[arg(long, value_name = "N", default_value = "16",
        value_parser = whole_number::<usize>(0, i64::MAX))]
    pub key: usize,
    /// MiB of the cache of each engine that has one
    #[arg(long, value_name = "N", default_value = "2048",
        value_parser = whole_number::<u64>(1, 1 << 20))]
    pub cache_mib: u64,
    /// Bits per key of filters, 0 or -1 for none, for umbel, rocksdb, leveldb, pebble and fjall
    #[arg(long, value_name = "N", default_value_t = EngineSettings::default().bloom_bits,
        value_parser = whole_number::<i32>(-1, 100), allow_negative_numbers = true)]
    pub bloom_bits: i32,
    /// MiB of a memtable, for the same engines and surrealkv
    #[arg(long, value_name = "N", default_value_t = EngineSettings::default().memtable_bytes >> 20,
        value_parser = whole_number::<u64>(1, 1 << 11))]
    pub memtable_mib: u64,
    /// Before reading, overwrite 10 %, delete 5 % and hold a snapshot: yes or no
    #[arg(long = "lived-in", value_name = "yes|no", default_value = "yes",
        action = ArgAction::Set, value_parser = parse_yes_or_no)]
    pub aged: bool,
    /// Fill and read once more, each engine in its own process: yes or no
    #[arg(long, value_name = "yes|no", default_value = "yes",
        default_value_if("quick", "true", "no"), action = ArgAction::Set,
        value_parser = parse_yes_or_no)]
    pub memory: bool,
    /// Engine and part of the work whose memory this process is to measure, instead of a whole run
    #[arg(long, hide = true)]
    pub memory_of: Option<String>,
    /// Compact everything into one level before reading
    #[arg(long)]
    pub compact: bool,
    /// Begin no further repetition after this many seconds
    #[arg(long, value_name = "N", value_parser = whole_number::<u64>(0, i64::MAX))]
    pub seconds_limit: Option<u64>,
    /// Directory of the stores
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub stores: PathBuf,
    /// Directory of the reports rivals-DATE-NUM.md and .json
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Text in the names of the reports in place of NUM
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
}

impl KvArguments {
    /// Parses the words of a command line, without the name of the program.
    ///
    /// # Errors
    /// The help, or a message about the first word that is wrong.
    pub fn parse_words(
        words: impl IntoIterator<Item = String>,
    ) -> Result<KvArguments, clap::Error> {
        let name = std::iter::once("umbel-rivals".to_string());
        let mut arguments = KvArguments::try_parse_from(name.chain(words))?;
        // With fewer keys a deleted key may have no neighbor to take its place.
        arguments.aged &= arguments.num >= 20;
        arguments.reads = arguments.reads.clamp(1, arguments.num);
        if arguments.concurrent_reads == 0 {
            arguments.concurrent_reads = 2 * arguments.reads;
        }
        if arguments.fill_rounds == 0 {
            arguments.fill_rounds = if arguments.num >= 5_000_000 { 1 } else { 3 };
        }
        Ok(arguments)
    }

    /// Returns the settings for every engine; an engine ignores settings that it does not have.
    pub fn settings(&self) -> EngineSettings {
        EngineSettings {
            cache_bytes: self.cache_mib << 20,
            bloom_bits: self.bloom_bits,
            memtable_bytes: self.memtable_mib << 20,
            ..EngineSettings::default()
        }
    }
}

fn parse_yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("must be yes or no".to_string()),
    }
}

fn parse_shapes(names: &str) -> Result<KeyShapes, String> {
    if names == "all" {
        return Ok(KeyShape::ALL.to_vec());
    }
    let known = || KeyShape::ALL.map(|shape| shape.to_string()).join(", ");
    let parse = |name: &str| {
        KeyShape::parse(name)
            .ok_or_else(|| format!("must be all or some of {}, not `{name}`", known()))
    };
    names.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<KvArguments, String> {
        let parsed = KvArguments::parse_words(line.split_whitespace().map(str::to_string));
        parsed.map_err(|error| error.to_string())
    }

    #[test]
    fn flags_are_parsed() {
        let arguments = parse("--num 10_000 --engines umbel,lmdb --shape path").unwrap();
        assert_eq!((arguments.num, arguments.reads, arguments.fill_rounds), (10_000, 10_000, 3));
        assert_eq!(arguments.engines, ["umbel", "lmdb"]);
        assert_eq!(arguments.shapes, [KeyShape::Path]);
        assert_eq!(parse("--num 10000000").unwrap().fill_rounds, 1);
        assert_eq!(parse("--shape all").unwrap().shapes, KeyShape::ALL);
        assert_eq!(parse("--shape url,random").unwrap().shapes, [KeyShape::Url, KeyShape::Random]);
        assert!(!parse("--lived-in no").unwrap().aged);
        let settings =
            parse("--bloom-bits -1 --memtable-mib 64 --cache-mib 10").unwrap().settings();
        assert_eq!(
            (settings.bloom_bits, settings.memtable_bytes, settings.cache_bytes),
            (-1, 64 << 20, 10 << 20)
        );
        assert_eq!(parse("").unwrap().settings().bloom_bits, 10);
    }

    #[test]
    fn flags_override_quick() {
        let arguments = parse("--rounds 4 --quick --reads 1000").unwrap();
        assert_eq!((arguments.rounds, arguments.reads, arguments.synced), (4, 1000, 500));
        assert!(!arguments.memory);
    }

    #[test]
    fn wrong_flags_are_reported() {
        assert!(parse("--num many").unwrap_err().contains("--num <N>': must be a whole number"));
        assert!(parse("--shape round").unwrap_err().contains("--shape"));
        assert!(parse("--speed 3").unwrap_err().contains("unexpected argument '--speed'"));
        assert!(parse("--rounds 0").unwrap_err().contains("--rounds"));
        assert!(parse("--bloom-bits -2").unwrap_err().contains("-1 to 100"));
        assert!(
            parse("--bloom-bits few").unwrap_err().contains("--bloom-bits <N>': must be a whole")
        );
        assert!(parse("--memtable-mib 0").unwrap_err().contains("--memtable-mib"));
        assert!(parse("--memory perhaps").unwrap_err().contains("yes or no"));
        assert!(parse("--num").is_err());
    }
}
