//! `umbel advise`: prints which filters are in memory, why, and the effect of more or less memory.

use serde_json::{Value, json};
use umbel::{FilterAdvice, LevelAdvice};

use crate::errors::CommandResult;
use crate::io::output::Output;
use crate::open_kv_store::StoreLocation;
use crate::stats_json;
use crate::text::escaping::escaped;
use crate::text::numbers;

/// Minimum share of misses among gets for the advice to add an existence filter.
const MISS_SHARE_MIN: f64 = 0.05;

/// Prints the advice for every keyspace.
pub fn run(store: &StoreLocation, json: bool) -> CommandResult<()> {
    let db = store.open_read_only()?;
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
        "failures": advice.mispredictions,
        "plain_bytes": advice.plain_bytes,
        "kept_bytes": advice.kept_bytes,
        "false_reads_per_get": advice.false_reads,
        "plain_false_reads_per_get": advice.plain_false_reads,
        "best_false_reads_per_get": {
            "half_the_memory": half,
            "same_memory": same,
            "twice_the_memory": twice,
        },
        "existence": advice.existence.as_ref().map(stats_json::existence_json),
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

/// Sentence about the existence filter.
fn existence(advice: &FilterAdvice) -> String {
    let Some(stats) = &advice.existence else {
        let share = advice.absent_share;
        if advice.gets < 1.0 || share < MISS_SHARE_MIN {
            return "  It has no existence filter.".into();
        }
        return format!(
            "  It has no existence filter. {} of recent gets were misses; a growing filter would \
             take about {}\n  and answer nearly all of them before any table is read.",
            numbers::percent(share),
            numbers::bytes(advice.existence_bytes)
        );
    };
    let (items, bytes) = (numbers::grouped(stats.items), numbers::bytes(stats.memory_bytes));
    let state = stats.state();
    format!(
        "  Its existence filter is {state}: {items} keys of {} in {bytes}, false-positive rate {} \
         by design,\n  {} at its fill.",
        numbers::grouped(stats.designed_items),
        numbers::percent(stats.designed_rate),
        numbers::percent(stats.estimated_rate)
    )
}

fn text(advice: &FilterAdvice) -> Vec<String> {
    let keyspace = escaped(advice.keyspace.as_bytes());
    let mut lines = vec![format!("keyspace `{keyspace}`"), existence(advice)];
    if !advice.has_filters {
        lines.push("  Its tables have no filters, by its options.".into());
        return lines;
    }
    if advice.levels.is_empty() {
        lines.push("  It has no tables yet, and so no filters.".into());
        return lines;
    }
    let kept = numbers::bytes(advice.kept_bytes);
    let plain = numbers::bytes(advice.plain_bytes);
    lines.push(format!(
        "  {kept} of filters are in memory; {} bits per key on all levels would be {plain}.",
        advice.bloom_bits
    ));
    if advice.gets < 1.0 {
        lines.push(
            "  No gets are recorded: the store records counts of reads at flushes and at a clean \
             close."
                .into(),
        );
    } else {
        lines.push(format!(
            "  Last {:.0} gets, by design: {} false positives per thousand gets now, {} with {} \
             bits on all levels.",
            advice.gets,
            per_thousand(advice.false_reads),
            per_thousand(advice.plain_false_reads),
            advice.bloom_bits
        ));
        let [half, same, twice] = advice.best_false_reads.map(per_thousand);
        lines.push(format!(
            "  With the best filters, after all tables are rewritten: {half} with half the memory, \
             {same} with the\n  same, {twice} with twice as much."
        ));
    }
    if advice.mispredictions > 0 {
        lines.push(format!(
            "  {} predictions of the advisor failed; after each, the plain filters were kept for \
             a time.",
            numbers::grouped(advice.mispredictions)
        ));
    }
    lines.push(format!(
        "  {:>5} {:>7} {:>13} {:>12} {:>13} {:>10} {:>10}  new tables get",
        "level", "tables", "entries", "absent/get", "present/get", "kept", "in memory"
    ));
    for level in &advice.levels {
        let best = match level.best {
            Some((kind, bits)) => format!("an additional {kind} filter of {bits:.1} bits"),
            None => "only the plain filter".to_string(),
        };
        lines.push(format!(
            "  {:>5} {:>7} {:>13} {:>12.4} {:>13.4} {:>10} {:>10}  {best}",
            level.level,
            numbers::grouped(level.tables),
            numbers::grouped(level.entries),
            level.absent_per_get,
            level.present_per_get,
            level.kept,
            numbers::bytes(level.bytes_in_memory)
        ));
        lines.push(format!("        {}", level.why));
    }
    lines
}

fn per_thousand(share: f64) -> String {
    format!("{:.2}", share * 1000.0)
}
