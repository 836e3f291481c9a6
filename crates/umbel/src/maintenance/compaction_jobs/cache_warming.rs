//! Cache warming: after a compaction the outputs' blocks replace the cached blocks of the inputs,
//! so that no reader waits for the device because entries moved.
//!
//! A few keys of each cached block of the inputs are looked up in the indexes of the outputs. An
//! output block with two of these keys has about half of its entries from cached blocks, and is
//! loaded. The loaded blocks hardly exceed the inputs' cached ones. Leaper (Yang and others, VLDB
//! 2020) loads blocks that it predicts will be read, for the same reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::version::{LiveTable, OpenedTable};

/// Keys of cached blocks that make an output's block worth loading.
const VOTES: u32 = 2;
/// Number of blocks that are loaded before they are counted.
const WARMED_TOGETHER: usize = 64;

/// Loads the blocks of `outputs` whose entries came from cached blocks of `inputs`. Outputs ascend
/// by key and do not overlap. Returns the number of blocks. Blocks that cannot be read, or that
/// come after `should_preempt` returns `true`, are left to later reads.
pub fn warm_outputs<'a>(
    inputs: impl Iterator<Item = &'a Arc<LiveTable>>,
    outputs: &[Arc<LiveTable>],
    should_preempt: impl Fn() -> bool,
) -> u64 {
    let opened = inputs.filter_map(|table| table.opened()).map(OpenedTable::table);
    let (mut cached, mut votes) = (0, BTreeMap::<(usize, u32), u32>::new());
    for table in opened {
        if should_preempt() {
            return 0;
        }
        cached += table.slots().resident_bytes();
        table.sample_cached(|key| {
            let output = outputs.partition_point(|output| !output.reaches(key));
            let reader = outputs.get(output).and_then(|output| output.opened());
            let reader = reader.map(OpenedTable::table);
            if let Some(block) = reader.and_then(|reader| reader.block_of(key)) {
                *votes.entry((output, block)).or_default() += 1;
            }
        });
    }
    let mut carried = 0;
    votes.retain(|_, count| *count >= VOTES);
    let mut blocks: Vec<u32> = Vec::new();
    for (number, output) in outputs.iter().enumerate() {
        let Some(reader) = output.opened().map(OpenedTable::table) else { continue };
        blocks.clear();
        let range = (number, 0)..=(number, u32::MAX);
        blocks.extend(votes.range(range).map(|((_, block), _)| block));
        for blocks in blocks.chunks(WARMED_TOGETHER) {
            if should_preempt() {
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
