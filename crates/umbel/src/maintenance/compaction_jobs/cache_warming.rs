//! Cache warming: after a compaction, blocks of the outputs replace the cached blocks of the
//! inputs. Without cache warming, readers would often wait for the device after a compaction: the
//! moved entries are in new blocks that are not cached.
//!
//! A few keys of each cached block of the inputs are looked up in the indexes of the outputs. An
//! output block that holds two of the looked-up keys is loaded, since about half of its entries
//! come from cached blocks. The loaded blocks take hardly more memory than the inputs' cached
//! blocks. For the same reason, Leaper (Yang and others, VLDB 2020) loads the blocks that it
//! predicts will be read.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::version::{LiveTable, OpenedTable};

/// Number of keys from cached blocks with which an output's block is loaded.
const VOTES: u32 = 2;
/// Number of blocks that are loaded before the counter of warmed blocks is updated.
const WARMED_TOGETHER: usize = 64;

/// Loads the blocks of `outputs` whose entries came from cached blocks of `inputs`. The outputs
/// ascend by key and do not overlap. Returns the number of loaded blocks. Skips blocks that cannot
/// be read, and stops when `should_preempt` returns `true`.
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
