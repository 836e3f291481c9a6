//! `umbel import`: a file or a pipe into a store.
//!
//! Entries are committed in batches in the order of the lines. INVARIANT: whenever the import
//! stops, every good line before the one it names is in the store and no line behind it is.

mod csv_records;
mod csv_text;
mod line_records;
mod record;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use serde_json::json;
use umbel::{Batch, Db, Durability, Env, Keyspace};

use crate::args::{ImportArgs, ImportFormat};
use crate::errors::{Failure, Outcome};
use crate::input::{self, Counting};
use crate::number;
use crate::output::{Output, note};
use crate::progress::{Progress, Unit};
use crate::store::{Store, keyspace_to_write};

use csv_records::CsvRecords;
use line_records::{JsonRecords, LineRecords, TsvRecords};
use record::{Record, Records, Step};

/// A batch is committed when it has so many entries,
const BATCH_ENTRIES: usize = 1000;
/// or so many bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Damaged lines that --skip-bad names one by one.
const NAMED_BAD_LINES: u64 = 10;

/// Reads the input into the store.
pub fn run(store: &Store, args: &ImportArgs, json: bool) -> Outcome<()> {
    let (name, input, total) = input::open(args.file.as_deref())?;
    let (input, consumed) = Counting::new(input);
    let records: Box<dyn Records> = match args.format {
        ImportFormat::Lines => Box::new(LineRecords::new(input, args.hex)),
        ImportFormat::Tsv => Box::new(TsvRecords::new(input, args.hex)),
        ImportFormat::Csv => Box::new(CsvRecords::new(input, args.hex, args.header)),
        ImportFormat::Jsonl => Box::new(JsonRecords::new(input)),
    };
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let db = store.open_or_create(durability)?;
    let keyspace = keyspace_to_write(&db, &args.keyspace.keyspace)?;
    let progress = Progress::new(&name, Unit::Bytes, total, &Env::system().clock);
    let mut import = Import {
        name: &name,
        batch: db.batch(),
        batch_bytes: 0,
        keyspace: &keyspace,
        db: &db,
        durability,
        skip_bad: args.skip_bad,
        counts: Counts::default(),
        progress,
        consumed,
        line_end: LineEnd::of(args),
        carriage_returns: 0,
    };
    import.all(records)?;
    import.note_carriage_returns();
    let seconds = import.progress.elapsed().as_secs_f64();
    import.progress.finish();
    let counts = import.counts;
    drop(import);
    drop(keyspace);
    db.close()?;
    report(&counts, seconds, json)
}

/// What was read and what became of it.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    lines: u64,
    written: u64,
    skipped: u64,
}

fn report(counts: &Counts, seconds: f64, json: bool) -> Outcome<()> {
    let rate = counts.written as f64 / seconds.max(1e-9);
    let mut output = Output::new();
    if json {
        output.json(&json!({
            "lines_read": counts.lines,
            "keys_written": counts.written,
            "lines_skipped": counts.skipped,
            "seconds": seconds,
            "keys_per_second": rate,
        }))?;
    } else {
        let skipped = match counts.skipped {
            0 => String::new(),
            skipped => format!(", {} damaged lines left aside", number::grouped(skipped)),
        };
        output.line(&format!(
            "{} lines read, {} keys written{skipped}, {seconds:.1} s, {} keys/s",
            number::grouped(counts.lines),
            number::grouped(counts.written),
            number::grouped(rate as u64)
        ))?;
    }
    output.flush()
}

/// The part of an entry that the end of a line ends.
#[derive(Debug, Clone, Copy)]
enum LineEnd {
    Key,
    Value,
}

impl LineEnd {
    fn of(args: &ImportArgs) -> Option<LineEnd> {
        match args.format {
            _ if args.hex => None,
            ImportFormat::Lines => Some(LineEnd::Key),
            ImportFormat::Tsv => Some(LineEnd::Value),
            ImportFormat::Csv | ImportFormat::Jsonl => None,
        }
    }
}

