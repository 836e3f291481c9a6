//! Probes of the blocked kinds with the vector instructions that this processor has.
//!
//! The only module of this crate with unsafe code, of five kinds. Functions compiled for AVX2, and
//! the probe function of a filter, are called after a check that the processor has AVX2. 16 bytes
//! of an array are loaded into a NEON register, which every aarch64 processor has. A line in which
//! other threads set bits is loaded into an AVX-512 register. A cache line is prefetched. All other
//! memory is read through slices, and all other intrinsics are safe. Vector functions return `None`
//! without effect if the processor lacks the instructions: then the caller must run the portable
//! code.
#![expect(unsafe_code, reason = "vectors are used once they are known to be there")]

use crate::probe::cache_line::Words;
use std::fmt;
use std::sync::atomic::AtomicU64;

/// Vector instructions for probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstructionSet {
    /// Instructions that every processor of the target has.
    Portable,
    /// AVX2, found on an x86-64 processor at run time, with BMI2 and POPCNT, which come with it.
    Avx2,
    /// NEON, which every aarch64 processor has.
    Neon,
}

impl InstructionSet {
    /// The vector instructions that filters use on this processor.
    pub fn of_this_processor() -> InstructionSet {
        #[cfg(test)]
        if tests::PORTABLE.get() {
            return InstructionSet::Portable;
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
        {
            return InstructionSet::Avx2;
        }
        if cfg!(all(target_arch = "aarch64", target_feature = "neon")) {
            return InstructionSet::Neon;
        }
        InstructionSet::Portable
    }
}

/// Whether vector instructions are available, determined once for each filter and stored with it.
/// Testing the processor for each key would take as long as half of the probes.
///
/// INVARIANT: a true value was made by [`Vectors::of_this_processor`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vectors(bool);

/// Whether the processor counts the bits of each of eight lanes at once, determined like
/// [`Vectors`]: AVX-512 with its instructions that count bits, besides those of [`Vectors`].
///
/// INVARIANT: a true value was made by [`WideLanes::of_this_processor`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct WideLanes(bool);

impl WideLanes {
    /// Value for a filter that cannot be probed with these instructions.
    pub(crate) const NONE: WideLanes = WideLanes(false);

    /// Detects the processor features.
    pub(crate) fn of_this_processor() -> WideLanes {
        #[cfg(test)]
        if tests::WITHOUT_LANES.get() {
            return WideLanes(false);
        }
        #[cfg(target_arch = "x86_64")]
        if InstructionSet::of_this_processor() == InstructionSet::Avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vpopcntdq")
        {
            return WideLanes(true);
        }
        WideLanes(false)
    }

    /// Does the work with them; `None`, with nothing done, on other processors.
    #[inline(always)]
    pub(crate) fn run<W: WideLaneCode>(self, work: W) -> Option<W::Answer> {
        #[cfg(target_arch = "x86_64")]
        if self.0 {
            // SAFETY: this processor was found to have the function's instructions.
            return Some(unsafe { avx512::run(work) });
        }
        let _ = (self.0, work);
        None
    }
}

/// Code for processors with [`WideLanes`].
pub(crate) trait WideLaneCode {
    /// Result of the call.
    type Answer;

    /// Runs the code, always inlined into its caller. `odd` takes two times eight words and a mask
    /// for each eight. The result of `odd` has bit `n` set if lane `n` of both, masked and joined
    /// by exclusive or, has an odd number of bits.
    #[cfg_attr(
        not(all(target_arch = "x86_64", not(miri))),
        expect(dead_code, reason = "only code for AVX2 and AVX-512 has a use for it")
    )]
    fn run(self, odd: impl Fn([&[[u8; 8]; 8]; 2], [u64; 2]) -> u32) -> Self::Answer;
}

/// Whether the processor tests eight bits of a line of 512 at once, determined once for each filter
/// and kept with it: AVX-512 with its instructions for words of 16 bits. For filters whose lines
/// are probed while other threads set bits in them.
///
/// INVARIANT: a true value was made by [`LineLanes::of_this_processor`].
#[derive(Clone, Copy, Debug)]
pub struct LineLanes(bool);

impl LineLanes {
    /// Value for a processor without these instructions: [`LineLanes::run`] does nothing.
    pub const NONE: LineLanes = LineLanes(false);

    /// Detects the processor features.
    pub fn of_this_processor() -> LineLanes {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if InstructionSet::of_this_processor() == InstructionSet::Avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
        {
            return LineLanes(true);
        }
        LineLanes(false)
    }

