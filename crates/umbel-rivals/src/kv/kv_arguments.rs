//! The command line.

use std::path::PathBuf;

use umbel_lab::engine::Settings;
use umbel_lab::keys::Shape;

/// What `--help` prints.
pub const USAGE: &str = "\
umbel-rivals lab ...: the experiments of `umbel lab`, with --engine NAME or --engine all
umbel-rivals [FLAGS]: the same work for several key-value engines, in one run
  --quick             1000000 random keys, few rounds: some minutes; other flags change that
  --num N             keys (default 1000000)
  --engines A,B       of umbel, lmdb, rocksdb, leveldb, pebble, fjall, redb, sled, surrealkv and
                      none, which shows what the harness takes (default: all that are built in)
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
  --memtable-mib N    bytes of a memtable (default 128), where an engine can be told: umbel,
                      rocksdb, leveldb, pebble and fjall both, surrealkv memtables only
  --lived-in yes|no   before reading: overwrite 10 %, delete 5 %, hold a snapshot (default yes)
  --memory yes|no     fill and read once more, each engine in its own process (default yes)
  --compact           compact everything into one level before reading
  --seconds-limit N   after so many seconds begin no further repetition
  --stores DIR        where the stores are made (default: the folder for temporary files)
  --out DIR           write rivals-DATE-NUM.md and .json there
  --label TEXT        part of those names in place of NUM";

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// How many keys.
    pub num: u64,
    /// Names of engines; none stands for all.
    pub engines: Vec<String>,
    /// What keys look like, one run for each.
    pub shapes: Vec<Shape>,
    /// Repetitions of reading, opening and synced puts.
    pub rounds: u64,
    /// Repetitions of filling.
    pub fill_rounds: u64,
    /// Repetitions of reading beside a writer.
    pub beside_rounds: u64,
    /// Point reads of a repetition.
    pub reads: u64,
    /// Reads of a repetition beside a writer.
    pub beside_reads: u64,
    /// Synced puts of a repetition.
    pub synced: u64,
    /// Bytes of a value.
    pub value: usize,
    /// Bytes of a key.
    pub key: usize,
    /// Mebibytes of each engine's cache.
    pub cache_mib: u64,
    /// Bits per key of the filters of engines that can be told; 0 and less for none.
    pub bloom_bits: i32,
    /// Mebibytes of a memtable of engines that can be told.
    pub memtable_mib: u64,
    /// Whether stores are lived in before they are read.
    pub lived_in: bool,
    /// Whether memory is measured.
    pub memory: bool,
    /// Engine and part of the work, where only its memory is to be measured, in this process.
    pub memory_of: Option<String>,
    /// Whether to compact before reading.
    pub compact: bool,
    /// After how many seconds no repetition begins.
    pub seconds_limit: Option<u64>,
    /// Where the stores are made.
    pub stores: PathBuf,
    /// Where the results go.
    pub out: Option<PathBuf>,
    /// Part of their names.
    pub label: Option<String>,
}

impl Arguments {
    fn usual() -> Arguments {
        Arguments {
            num: 1_000_000,
            engines: Vec::new(),
            shapes: vec![Shape::Random],
            rounds: 5,
            fill_rounds: 0,
            beside_rounds: 3,
            reads: 500_000,
            beside_reads: 0,
            synced: 2000,
            value: 100,
            key: 16,
            cache_mib: 2048,
            bloom_bits: Settings::default().bloom_bits,
            memtable_mib: Settings::default().memtable_bytes >> 20,
            lived_in: true,
            memory: true,
            memory_of: None,
            compact: false,
            seconds_limit: None,
            stores: std::env::temp_dir(),
            out: None,
            label: None,
        }
    }

    /// What every engine is told, as far as it can be.
    pub fn settings(&self) -> Settings {
        Settings {
            cache_bytes: self.cache_mib << 20,
            bloom_bits: self.bloom_bits,
            memtable_bytes: self.memtable_mib << 20,
            ..Settings::default()
        }
    }

    fn quick() -> Arguments {
        Arguments {
            rounds: 3,
            fill_rounds: 1,
            beside_rounds: 1,
            reads: 200_000,
            beside_reads: 300_000,
            synced: 500,
            memory: false,
            ..Arguments::usual()
        }
    }

    /// Reads the words of a command line.
    ///
    /// # Errors
    /// A sentence about the first word that is wrong.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
        let words: Vec<String> = words.into_iter().collect();
        let quick = words.iter().any(|word| word == "--quick");
        let mut arguments = if quick { Arguments::quick() } else { Arguments::usual() };
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
            "--beside-rounds" => self.beside_rounds = number()?,
            "--reads" => self.reads = number()?,
            "--beside-reads" => self.beside_reads = number()?,
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
            "--lived-in" => self.lived_in = yes()?,
            "--memory" => self.memory = yes()?,
            "--memory-of" => self.memory_of = Some(value),
            "--shape" => self.shapes = shapes(&value)?,
            "--stores" => self.stores = PathBuf::from(value),
            "--out" => self.out = Some(PathBuf::from(value)),
            "--label" => self.label = Some(value),
            _ => return Err(format!("there is no flag `{flag}`; --help lists them")),
        }
        Ok(())
    }

    fn complete(mut self) -> Result<Arguments, String> {
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
        // With fewer there may be no key to take the place of one that is deleted.
        self.lived_in &= self.num >= 20;
        self.reads = self.reads.clamp(1, self.num);
        if self.beside_reads == 0 {
            self.beside_reads = 2 * self.reads;
        }
        if self.fill_rounds == 0 {
            self.fill_rounds = if self.num >= 5_000_000 { 1 } else { 3 };
        }
        Ok(self)
    }
}

fn shapes(names: &str) -> Result<Vec<Shape>, String> {
    if names == "all" {
        return Ok(Shape::ALL.to_vec());
    }
    let known = || Shape::ALL.map(|shape| shape.to_string()).join(", ");
    let parse = |name: &str| {
        Shape::parse(name)
            .ok_or_else(|| format!("--shape is all or some of {}, not `{name}`", known()))
    };
    names.split(',').map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(str::to_string))
    }

    #[test]
    fn reads_flags() {
        let arguments = parse("--num 10_000 --engines umbel,lmdb --shape path").unwrap();
        assert_eq!((arguments.num, arguments.reads, arguments.fill_rounds), (10_000, 10_000, 3));
        assert_eq!(arguments.engines, ["umbel", "lmdb"]);
        assert_eq!(arguments.shapes, [Shape::Path]);
        assert_eq!(parse("--num 10000000").unwrap().fill_rounds, 1);
        assert_eq!(parse("--shape all").unwrap().shapes, Shape::ALL);
        assert_eq!(parse("--shape url,random").unwrap().shapes, [Shape::Url, Shape::Random]);
        assert!(!parse("--lived-in no").unwrap().lived_in);
        let told = parse("--bloom-bits -1 --memtable-mib 64 --cache-mib 10").unwrap().settings();
        assert_eq!(
            (told.bloom_bits, told.memtable_bytes, told.cache_bytes),
            (-1, 64 << 20, 10 << 20)
        );
        assert_eq!(parse("").unwrap().settings().bloom_bits, 10);
    }

    #[test]
    fn quick_is_where_other_flags_start_from() {
        let arguments = parse("--rounds 4 --quick --reads 1000").unwrap();
        assert_eq!((arguments.rounds, arguments.reads, arguments.synced), (4, 1000, 500));
        assert!(!arguments.memory);
    }

    #[test]
    fn says_what_is_wrong() {
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
