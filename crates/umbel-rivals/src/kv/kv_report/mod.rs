//! Reports as Markdown, which is readable in a terminal, too, and as JSON.

use std::fmt::Write as _;

use umbel_keygen::keys::KeyShape;
use umbel_lab::measure::Sample;
use umbel_lab::measure::machine::Machine;

use crate::engines;
use crate::kv::kv_arguments::KvArguments;
use crate::kv::kv_results::KvResults;

mod key_shape_tables;
mod kv_json;
mod target_table;

pub mod markdown_table;

pub use kv_json::json;

/// Description of the run.
#[derive(Debug)]
pub struct KvHeading<'a> {
    /// Options of the run.
    pub arguments: &'a KvArguments,
    /// Machine and date.
    pub machine: &'a Machine,
    /// Load averages before the run.
    pub loads_before: Option<[f64; 3]>,
    /// Load averages after the run.
    pub loads_after: Option<[f64; 3]>,
}

/// Returns the report as a page of Markdown.
pub fn markdown(heading: &KvHeading<'_>, done: &[(KeyShape, KvResults)]) -> String {
    let mut page = String::new();
    let num = heading.arguments.num;
    put(&mut page, &format!("# Rivals, {num} keys, {}\n", heading.machine.date));
    put(&mut page, &settings(heading));
    put(&mut page, "\n## Targets\n");
    put(&mut page, WHAT_COUNTS);
    put(&mut page, &target_table::table(done));
    put(&mut page, &format!("\n{}", absent_engines(heading.arguments)));
    put(&mut page, "\n## Umbel's time as a fraction of the other's, on the worst shape of keys\n");
    put(&mut page, "Medians of the rounds' ratios by the wall clock; below 1 Umbel is faster.\n");
    put(&mut page, &format!("\n{}", target_table::worst_ratios(done)));
    put(&mut page, "\n## Engines\n");
    for (_, results) in done.iter().take(1) {
        put(&mut page, &participants(results));
    }
    for (shape, results) in done {
        one_shape(&mut page, *shape, results);
    }
    page
}

const WHAT_COUNTS: &str = "\
Reads and fills compare the median of the rounds' ratios, by the wall clock. Umbel reads with \
lent values and with cursors; of another engine's read paths the faster one counts in each phase. \
A fill ends when no background work is left and every file is synced; the time that only observes \
a quiet store is not counted. `multi_get` is compared with LMDB's single gets of the same kind. \
Figures above a bound of `≤` or below one of `≥` are not reached.\n\n";

fn put(page: &mut String, text: &str) {
    page.push_str(text);
    if text.starts_with("# ") || text.trim_start().starts_with("##") {
        page.push('\n');
    }
}

fn absent_engines(arguments: &KvArguments) -> String {
    format!(
        "Not decided here: memory at most the budget and a tenth, which takes a run with 10000000 \
         keys for each budget (`--cache-mib 64`, `512` and `4096`; this one had {}), and 100 \
         million keys at 64 MiB.\n",
        arguments.cache_mib
    )
}

fn one_shape(page: &mut String, shape: KeyShape, results: &KvResults) {
    put(page, &format!("\n## On {shape} keys\n"));
    put(page, &format!("{} bytes of keys and values are written. ", results.user_bytes));
    put(page, &format!("{} are present when the stores are read.\n", results.live_bytes));
    for participant in &results.participants {
        if let Some(reason) = &participant.absence_reason {
            put(page, &format!("\n**{}** did not complete the run: {reason}.\n", participant.name));
        }
    }
    put(page, "\n### Reading: wall time in ns, median (min–max)\n");
    put(page, &key_shape_tables::reads(results, Sample::wall));
    put(page, "\n### Writing and opening, by the wall clock, median (min–max)\n");
    put(page, &key_shape_tables::writes(results));
    put(page, "\n### Gets of present keys, each timed\n");
    put(page, &key_shape_tables::concurrent_reads(results));
    if let Some(table) = key_shape_tables::memory(results) {
        put(page, "\n### Memory: peak resident MiB, less those before\n");
        put(page, &table);
    }
    put(page, "\n### Umbel's time as a fraction of the other's, reads, wall time\n");
    put(page, &key_shape_tables::ratios(results, Sample::wall));
    put(page, "\n### The same, processor time of the reading thread\n");
    put(page, &key_shape_tables::ratios(results, Sample::thread));
    put(page, "\n### Answers\n");
    put(page, &key_shape_tables::answers(results));
}