    /// Does the work with them; `None`, with nothing done, on other processors.
    #[inline(always)]
    pub fn run<W: LineCode>(self, work: W) -> Option<W::Answer> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.0 {
            // SAFETY: this processor was found to have the function's instructions.
            return Some(unsafe { avx512::by_line(work) });
        }
        let _ = (self.0, work);
        None
    }
}

/// Code for processors with [`LineLanes`].
pub trait LineCode {
    /// Result of the call.
    type Answer;

    /// Runs the code; `#[inline(always)]`, so that it becomes a part of a caller that has the
    /// instructions. `held` takes a line of eight words, two mixes of a hash and the number of used
    /// bits of the line. Each mix has four times sixteen bits, from the lowest on. A position is
    /// such a number times the used bits, shifted right by sixteen. `held` returns which positions
    /// have their bit set: bit 0 is for the first mix's lowest sixteen bits, bit 4 for the
    /// second's. Position `p` is bit `p % 64` of word `p / 64`.
    fn run(self, held: impl Fn(&[AtomicU64; 8], [u64; 2], u16) -> u8) -> Self::Answer;
}

/// Calls a function of [`avx2`] or [`neon`] and returns its result, or `None`.
macro_rules! with_vectors {
    ($vectors:ident, $function:ident($($argument:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        if $vectors.0 {
            // SAFETY: the function wants a processor with AVX2, and this processor was tested for
            // it.
            return Some(unsafe { avx2::$function($($argument),*) });
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        if $vectors.0 {
            // SAFETY: the function wants a processor with NEON, which the target says it has.
            return Some(unsafe { neon::$function($($argument),*) });
        }
        let _ = ($vectors.0, $($argument),*);
        None
    }};
}

/// Code that is written once and compiled twice: for every processor of the target, and for those
/// whose [`Vectors`] can be used.
pub(crate) trait MultiversionCode {
    /// Result of the call.
    type Answer;

    /// Runs the code, always inlined into its caller. `COUNTS` says whether the processor is known
    /// to have an instruction that counts bits.
    fn run<const COUNTS: bool>(self) -> Self::Answer;
}

/// A [`VectorizedFilter`] that probes with a function of [`avx2`] or [`neon`], or `None`.
macro_rules! vectorized {
    ($vectors:ident, $function:ident, $input:ident) => {{
        #[cfg(target_arch = "x86_64")]
        if $vectors.0 {
            return Some(VectorizedFilter { contains_fn: avx2::$function, input: $input });
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        if $vectors.0 {
            return Some(VectorizedFilter { contains_fn: neon::$function, input: $input });
        }
        let _ = $input;
        None
    }};
}

/// Input of a function that probes a whole filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeInput<'a> {
    pub(crate) payload: &'a [u8],
    /// The payload as split blocks.
    #[cfg_attr(
        not(all(target_arch = "x86_64", not(miri))),
        expect(dead_code, reason = "only code for AVX2 and AVX-512 has a use for it")
    )]
    pub(crate) blocks: &'a [[u8; 32]],
    /// The bits of a filter without blocks.
    pub(crate) bits: u64,
    pub(crate) probes: u8,
}

/// A filter and the function that probes all of it for one hash: a call through a pointer. A call
/// through a pointer is the shortest if filter and instructions are known only at run time.
///
/// INVARIANT: `contains_fn` uses only instructions that the processor was found to have.
#[derive(Clone, Copy)]
pub(crate) struct VectorizedFilter<'a> {
    contains_fn: unsafe fn(&ProbeInput<'_>, u64) -> bool,
    input: ProbeInput<'a>,
}

impl<'a> VectorizedFilter<'a> {
    /// A filter that is probed by a function which every processor can run.
    pub(crate) fn portable(
        contains_fn: fn(&ProbeInput<'_>, u64) -> bool,
        input: ProbeInput<'a>,
    ) -> VectorizedFilter<'a> {
        VectorizedFilter { contains_fn, input }
    }

    /// Returns the same filter over `payload`, which must be the same bytes at another address.
    #[inline]
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> VectorizedFilter<'b> {
        let (blocks, _) = payload.as_chunks();
        VectorizedFilter {
            contains_fn: self.contains_fn,
            input: ProbeInput { payload, blocks, ..self.input },
        }
    }

    /// Whether the key of `hash` may have been added; never false for an added key.
    #[inline(always)]
    pub(crate) fn contains(&self, hash: u64) -> bool {
        // SAFETY: the constructor found that the processor has the function's instructions.
        unsafe { (self.contains_fn)(&self.input, hash) }
    }
}

