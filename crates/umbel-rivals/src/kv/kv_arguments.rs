//! Command line of `umbel-rivals`.

use std::path::PathBuf;

use umbel_lab::engine::EngineSettings;
use umbel_lab::workload::keys::KeyShape;

/// Help text of `--help`.
pub const USAGE: &str = "\
umbel-rivals lab ...: the experiments of `umbel lab`, with --engine NAME or --engine all
umbel-rivals [FLAGS]: the same work for several key-value engines, in one run
  --quick             1000000 random keys, few rounds: some minutes; other flags change that
  --num N             keys (default 1000000)
  --engines A,B       of umbel, lmdb, rocksdb, leveldb, pebble, fjall, redb, sled, surrealkv and
                      none, which measures the harness alone (default: all that are built in)
  --shape A,B         of random, decimal, path, url, category-id, or all (default random)
  --rounds N          repetitions of reading, opening and synced puts (default 5)
  --fill-rounds N     repetitions of filling (default 3, 1 from 5000000 keys on)
  --beside-rounds N   repetitions of reading beside a writer (default 3)
  --reads N           point reads of a repetition (default 500000, at most --num)
  --beside-reads N    reads of a repetition beside a writer (default twice --reads)
  --synced N          synced puts of a repetition (default 2000)
  --value N           bytes of a value (default 100)
  --key N             bytes of a key (default 16; paths, addresses and streams have their own)
  --cache-mib N       cache of each engine that has one (default 2048)
  --bloom-bits N      bits per key of filters, 0 or -1 for none (default 10), and
  --memtable-mib N    bytes of a memtable (default 128), for engines with that option: umbel,
                      rocksdb, leveldb, pebble and fjall both, surrealkv memtables only
  --lived-in yes|no   before reading: overwrite 10 %, delete 5 %, hold a snapshot (default yes)
  --memory yes|no     fill and read once more, each engine in its own process (default yes)
  --compact           compact everything into one level before reading
  --seconds-limit N   begin no further repetition after this many seconds
  --stores DIR        where the stores are made (default: the folder for temporary files)
  --out DIR           write rivals-DATE-NUM.md and .json there
  --label TEXT        text in those names in place of NUM";

/// Options of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvArguments {
    /// Number of keys.
    pub num: u64,
    /// Names of engines; empty for all.
    pub engines: Vec<String>,
    /// Shapes of keys, with one run for each.
    pub shapes: Vec<KeyShape>,
    /// Repetitions of reading, opening and synced puts.
    pub rounds: u64,
    /// Repetitions of filling.
    pub fill_rounds: u64,
    /// Repetitions of reading next to a writer.
    pub concurrent_rounds: u64,
    /// Point reads of a repetition.
    pub reads: u64,
    /// Reads of a repetition next to a writer.
    pub concurrent_reads: u64,
    /// Synced puts of a repetition.
    pub synced: u64,
    /// Bytes of a value.
    pub value: usize,
    /// Bytes of a key.
    pub key: usize,
    /// Mebibytes of each engine's block cache.
    pub cache_mib: u64,
    /// Bits per key of filters, for engines with that option; 0 and less for no filters.
    pub bloom_bits: i32,
    /// Mebibytes of a memtable, for engines with that option.
    pub memtable_mib: u64,
    /// Whether stores are aged by overwrites and deletes before they are read.
    pub aged: bool,
    /// Whether memory is measured.
    pub memory: bool,
    /// Engine and part of the work, if this process is to measure only their memory.
    pub memory_of: Option<String>,
    /// Whether to compact before the reads.
    pub compact: bool,
    /// Number of seconds after which no further repetition begins.
    pub seconds_limit: Option<u64>,
    /// Folder of the stores.
    pub stores: PathBuf,
    /// Folder of the reports.
    pub out: Option<PathBuf>,
    /// Text in the names of the reports.
    pub label: Option<String>,
}

impl KvArguments {
    fn with_defaults() -> KvArguments {
        KvArguments {
            num: 1_000_000,
            engines: Vec::new(),
            shapes: vec![KeyShape::Random],
            rounds: 5,
            fill_rounds: 0,
            concurrent_rounds: 3,
            reads: 500_000,
            concurrent_reads: 0,
            synced: 2000,
            value: 100,
            key: 16,
            cache_mib: 2048,
            bloom_bits: EngineSettings::default().bloom_bits,
            memtable_mib: EngineSettings::default().memtable_bytes >> 20,
            aged: true,
            memory: true,
            memory_of: None,
            compact: false,
            seconds_limit: None,
            stores: std::env::temp_dir(),
            out: None,
            label: None,
        }
    }

    /// Returns the settings for every engine, as far as it accepts them.
    pub fn settings(&self) -> EngineSettings {
        EngineSettings {
            cache_bytes: self.cache_mib << 20,
            bloom_bits: self.bloom_bits,
            memtable_bytes: self.memtable_mib << 20,
            ..EngineSettings::default()
        }
    }

    fn with_quick_defaults() -> KvArguments {
        KvArguments {
            rounds: 3,
            fill_rounds: 1,
            concurrent_rounds: 1,
            reads: 200_000,
            concurrent_reads: 300_000,
            synced: 500,
            memory: false,
            ..KvArguments::with_defaults()
        }
    }

