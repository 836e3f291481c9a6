//! The results as Markdown, which a terminal shows as well, and as JSON.

use std::fmt::Write as _;

use umbel_lab::keys::Shape;
use umbel_lab::machine::Machine;
use umbel_lab::measure::Sample;

use crate::arguments::Arguments;
use crate::engines;
use crate::record::Results;

mod json;
mod shape;
pub mod table;
mod targets;

pub use json::json;

/// What the results are of.
#[derive(Debug)]
pub struct Heading<'a> {
    /// What was asked for.
    pub arguments: &'a Arguments,
    /// Where and when.
    pub machine: &'a Machine,
    /// The machine's load before the run.
    pub loads_before: Option<[f64; 3]>,
    /// And now.
    pub loads_after: Option<[f64; 3]>,
}

/// The results as a page.
pub fn markdown(heading: &Heading<'_>, done: &[(Shape, Results)]) -> String {
    let mut page = String::new();
    let num = heading.arguments.num;
    put(&mut page, &format!("# Rivals, {num} keys, {}\n", heading.machine.date));
    put(&mut page, &settings(heading));
    put(&mut page, "\n## What was to be reached\n");
    put(&mut page, WHAT_COUNTS);
    put(&mut page, &targets::table(done));
    put(&mut page, &format!("\n{}", not_here(heading.arguments)));
    put(&mut page, "\n## Umbel's time as a part of the other's, on the worst shape of keys\n");
    put(&mut page, "Medians of the rounds' ratios by the wall clock; below 1 Umbel is faster.\n");
    put(&mut page, &format!("\n{}", targets::worst_ratios(done)));
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
Reading and filling compare the middle of the rounds' ratios, by the wall clock. Umbel reads with \
values lent and with cursors; of another engine's ways the better one counts in each phase. A fill \
ends when nothing is left to do in the background and every file is synced; the time it takes only \
to see that nothing happens any more is taken off. `multi_get` is compared with LMDB's single gets \
of the same kind. Figures above a bound of `≤` or below one of `≥` are not reached.\n\n";

fn put(page: &mut String, text: &str) {
    page.push_str(text);
    if text.starts_with("# ") || text.trim_start().starts_with("##") {
        page.push('\n');
    }
}

fn not_here(arguments: &Arguments) -> String {
    format!(
        "Not decided here: memory at most the budget and a tenth, which takes a run with 10000000 \
         keys for each budget (`--cache-mib 64`, `512` and `4096`; this one had {}), and 100 \
         million keys at 64 MiB.\n",
        arguments.cache_mib
    )
}

fn one_shape(page: &mut String, shape: Shape, results: &Results) {
    put(page, &format!("\n## On {shape} keys\n"));
    put(page, &format!("{} bytes of keys and values are filled in. ", results.user_bytes));
    put(page, &format!("{} are there when the stores are read.\n", results.live_bytes));
    for participant in &results.participants {
        if let Some(reason) = &participant.absent_because {
            put(
                page,
                &format!("\n**{}** does not take part to the end: {reason}.\n", participant.name),
            );
        }
    }
    put(page, "\n### Reading: wall time in ns, median (min–max)\n");
    put(page, &shape::reads(results, Sample::wall));
    put(page, "\n### Writing and opening, by the wall clock, median (min–max)\n");
    put(page, &shape::writes(results));
    put(page, "\n### Reading keys that are there, each get timed\n");
    put(page, &shape::beside(results));
    if let Some(table) = shape::memory(results) {
        put(page, "\n### Memory: the most that was resident, in MiB, less what was before\n");
        put(page, &table);
    }
    put(page, "\n### Umbel's time as a part of the other's, reading, wall time\n");
    put(page, &shape::ratios(results, Sample::wall));
    put(page, "\n### The same, processor time of the asking thread\n");
    put(page, &shape::ratios(results, Sample::thread));
    put(page, "\n### Answers\n");
    put(page, &shape::answers(results));
}

fn settings(heading: &Heading<'_>) -> String {
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
         puts, {} of reading beside a writer. {} point reads each (a fifth as many seeks, {} \
         beside a writer), {} synced puts from one thread and twice as many from eight. Caches of \
         {} MiB; memtables of {} MiB and {} where an engine can be told. ",
        arguments.num,
        arguments.value,
        arguments.fill_rounds,
        arguments.rounds,
        arguments.beside_rounds,
        arguments.reads,
        arguments.beside_reads,
        arguments.synced,
        arguments.cache_mib,
        arguments.memtable_mib,
        match arguments.bloom_bits {
            ..=0 => "no filters".to_string(),
            bits => format!("filters of {bits} bits per key"),
        },
    );
    text.push_str(match arguments.lived_in {
        true => LIVED_IN,
        false => "Stores were filled in an order without order, closed and opened again. ",
    });
    if arguments.compact {
        text.push_str("They were compacted into one level before they were opened again. ");
    }
    text.push_str(CONDITIONS);
    text
}

const LIVED_IN: &str = "\
Stores were filled in an order without order; then a tenth of the keys was overwritten and a \
twentieth deleted, in three parts: the first was written out and compacted as the engine saw fit, \
then came the second, the store was closed and opened again, a snapshot was taken that was held \
while it was read, and the third part came after it. ";

const CONDITIONS: &str = "\
Everything was read twice before measuring: every key by a get, in an order without order, then by \
a scan. Missing keys lie between present ones. Every engine runs in this process, on this file \
system; for each phase the engines take turns. Before gets, multi_gets \
and seeks are counted, in each way, as many of other keys are done that are not (of the same ten \
thousand where these are hot), so that no engine pays for what the one before it left in the \
processor's caches. Written bytes are the kernel's count of pages this \
process made dirty, logs included; device bytes are what the device was given meanwhile by all \
processes. The writer beside readers gives keys the value they have already, as fast as it can; \
readers then are of the way that sees new writes. At half rate a reader has a turn each \
millisecond and does what is due; a call's time is its own, without the wait for its turn.\n";

fn participants(results: &Results) -> String {
    let mut text = String::new();
    for participant in &results.participants {
        let name = participant.name;
        let _ = match &participant.absent_because {
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

/// Where the settings come from.
fn advice_of(name: &str) -> String {
    let engine = engines::ALL.into_iter().find(|engine| engine.name == name);
    let pages = engine.map_or(&[][..], |engine| engine.recommended);
    let links: Vec<String> = pages.iter().map(|page| format!("<{page}>")).collect();
    if links.is_empty() { String::new() } else { format!(" Advised in {}.", links.join(", ")) }
}