struct Import<'a> {
    name: &'a str,
    batch: Batch,
    batch_bytes: usize,
    keyspace: &'a Keyspace,
    db: &'a Db,
    durability: Durability,
    skip_bad: bool,
    counts: Counts,
    progress: Progress,
    consumed: Rc<Cell<u64>>,
    /// What the end of a line is the end of; nothing where a format has its own line ends.
    line_end: Option<LineEnd>,
    /// Entries stored with the carriage return that ended their line.
    carriage_returns: u64,
}

impl Import<'_> {
    fn all(&mut self, mut records: Box<dyn Records>) -> Outcome<()> {
        let mut record = Record::default();
        loop {
            let step = match records.next(&mut record) {
                Ok(step) => step,
                Err(error) => {
                    self.commit()?;
                    let failure = Failure::system("read", Path::new(self.name), &error);
                    return Err(self.stopped(failure));
                }
            };
            self.counts.lines = records.lines();
            match step {
                Step::Entry => match record.check() {
                    Ok(()) => {
                        self.carriage_returns += u64::from(self.kept_return(&record));
                        self.add(&record)?;
                    }
                    Err(reason) => self.bad(record.line, &reason)?,
                },
                Step::Bad { line, reason } => self.bad(line, &reason)?,
                Step::End => break,
            }
        }
        self.commit()?;
        // Whoever reads "keys written" may pull the plug.
        self.db.sync().map_err(|error| self.stopped(error.into()))
    }

    /// A file from Windows is stored as it is, because lines are bytes. Whoever did not mean that
    /// would only find keys missing.
    fn note_carriage_returns(&self) {
        let part = match self.line_end {
            Some(LineEnd::Value) => "value",
            _ => "key",
        };
        if self.carriage_returns > 0 {
            note(&format!(
                "umbel: note: {} lines of {} end with a carriage return, which was stored as the \
                 last byte of the {part}; `tr -d '\\r'` takes it off before an import",
                number::grouped(self.carriage_returns),
                self.name
            ));
        }
    }

    fn kept_return(&self, record: &Record) -> bool {
        match self.line_end {
            Some(LineEnd::Key) => record.key.last() == Some(&b'\r'),
            Some(LineEnd::Value) => record.value.last() == Some(&b'\r'),
            None => false,
        }
    }

    fn add(&mut self, record: &Record) -> Outcome<()> {
        self.batch.put(self.keyspace, &record.key, &record.value);
        self.batch_bytes += record.key.len() + record.value.len();
        if self.batch.len() >= BATCH_ENTRIES || self.batch_bytes >= BATCH_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        let entries = self.batch.len() as u64;
        if entries == 0 {
            return Ok(());
        }
        let batch = std::mem::replace(&mut self.batch, self.db.batch());
        self.batch_bytes = 0;
        batch.commit(self.durability).map_err(|error| self.stopped(error.into()))?;
        self.counts.written += entries;
        let written = self.counts.written;
        let seconds = self.progress.elapsed().as_secs_f64().max(1e-9);
        self.progress.set(self.consumed.get(), || {
            let rate = (written as f64 / seconds) as u64;
            format!("{} keys, {} keys/s", number::grouped(written), number::grouped(rate))
        });
        Ok(())
    }

    fn bad(&mut self, line: u64, reason: &str) -> Outcome<()> {
        if self.skip_bad {
            self.counts.skipped += 1;
            if self.counts.skipped <= NAMED_BAD_LINES {
                note(&format!("umbel: {}, line {line}: {reason}; left aside", self.name));
            }
            return Ok(());
        }
        self.commit()?;
        Err(Failure::usage(format!(
            "{}, line {line}: {reason}; {} keys from the lines before it were imported; fix the \
             line and import again, or pass --skip-bad to leave such lines aside",
            self.name,
            number::grouped(self.counts.written)
        )))
    }

    fn stopped(&self, failure: Failure) -> Failure {
        let written = number::grouped(self.counts.written);
        failure.after(&format!("the import of {} stopped after {written} keys", self.name))
    }
}