fn settings(heading: &KvHeading<'_>) -> String {
    let (arguments, machine) = (heading.arguments, heading.machine);
    let load = |loads: Option<[f64; 3]>| match loads {
        Some([one, five, fifteen]) => format!("{one:.1} / {five:.1} / {fifteen:.1}"),
        None => "unknown".to_string(),
    };
    let memory = machine.memory_mib.map_or("unknown".to_string(), |mib| format!("{mib} MiB"));
    let mut text = format!(
        "Commit {}. {} with {} threads, {memory} of memory, {}, {}. Load average (1 / 5 / 15 min) \
         before: {}, after: {}; compare ratios and look at the spread.\n\n",
        machine.commit,
        machine.processor,
        machine.threads,
        machine.kernel,
        machine.file_system,
        load(heading.loads_before),
        load(heading.loads_after),
    );
    let _ = write!(
        text,
        "{} keys, values of {} bytes. Rounds: {} of filling, {} of reading, opening and synced \
         puts, {} of reading next to a writer. {} point reads each (a fifth as many seeks, {} \
         next to a writer), {} synced puts from one thread and twice as many from eight. Caches of \
         {} MiB; memtables of {} MiB and {} for engines with such options. ",
        arguments.num,
        arguments.value,
        arguments.fill_rounds,
        arguments.rounds,
        arguments.concurrent_rounds,
        arguments.reads,
        arguments.concurrent_reads,
        arguments.synced,
        arguments.cache_mib,
        arguments.memtable_mib,
        match arguments.bloom_bits {
            ..=0 => "no filters".to_string(),
            bits => format!("filters of {bits} bits per key"),
        },
    );
    text.push_str(match arguments.aged {
        true => AGED_NOTE,
        false => "Stores were filled in random order, closed and opened again. ",
    });
    if arguments.compact {
        text.push_str("They were compacted into one level before they were opened again. ");
    }
    text.push_str(CONDITIONS);
    text
}

const AGED_NOTE: &str = "\
Stores were filled in random order. Then a tenth of the keys was overwritten and a twentieth \
deleted, in three parts. The first was flushed and compacted at the engine's own pace. After the \
second, the store was closed and opened again, and a snapshot was taken and held during the reads. \
The third followed the snapshot. ";

const CONDITIONS: &str = "\
Everything was read twice before measuring: every key by a get, in random order, then by \
a scan. Missing keys lie between present ones. Every engine runs in this process, on this file \
system; for each phase the engines take turns. Before gets, multi_gets and seeks are measured, the \
same number of other keys is read over the same read path (of the same ten thousand for hot keys). \
So no engine pays for what the one before it left in the processor's caches. Written bytes are the \
kernel's count of pages that this process made dirty, logs included. Device bytes are those that \
all processes wrote to the device meanwhile. The writer next to readers writes the present values \
again, as fast as it can; readers then use a read path that sees new writes. At half rate a reader \
has a turn each millisecond and makes the reads that are due; the time of a read excludes the wait \
for its turn.\n";

fn participants(results: &KvResults) -> String {
    let mut text = String::new();
    for participant in &results.participants {
        let name = participant.name;
        let _ = match &participant.absence_reason {
            Some(reason) if participant.version.is_empty() => {
                writeln!(text, "- **{name}** skipped: {reason}.")
            }
            _ => writeln!(
                text,
                "- **{name}** {}: {}.{}",
                participant.version,
                settings_of(name),
                advice_of(name)
            ),
        };
    }
    text
}

fn settings_of(name: &str) -> String {
    let engine = engines::ALL.into_iter().find(|engine| engine.name == name);
    engine.map_or(String::new(), |engine| {
        let together = if engine.multi_get { "" } else { "; multi_get as single gets" };
        format!("{}{together}", (engine.settings)())
    })
}

/// Returns the sources of an engine's settings.
fn advice_of(name: &str) -> String {
    let engine = engines::ALL.into_iter().find(|engine| engine.name == name);
    let pages = engine.map_or(&[][..], |engine| engine.recommended);
    let links: Vec<String> = pages.iter().map(|page| format!("<{page}>")).collect();
    if links.is_empty() { String::new() } else { format!(" Advised in {}.", links.join(", ")) }
}
