//! The command line.

use std::path::PathBuf;

use umbel_lab::keys::Shape;

/// What `--help` prints.
pub const USAGE: &str = "\
umbel-rivals [FLAGS]: the same work for several key-value engines, in one run
  --num N             keys (default 1000000)
  --engines A,B       of umbel, lmdb, rocksdb, leveldb, fjall, redb, none (default: all)
  --rounds N          repetitions of everything but filling (default 3)
  --fill-rounds N     repetitions of filling (default: --rounds, 1 from 5000000 keys on)
  --reads N           point reads of a repetition (default 500000, at most --num)
  --synced N          synced puts of a repetition (default 2000)
  --value N           bytes of a value (default 100)
  --key N             bytes of a key (default 16; paths have their own length)
  --shape SHAPE       random, decimal or path (default random)
  --cache-mib N       cache of each engine that has one (default 2048)
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
    /// Repetitions of everything but filling.
    pub rounds: u64,
    /// Repetitions of filling.
    pub fill_rounds: u64,
    /// Point reads of a repetition.
    pub reads: u64,
    /// Synced puts of a repetition.
    pub synced: u64,
    /// Bytes of a value.
    pub value: usize,
    /// Bytes of a key.
    pub key: usize,
    /// What keys look like.
    pub shape: Shape,
    /// Mebibytes of each engine's cache.
    pub cache_mib: u64,
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
    /// Reads the words of a command line.
    ///
    /// # Errors
    /// A sentence about the first word that is wrong.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Arguments, String> {
        let mut arguments = Arguments {
            num: 1_000_000,
            engines: Vec::new(),
            rounds: 3,
            fill_rounds: 0,
            reads: 500_000,
            synced: 2000,
            value: 100,
            key: 16,
            shape: Shape::Random,
            cache_mib: 2048,
            compact: false,
            seconds_limit: None,
            stores: std::env::temp_dir(),
            out: None,
            label: None,
        };
        let mut words = words.into_iter();
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
        match flag {
            "--num" => self.num = number()?,
            "--engines" => self.engines = value.split(',').map(str::to_string).collect(),
            "--rounds" => self.rounds = number()?,
            "--fill-rounds" => self.fill_rounds = number()?,
            "--reads" => self.reads = number()?,
            "--synced" => self.synced = number()?,
            "--value" => self.value = number()? as usize,
            "--key" => self.key = number()? as usize,
            "--cache-mib" => self.cache_mib = number()?,
            "--seconds-limit" => self.seconds_limit = Some(number()?),
            "--shape" => {
                self.shape = Shape::parse(&value)
                    .ok_or(format!("--shape is random, decimal or path, not `{value}`"))?;
            }
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
        self.reads = self.reads.clamp(1, self.num);
        if self.fill_rounds == 0 {
            self.fill_rounds = if self.num >= 5_000_000 { 1 } else { self.rounds };
        }
        Ok(self)
    }
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
        assert_eq!(parse("--num 10000000").unwrap().fill_rounds, 1);
    }

    #[test]
    fn says_what_is_wrong() {
        assert!(parse("--num many").unwrap_err().contains("--num needs a whole number"));
        assert!(parse("--shape round").unwrap_err().contains("--shape"));
        assert!(parse("--speed 3").unwrap_err().contains("no flag `--speed`"));
        assert!(parse("--rounds 0").unwrap_err().contains("--rounds"));
        assert!(parse("--num").is_err());
    }
}
