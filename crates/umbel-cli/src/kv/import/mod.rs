//! `umbel import`: writes the entries of a file or a pipe to a store.
//!
//! Entries are committed in batches in the order of the lines. INVARIANT: when the import stops at
//! a line, every valid line before that line is in the store, and no line after it.

mod csv_parser;
mod csv_records;
mod import_record;
mod line_records;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use serde_json::json;
use umbel::{Batch, Db, Durability, Env, Keyspace};

use crate::command_line::{ImportArgs, ImportFormat};
use crate::errors::{CommandError, CommandResult};
use crate::io::input::{self, CountingReader};
use crate::io::output::{Output, note};
use crate::io::progress::{Progress, Unit};
use crate::open_kv_store::{StoreLocation, open_or_create_keyspace};
use crate::text::numbers;

use csv_records::CsvRecords;
use import_record::{ImportRecord, NextRecord, Records};
use line_records::{JsonRecords, LineRecords, TsvRecords};

/// A batch is committed when it has this many entries.
const BATCH_ENTRIES: usize = 1000;
/// A batch is committed when it has this many bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Maximum number of damaged lines that `--skip-bad` names; the others are only counted.
const REPORTED_BAD_LINES_MAX: u64 = 10;

/// Writes the entries of the input to the store.
pub fn run(store: &StoreLocation, args: &ImportArgs, json: bool) -> CommandResult<()> {
    let (name, input, total) = input::open(args.file.as_deref())?;
    let (input, consumed) = CountingReader::new(input);
    let records: Box<dyn Records> = match args.format {
        ImportFormat::Lines => Box::new(LineRecords::new(input, args.hex)),
        ImportFormat::Tsv => Box::new(TsvRecords::new(input, args.hex)),
        ImportFormat::Csv => Box::new(CsvRecords::new(input, args.hex, args.header)),
        ImportFormat::Jsonl => Box::new(JsonRecords::new(input)),
    };
    let durability = if args.sync { Durability::Synced } else { Durability::Buffered };
    let db = store.open_or_create(durability)?;
    let keyspace = open_or_create_keyspace(&db, &args.keyspace.keyspace)?;
    let progress = Progress::new(&name, Unit::Bytes, total, &Env::system().clock);
    let mut import = Import {
        name: &name,
        batch: db.batch(),
        batch_bytes: 0,
        keyspace: &keyspace,
        db: &db,
        durability,
        skip_bad: args.skip_bad,
        counts: ImportCounts::default(),
        progress,
        consumed,
        line_end: LineEnd::of(args),
        carriage_returns: 0,
    };
    import.import_records(records)?;
    import.note_carriage_returns();
    let seconds = import.progress.elapsed().as_secs_f64();
    import.progress.finish();
    let counts = import.counts;
    drop(import);
    drop(keyspace);
    db.close()?;
    report(&counts, seconds, json)
}

/// Counts of an import.
#[derive(Debug, Default, Clone, Copy)]
struct ImportCounts {
    lines: u64,
    written: u64,
    skipped: u64,
}

fn report(counts: &ImportCounts, seconds: f64, json: bool) -> CommandResult<()> {
    let rate = counts.written as f64 / seconds.max(1e-9);
    let mut output = Output::new().after("the import is complete");
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
            skipped => format!(", {} skipped", numbers::counted(skipped, "damaged line")),
        };
        output.line(&format!(
            "{} read, {} written{skipped}, {seconds:.1} s, {} keys/s",
            numbers::counted(counts.lines, "line"),
            numbers::counted(counts.written, "key"),
            numbers::grouped(rate as u64)
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
    counts: ImportCounts,
    progress: Progress,
    consumed: Rc<Cell<u64>>,
    /// Part of an entry that a line end ends; `None` if the format has its own line ends.
    line_end: Option<LineEnd>,
    /// Number of entries that were stored with the carriage return at the end of their line.
    carriage_returns: u64,
}

impl Import<'_> {
    fn import_records(&mut self, mut records: Box<dyn Records>) -> CommandResult<()> {
        let mut record = ImportRecord::default();
        loop {
            let step = match records.next(&mut record) {
                Ok(step) => step,
                Err(error) => {
                    self.commit()?;
                    let failure = CommandError::system("read", Path::new(self.name), &error);
                    return Err(self.stopped_error(failure));
                }
            };
            self.counts.lines = records.lines();
            match step {
                NextRecord::Entry => match record.check() {
                    Ok(()) => {
                        self.carriage_returns += u64::from(self.has_kept_carriage_return(&record));
                        self.add(&record)?;
                    }
                    Err(reason) => self.report_bad_line(record.line, &reason)?,
                },
                NextRecord::Bad { line, reason } => self.report_bad_line(line, &reason)?,
                NextRecord::End => break,
            }
        }
        self.commit()?;
        // An operator that reads "keys written" may pull the plug.
        self.db.sync().map_err(|error| self.stopped_error(error.into()))
    }

    /// Warns that carriage returns were stored. A file from Windows is stored unchanged, because
    /// lines are bytes; without the warning, a user would only notice missing keys.
    fn note_carriage_returns(&self) {
        let part = match self.line_end {
            Some(LineEnd::Value) => "value",
            _ => "key",
        };
        if self.carriage_returns > 0 {
            note(&format!(
                "umbel: note: {} lines of {} end with a carriage return, which was stored as the \
                 last byte of the {part}; `tr -d '\\r'` removes it before an import",
                numbers::grouped(self.carriage_returns),
                self.name
            ));
        }
    }

    fn has_kept_carriage_return(&self, record: &ImportRecord) -> bool {
        match self.line_end {
            Some(LineEnd::Key) => record.key.last() == Some(&b'\r'),
            Some(LineEnd::Value) => record.value.last() == Some(&b'\r'),
            None => false,
        }
    }

    fn add(&mut self, record: &ImportRecord) -> CommandResult<()> {
        self.batch.put(self.keyspace, &record.key, &record.value);
        self.batch_bytes += record.key.len() + record.value.len();
        if self.batch.len() >= BATCH_ENTRIES || self.batch_bytes >= BATCH_BYTES {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> CommandResult<()> {
        let entries = self.batch.len() as u64;
        if entries == 0 {
            return Ok(());
        }
        let batch = std::mem::replace(&mut self.batch, self.db.batch());
        self.batch_bytes = 0;
        batch.commit(self.durability).map_err(|error| self.stopped_error(error.into()))?;
        self.counts.written += entries;
        let written = self.counts.written;
        let seconds = self.progress.elapsed().as_secs_f64().max(1e-9);
        self.progress.set(self.consumed.get(), || {
            let rate = (written as f64 / seconds) as u64;
            format!("{} keys, {} keys/s", numbers::grouped(written), numbers::grouped(rate))
        });
        Ok(())
    }

    fn report_bad_line(&mut self, line: u64, reason: &str) -> CommandResult<()> {
        if self.skip_bad {
            self.counts.skipped += 1;
            if self.counts.skipped <= REPORTED_BAD_LINES_MAX {
                note(&format!("umbel: {}, line {line}: {reason}; skipped", self.name));
            }
            return Ok(());
        }
        self.commit()?;
        Err(CommandError::usage(format!(
            "{}, line {line}: {reason}; {} keys from the lines before it were imported; fix the \
             line and import again, or pass --skip-bad to skip damaged lines",
            self.name,
            numbers::grouped(self.counts.written)
        )))
    }

    fn stopped_error(&self, failure: CommandError) -> CommandError {
        let written = numbers::grouped(self.counts.written);
        failure.with_prefix(&format!("the import of {} stopped after {written} keys", self.name))
    }
}