    /// Parses the words of a command line.
    ///
    /// # Errors
    /// A sentence about the first word that is wrong.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<KvArguments, String> {
        let words: Vec<String> = words.into_iter().collect();
        let quick = words.iter().any(|word| word == "--quick");
        let mut arguments =
            if quick { KvArguments::with_quick_defaults() } else { KvArguments::with_defaults() };
        let mut words = words.into_iter().filter(|word| word != "--quick");
        while let Some(flag) = words.next() {
            if flag == "--compact" {
                arguments.compact = true;
                continue;
            }
            let value = words.next().ok_or(format!("{flag} needs a value, or is no flag"))?;
            arguments.set(&flag, value)?;
        }
        arguments.complete()
    }

    fn set(&mut self, flag: &str, value: String) -> Result<(), String> {
        let number = || -> Result<u64, String> {
            let number = value.replace('_', "").parse();
            number.map_err(|_| format!("{flag} needs a whole number, not `{value}`"))
        };
        let yes = || match value.as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(format!("{flag} is yes or no, not `{value}`")),
        };
        match flag {
            "--num" => self.num = number()?,
            "--engines" => self.engines = value.split(',').map(str::to_string).collect(),
            "--rounds" => self.rounds = number()?,
            "--fill-rounds" => self.fill_rounds = number()?,
            "--beside-rounds" => self.concurrent_rounds = number()?,
            "--reads" => self.reads = number()?,
            "--beside-reads" => self.concurrent_reads = number()?,
            "--synced" => self.synced = number()?,
            "--value" => self.value = number()? as usize,
            "--key" => self.key = number()? as usize,
            "--cache-mib" => self.cache_mib = number()?,
            "--memtable-mib" => self.memtable_mib = number()?,
            "--bloom-bits" => {
                let bits = value.parse();
                self.bloom_bits =
                    bits.map_err(|_| format!("{flag} needs a whole number, not `{value}`"))?;
            }
            "--seconds-limit" => self.seconds_limit = Some(number()?),
            "--lived-in" => self.aged = yes()?,
            "--memory" => self.memory = yes()?,
            "--memory-of" => self.memory_of = Some(value),
            "--shape" => self.shapes = parse_shapes(&value)?,
            "--stores" => self.stores = PathBuf::from(value),
            "--out" => self.out = Some(PathBuf::from(value)),
            "--label" => self.label = Some(value),
            _ => return Err(format!("there is no flag `{flag}`; --help lists them")),
        }
        Ok(())
    }

    fn complete(mut self) -> Result<KvArguments, String> {
        let wrong = |name: &str, least: u64, most: u64| {
            Err(format!("{name} is out of range: it must be {least} to {most}"))
        };
        if !(1..=1_000_000_000).contains(&self.num) {
            return wrong("--num", 1, 1_000_000_000);
        }
        if !(1..=1000).contains(&self.rounds) {
            return wrong("--rounds", 1, 1000);
        }
        if self.value > 1 << 20 {
            return wrong("--value", 0, 1 << 20);
        }
        if !(1..=1 << 20).contains(&self.cache_mib) {
            return wrong("--cache-mib", 1, 1 << 20);
        }
        if !(1..=1 << 11).contains(&self.memtable_mib) {
            return wrong("--memtable-mib", 1, 1 << 11);
        }
        if !(-1..=100).contains(&self.bloom_bits) {
            return Err("--bloom-bits is out of range: it must be -1 to 100".to_string());
        }
        // With fewer keys a deleted key may have no neighbor to take its place.
        self.aged &= self.num >= 20;
        self.reads = self.reads.clamp(1, self.num);
        if self.concurrent_reads == 0 {
            self.concurrent_reads = 2 * self.reads;
        }
        if self.fill_rounds == 0 {
            self.fill_rounds = if self.num >= 5_000_000 { 1 } else { 3 };
        }
        Ok(self)
    }
}

fn parse_shapes(names: &str) -> Result<Vec<KeyShape>, String> {
    if names == "all" {
        return Ok(KeyShape::ALL.to_vec());
    }
    let known = || KeyShape::ALL.map(|shape| shape.to_string()).join(", ");
    let parse = |name: &str| {
        KeyShape::parse(name)
            .ok_or_else(|| format!("--shape is all or some of {}, not `{name}`", known()))
    };
    names.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<KvArguments, String> {
        KvArguments::parse(line.split_whitespace().map(str::to_string))
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
        assert!(parse("--num many").unwrap_err().contains("--num needs a whole number"));
        assert!(parse("--shape round").unwrap_err().contains("--shape"));
        assert!(parse("--speed 3").unwrap_err().contains("no flag `--speed`"));
        assert!(parse("--rounds 0").unwrap_err().contains("--rounds"));
        assert!(parse("--bloom-bits -2").unwrap_err().contains("-1 to 100"));
        assert!(parse("--bloom-bits few").unwrap_err().contains("--bloom-bits needs a whole"));
        assert!(parse("--memtable-mib 0").unwrap_err().contains("--memtable-mib"));
        assert!(parse("--memory perhaps").unwrap_err().contains("yes or no"));
        assert!(parse("--num").is_err());
    }
}
