//! The chunks of an arena, and the allocation of extents in them.

use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use umbel_base::ignore_poison::IgnorePoison;

use crate::chunk::{Chunk, HUGE_PAGE_BYTES, LINE_BYTES};
use crate::free_extents::{Extent, FreeExtents};

/// Bytes of the first chunk, which is small so that a store of a few entries does not take a huge
/// page.
const CHUNK_BYTES_MIN: usize = 64 * 1024;
/// An allocation larger than this gets a chunk of its own, which is freed with the allocation.
const SHARED_BYTES_MAX: usize = HUGE_PAGE_BYTES / 2;

/// Used and total memory of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkUsage {
    /// Number of the chunk, as [`crate::Allocation::chunk`] returns it.
    pub number: u32,
    /// Bytes of the allocations in the chunk.
    pub used: usize,
    /// Bytes of the chunk.
    pub bytes: usize,
}

/// The chunks of an arena; every allocation keeps them alive.
#[derive(Debug, Default)]
pub(crate) struct ChunkAllocator {
    state: Mutex<AllocatorState>,
    used: AtomicUsize,
    reserved: AtomicUsize,
}

#[derive(Debug, Default)]
struct AllocatorState {
    free: FreeExtents,
    /// Chunks by number; `None` for a chunk that was freed.
    chunks: Vec<Option<Chunk>>,
    vacant: Vec<u32>,
    /// Number of a free chunk that is kept, so that repeatedly making and freeing an allocation
    /// does not map a chunk each time.
    spare: Option<u32>,
}

impl AllocatorState {
    fn add(&mut self, chunk: Chunk) -> u32 {
        let number = self.vacant.pop().unwrap_or(self.chunks.len() as u32);
        if number as usize == self.chunks.len() {
            self.chunks.push(None);
        }
        self.chunks[number as usize] = Some(chunk);
        number
    }

    fn whole(&self, number: u32) -> Option<Extent> {
        let chunk = self.chunks.get(number as usize)?.as_ref()?;
        Some(Extent { chunk: number, start: 0, lines: (chunk.bytes() / LINE_BYTES) as u32 })
    }

    fn release(&mut self, number: u32) -> Option<Chunk> {
        self.vacant.push(number);
        self.chunks.get_mut(number as usize)?.take()
    }
}

impl ChunkAllocator {
    /// Returns the bytes in allocations, and the bytes taken from the system.
    pub(crate) fn bytes(&self) -> (usize, usize) {
        (self.used.load(Ordering::Relaxed), self.reserved.load(Ordering::Relaxed))
    }

    /// Takes `bytes` bytes, and returns their start and the number of their chunk.
    ///
    /// REQUIRES: `bytes` is a multiple of [`LINE_BYTES`], neither zero nor over 4 GiB.
    pub(crate) fn take(&self, bytes: usize) -> (NonNull<u8>, u32) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        let mut state = self.state.lock().ignore_poison();
        if bytes > SHARED_BYTES_MAX {
            let chunk = Chunk::new(bytes);
            let start = chunk.start();
            self.reserved.fetch_add(bytes, Ordering::Relaxed);
            return (start, state.add(chunk));
        }
        let lines = (bytes / LINE_BYTES) as u32;
        let extent = match state.free.take(lines) {
            Some(extent) => extent,
            None => self.grow(&mut state, lines),
        };
        if state.spare == Some(extent.chunk) {
            state.spare = None;
        }
        let chunk = state.chunks[extent.chunk as usize].as_ref();
        let chunk = chunk.expect("an extent that is free is part of a chunk");
        // SAFETY: extents lie inside their chunk: each was cut from one that covered it exactly.
        let start = unsafe { chunk.start().add(extent.start as usize * LINE_BYTES) };
        (start, extent.chunk)
    }

    /// Adds a chunk and takes `lines` lines of it.
    #[cold]
    fn grow(&self, state: &mut AllocatorState, lines: u32) -> Extent {
        let held = self.reserved.load(Ordering::Relaxed);
        let wanted = held.next_power_of_two().clamp(CHUNK_BYTES_MIN, HUGE_PAGE_BYTES);
        let bytes = wanted.max((lines as usize * LINE_BYTES).next_power_of_two());
        let number = state.add(Chunk::new(bytes));
        self.reserved.fetch_add(bytes, Ordering::Relaxed);
        let all = (bytes / LINE_BYTES) as u32;
        state.free.give(Extent { chunk: number, start: 0, lines: all });
        state.free.take(lines).expect("a new chunk has room for what it was made for")
    }

    /// Returns the partly used chunks of several allocations, the least used first.
    pub(crate) fn sparsest_chunks(&self) -> Vec<ChunkUsage> {
        let state = self.state.lock().ignore_poison();
        let mut chunks: Vec<ChunkUsage> = Vec::new();
        for (number, free) in state.free.free_lines() {
            let Some(Some(chunk)) = state.chunks.get(number as usize) else { continue };
            let bytes = chunk.bytes();
            let used = bytes - free as usize * LINE_BYTES;
            if used > 0 {
                chunks.push(ChunkUsage { number, used, bytes });
            }
        }
        drop(state);
        chunks.sort_unstable_by_key(|chunk| (chunk.used, chunk.number));
        chunks
    }

    /// Frees memory of [`ChunkAllocator::take`].
    ///
    /// REQUIRES: `start`, `number` and `bytes` are of one call of `take`, and no thread uses the
    /// memory any more.
    pub(crate) fn give(&self, start: NonNull<u8>, number: u32, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        let mut state = self.state.lock().ignore_poison();
        let Some(whole) = state.whole(number) else { return };
        let leaves = if bytes > SHARED_BYTES_MAX {
            Some(number)
        } else {
            let first = state.chunks[number as usize].as_ref().map(Chunk::start);
            let offset = start.addr().get() - first.map_or(0, |first| first.addr().get());
            let start = (offset / LINE_BYTES) as u32;
            let lines = (bytes / LINE_BYTES) as u32;
            let joined = state.free.give(Extent { chunk: number, start, lines });
            if joined != whole {
                None
            } else if state.spare.is_none() {
                state.spare = Some(number);
                None
            } else {
                state.free.remove_chunk(joined);
                Some(number)
            }
        };
        let freed = leaves.and_then(|number| state.release(number));
        drop(state);
        if let Some(chunk) = freed {
            self.reserved.fetch_sub(chunk.bytes(), Ordering::Relaxed);
        }
    }
}