impl fmt::Debug for VectorizedFilter<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("VectorizedFilter").field(&self.input).finish()
    }
}

impl Vectors {
    /// Detects the processor features.
    pub(crate) fn of_this_processor() -> Vectors {
        Vectors(InstructionSet::of_this_processor() != InstructionSet::Portable)
    }

    /// Runs the code compiled for this processor's vector instructions, if there is such code, else
    /// the portable code.
    #[inline(always)]
    pub(crate) fn run<W: MultiversionCode>(self, work: W) -> W::Answer {
        #[cfg(target_arch = "x86_64")]
        if self.0 {
            // SAFETY: the function needs AVX2 and the instructions that it implies, which this
            // processor has.
            return unsafe { avx2::run(work) };
        }
        work.run::<false>()
    }

    /// Whether a line of 512 bits has the bits of `hash`.
    #[inline(always)]
    pub(crate) fn in_line_512(self, line: &impl Words, hash: u64, probes: u32) -> Option<bool> {
        with_vectors!(self, in_line_512(line, hash, probes))
    }

    /// Function that probes a whole filter of lines of 512 bits.
    pub(crate) fn filter_512(self, input: ProbeInput<'_>) -> Option<VectorizedFilter<'_>> {
        vectorized!(self, whole_512, input)
    }

    /// Function that probes a whole filter of blocks of 256 bits.
    pub(crate) fn filter_256(self, input: ProbeInput<'_>) -> Option<VectorizedFilter<'_>> {
        vectorized!(self, whole_256, input)
    }

    /// Function that probes a whole filter of split blocks.
    pub(crate) fn filter_split(self, input: ProbeInput<'_>) -> Option<VectorizedFilter<'_>> {
        vectorized!(self, whole_split, input)
    }

    /// Tests for every hash whether its line of 512 bits has its bits.
    pub(crate) fn lines_512(
        self,
        lines: &[impl Words],
        hashes: &[u64],
        probes: u32,
        found: &mut [bool],
    ) -> Option<()> {
        with_vectors!(self, lines_512(lines, hashes, probes, found))
    }

    /// Tests for every hash whether its block of 256 bits has its bits.
    pub(crate) fn blocks_256(
        self,
        blocks: &[[u8; 32]],
        hashes: &[u64],
        probes: u32,
        found: &mut [bool],
    ) -> Option<()> {
        with_vectors!(self, blocks_256(blocks, hashes, probes, found))
    }

    /// Tests for every hash whether its split block has its bits.
    pub(crate) fn split_blocks(
        self,
        blocks: &[[u8; 32]],
        hashes: &[u64],
        found: &mut [bool],
    ) -> Option<()> {
        with_vectors!(self, split_blocks(blocks, hashes, found))
    }
}

/// Prefetches the cache line of `place` without waiting. The caller should prefetch other lines
/// before it reads this one. Does nothing on processors without prefetch.
#[inline(always)]
pub(crate) fn prefetch<T>(place: &T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing that the program can see and never faults; SSE, which has
    // it, is part of every x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

/// Loads eight words into a register, each word as it is at some moment.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[target_feature(enable = "avx512f")]
fn load_line(line: &[AtomicU64; 8]) -> std::arch::x86_64::__m512i {
    let words;
    // SAFETY: it reads 64 borrowed bytes and nothing else. Other threads may set bits at the same
    // time, which an ordinary read must not race with. The processor reads each aligned word of
    // eight bytes, as these are, atomically.
    unsafe {
        std::arch::asm!(
            "vmovdqu64 {words}, [{line}]",
            words = out(zmm_reg) words,
            line = in(reg) line.as_ptr(),
            options(nostack, preserves_flags, readonly)
        );
    }
    words
}

/// Loads sixteen bytes into a register.
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
#[inline]
#[target_feature(enable = "neon")]
fn load_16(bytes: &[u8; 16]) -> std::arch::aarch64::uint8x16_t {
    // SAFETY: the pointer is that of 16 bytes that may be read; none need be aligned.
    unsafe { std::arch::aarch64::vld1q_u8(bytes.as_ptr()) }
}

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;

#[cfg(test)]
mod tests;
