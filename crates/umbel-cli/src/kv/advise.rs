//! `umbel advise`: which filters are kept, why, and what other memory would bring.

use serde_json::{Value, json};
use umbel::{FilterAdvice, LevelAdvice};

use crate::errors::Outcome;
use crate::number;
use crate::output::Output;
use crate::statistics;
use crate::store::Store;

/// Share of the gets for keys that are not there from which on an existence filter is proposed.
const WORTH_A_FILTER: f64 = 0.05;

/// Writes the advice for every keyspace.
pub fn run(store: &Store, json: bool) -> Outcome<()> {
    let db = store.open_to_read()?;
    let all = db.advice();
    let mut output = Output::new();
    if json {
        let all: Vec<Value> = all.iter().map(to_json).collect();
        output.json(&json!({ "keyspaces": all }))?;
        return output.flush();
    }
    for (place, advice) in all.iter().enumerate() {
        if place > 0 {
            output.line("")?;
        }
        for line in text(advice) {
            output.line(&line)?;
        }
    }
    if all.is_empty() {
        output.line("the store has no keyspaces yet")?;
    }
    output.flush()
}

fn to_json(advice: &FilterAdvice) -> Value {
    let [half, same, twice] = advice.best_false_reads;
    json!({
        "keyspace": advice.keyspace,
        "is_on": advice.is_on,
        "has_filters": advice.has_filters,
        "bloom_bits": advice.bloom_bits,
        "gets": advice.gets,
        "failures": advice.failures,
        "plain_bytes": advice.plain_bytes,
        "kept_bytes": advice.kept_bytes,
        "false_reads_per_get": advice.false_reads,
        "plain_false_reads_per_get": advice.plain_false_reads,
        "best_false_reads_per_get": {
            "half_the_memory": half,
            "same_memory": same,
            "twice_the_memory": twice,
        },
        "existence": advice.existence.as_ref().map(statistics::existence),
        "existence_bytes": advice.existence_bytes,
        "absent_share": advice.absent_share,
        "levels": advice.levels.iter().map(level_json).collect::<Vec<_>>(),
    })
}

fn level_json(level: &LevelAdvice) -> Value {
    let filter = |(bytes, rate): (u64, f64)| json!({ "bytes": bytes, "designed_rate": rate });
    json!({
        "level": level.level,
        "tables": level.tables,
        "entries": level.entries,
        "absent_per_get": level.absent_per_get,
        "present_per_get": level.present_per_get,
        "false_reads_per_get": level.false_reads_per_get,
        "plain": filter(level.plain),
        "second": level.second.map(filter),
        "kept": level.kept,
        "bytes_in_memory": level.bytes_in_memory,
        "best_second": level.best.map(|(kind, bits)| json!({ "kind": kind, "bits_per_key": bits })),
        "why": level.why,
    })
}

/// What there is to say of the existence filter.
fn existence(advice: &FilterAdvice) -> String {
    let Some(stats) = &advice.existence else {
        let share = advice.absent_share;
        if advice.gets < 1.0 || share < WORTH_A_FILTER {
            return "  It has no existence filter.".into();
        }
        return format!(
            "  It has no existence filter. {} of the gets of late asked for keys that are not \
             there; one that grows\n  would take about {} and answer nearly all of these before \
             anything else is asked.",
            number::percent(share),
            number::bytes(advice.existence_bytes)
        );
    };
    let (items, bytes) = (number::grouped(stats.items), number::bytes(stats.memory_bytes));
    let state = stats.state();
    format!(
        "  Its existence filter is {state}: {items} keys of {} in {bytes}, of absent keys it lets \
         {} through by design,\n  {} as full as it is.",
        number::grouped(stats.designed_items),
        number::percent(stats.designed_rate),
        number::percent(stats.estimated_rate)
    )
}

fn text(advice: &FilterAdvice) -> Vec<String> {
    let mut lines = vec![format!("keyspace `{}`", advice.keyspace), existence(advice)];
    if !advice.has_filters {
        lines.push("  Its tables have no filters: its options say so.".into());
        return lines;
    }
    if advice.levels.is_empty() {
        lines.push("  It has no tables yet, so there are no filters to decide on.".into());
        return lines;
    }
    let kept = number::bytes(advice.kept_bytes);
    let plain = number::bytes(advice.plain_bytes);
    lines.push(format!(
        "  {kept} of filters are kept in memory; {} bits a key everywhere would be {plain}.",
        advice.bloom_bits
    ));
    if advice.gets < 1.0 {
        lines.push(
            "  No gets are known: what reads ask is noted while the store is open, and written \
             down\n  when memtables are flushed and at a clean close."
                .into(),
        );
    } else {
        lines.push(format!(
            "  Of the last {:.0} gets, by design: {} searched in vain a thousand gets as it is, {} \
             with {} bits everywhere.",
            advice.gets,
            per_thousand(advice.false_reads),
            per_thousand(advice.plain_false_reads),
            advice.bloom_bits
        ));
        let [half, same, twice] = advice.best_false_reads.map(per_thousand);
        lines.push(format!(
            "  With the best filters, once all tables are written again: {half} with half the \
             memory, {same} with\n  the same, {twice} with twice as much."
        ));
    }
    if advice.failures > 0 {
        lines.push(format!(
            "  A prediction failed {} times: for some while after it the plain filters were kept.",
            number::grouped(advice.failures)
        ));
    }
    lines.push(format!(
        "  {:>5} {:>7} {:>13} {:>12} {:>13} {:>10} {:>10}  new tables get",
        "level", "tables", "entries", "absent/get", "present/get", "kept", "in memory"
    ));
    for level in &advice.levels {
        let best = match level.best {
            Some((kind, bits)) => format!("a {kind} filter of {bits:.1} bits beside it"),
            None => "the plain filter alone".to_string(),
        };
        lines.push(format!(
            "  {:>5} {:>7} {:>13} {:>12.4} {:>13.4} {:>10} {:>10}  {best}",
            level.level,
            number::grouped(level.tables),
            number::grouped(level.entries),
            level.absent_per_get,
            level.present_per_get,
            level.kept,
            number::bytes(level.bytes_in_memory)
        ));
        lines.push(format!("        {}", level.why));
    }
    lines
}

fn per_thousand(share: f64) -> String {
    format!("{:.2}", share * 1000.0)
}
