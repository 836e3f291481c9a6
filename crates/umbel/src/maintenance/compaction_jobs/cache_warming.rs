//! Carrying the cache over a compaction: what was read of its inputs stays in memory as what was
//! made of it, so that nobody waits for the device because entries moved.
//!
//! A few keys of each cached block of the inputs are looked up in the indexes of the outputs. A
//! block of an output that two of them fall into has about half of its entries from cached blocks,
//! and is loaded; hardly more than the inputs had in the cache. Leaper (Yang and others, VLDB
//! 2020) loads for the same reason what it predicts will be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::version::{OpenTable, TableFile};

/// Keys of cached blocks that make an output's block worth loading.
const VOTES: u32 = 2;
/// So many blocks are loaded before what was loaded is counted.
const CHUNK: usize = 64;

/// Loads into the cache what of `outputs` came from blocks of `inputs` that are in it. Outputs
/// ascend by key and do not overlap. Says how many blocks. What cannot be read is left to those who
/// ask for it, and so is what comes after `gives_up` says yes.
pub fn carry_over<'a>(
    inputs: impl Iterator<Item = &'a Arc<TableFile>>,
    outputs: &[Arc<TableFile>],
    gives_up: impl Fn() -> bool,
) -> u64 {
    let opened = inputs.filter_map(|table| table.opened()).map(OpenTable::table);
    let (mut cached, mut votes) = (0, BTreeMap::<(usize, u32), u32>::new());
    for table in opened {
        if gives_up() {
            return 0;
        }
        cached += table.slots().resident_bytes();
        table.sample_cached(|key| {
            let output = outputs.partition_point(|output| !output.reaches(key));
            let reader = outputs.get(output).and_then(|output| output.opened());
            let reader = reader.map(OpenTable::table);
            if let Some(block) = reader.and_then(|reader| reader.block_of(key)) {
                *votes.entry((output, block)).or_default() += 1;
            }
        });
    }
    let mut carried = 0;
    votes.retain(|_, count| *count >= VOTES);
    let mut blocks: Vec<u32> = Vec::new();
    for (number, output) in outputs.iter().enumerate() {
        let Some(reader) = output.opened().map(OpenTable::table) else { continue };
        blocks.clear();
        let range = (number, 0)..=(number, u32::MAX);
        blocks.extend(votes.range(range).map(|((_, block), _)| block));
        for blocks in blocks.chunks(CHUNK) {
            if gives_up() {
                return carried;
            }
            let Ok(loaded) = reader.warm(blocks) else { return carried };
            carried += loaded.blocks;
            cached = cached.saturating_sub(loaded.bytes);
            if cached == 0 {
                return carried;
            }
        }
    }
    carried
}
