//! Probes of the blocked kinds with the vector instructions that the processor turns out to have.
//!
//! The one module of this crate with unsafe code, of five sorts: functions that are compiled for
//! AVX2 are called after asking the processor whether it has it; so is the function that a filter
//! was made with; 16 bytes of an array are loaded into a register of NEON, which every aarch64
//! processor has; a line that others set bits in meanwhile is loaded into one of AVX-512; and a
//! cache line is asked for before it is needed. All other memory is read
//! through slices, and the other intrinsics are safe ones. What answers with vectors says `None`,
//! and has done nothing, where the processor has neither: then the portable code must answer.
#![expect(unsafe_code, reason = "vectors are used once they are known to be there")]

use crate::line::Words;
use std::fmt;
use std::sync::atomic::AtomicU64;

/// Which vector instructions filters are asked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstructionSet {
    /// What every processor of the target has.
    Portable,
    /// AVX2, found on an x86-64 processor at run time, with BMI2 and POPCNT, which come with it.
    Avx2,
    /// NEON, which every aarch64 processor has.
    Neon,
}

impl InstructionSet {
    /// The instructions that are used on this processor.
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

/// Whether there are vectors to ask with, found out once for a filter and kept beside it: to ask
/// the processor for each key takes as long as half of the probes.
///
/// INVARIANT: one that says yes was made by [`Vectors::of_this_processor`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vectors(bool);

/// Whether the processor counts the bits of each of eight lanes at once, found out like
/// [`Vectors`]: AVX-512 with its instructions that count bits, besides what [`Vectors`] want.
///
/// INVARIANT: one that says yes was made by [`Lanes::of_this_processor`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes(bool);

impl Lanes {
    /// Those of a filter that cannot be asked with them.
    pub(crate) const NONE: Lanes = Lanes(false);

    /// Asks the processor.
    pub(crate) fn of_this_processor() -> Lanes {
        #[cfg(test)]
        if tests::WITHOUT_LANES.get() {
            return Lanes(false);
        }
        #[cfg(target_arch = "x86_64")]
        if InstructionSet::of_this_processor() == InstructionSet::Avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vpopcntdq")
        {
            return Lanes(true);
        }
        Lanes(false)
    }

    /// Does the work with them; `None`, with nothing done, on other processors.
    #[inline(always)]
    pub(crate) fn run<W: ByLanes>(self, work: W) -> Option<W::Answer> {
        #[cfg(target_arch = "x86_64")]
        if self.0 {
            // SAFETY: the function wants what this processor was found to have.
            return Some(unsafe { avx512::run(work) });
        }
        let _ = (self.0, work);
        None
    }
}

/// Code for processors with [`Lanes`].
pub(crate) trait ByLanes {
    /// What it answers.
    type Answer;

    /// Does it, always as a part of its caller. `odd` takes two times eight words and a mask for
    /// each eight, and says which lanes of what is left of both, joined by exclusive or, have an
    /// odd number of bits: lane `n` in bit `n`.
    fn run(self, odd: impl Fn([&[[u8; 8]; 8]; 2], [u64; 2]) -> u32) -> Self::Answer;
}

/// Whether the processor tests eight bits of a line of 512 at once, found out once for a filter and
/// kept beside it: AVX-512 with its instructions for words of 16 bits. For filters whose lines are
/// asked while others set bits in them.
///
/// INVARIANT: one that says yes was made by [`LineLanes::of_this_processor`].
#[derive(Clone, Copy, Debug)]
pub struct LineLanes(bool);

impl LineLanes {
    /// Those of no processor: [`LineLanes::run`] does nothing.
    pub const NONE: LineLanes = LineLanes(false);

    /// Asks the processor.
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
    pub fn run<W: ByLine>(self, work: W) -> Option<W::Answer> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.0 {
            // SAFETY: the function wants what this processor was found to have.
            return Some(unsafe { avx512::by_line(work) });
        }
        let _ = (self.0, work);
        None
    }
}

/// Code for processors with [`LineLanes`].
pub trait ByLine {
    /// What it answers.
    type Answer;

    /// Does it; `#[inline(always)]`, so that it becomes a part of a caller who has the
    /// instructions. `held` takes a line of eight words, two mixes of a hash and how many bits of
    /// the line are in use: each mix has four times sixteen bits, from the lowest on, and each of
    /// those times the bits, without the low sixteen, is a position. It says which positions have
    /// their bit set: that of the first mix's lowest sixteen in bit 0, of the second's in bit 4.
    /// Position `p` is bit `p % 64` of word `p / 64`.
    fn run(self, held: impl Fn(&[AtomicU64; 8], [u64; 2], u16) -> u8) -> Self::Answer;
}

/// Calls a function of [`avx2`] or [`neon`] and answers with what it says, or with `None`.
macro_rules! with_vectors {
    ($vectors:ident, $function:ident($($argument:expr),*)) => {{
        #[cfg(target_arch = "x86_64")]
        if $vectors.0 {
            // SAFETY: the function wants a processor with AVX2, and this one was asked for it.
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
pub(crate) trait CompiledTwice {
    /// What it answers.
    type Answer;

    /// Does it, always as a part of its caller. `COUNTS` says whether the processor is known to
    /// have an instruction that counts bits.
    fn run<const COUNTS: bool>(self) -> Self::Answer;
}

/// A [`Whole`] that asks with a function of [`avx2`] or [`neon`], or `None`.
macro_rules! whole {
    ($vectors:ident, $function:ident, $asked:ident) => {{
        #[cfg(target_arch = "x86_64")]
        if $vectors.0 {
            return Some(Whole { ask: avx2::$function, asked: $asked });
        }
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        if $vectors.0 {
            return Some(Whole { ask: neon::$function, asked: $asked });
        }
        let _ = $asked;
        None
    }};
}

/// What a function needs to know that asks a whole filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) payload: &'a [u8],
    /// The payload as split blocks.
    pub(crate) blocks: &'a [[u8; 32]],
    /// The bits of a filter that is not made of blocks.
    pub(crate) bits: u64,
    pub(crate) probes: u8,
}

/// A filter and the function that asks all of it for one hash: a call through a pointer, the
/// shortest way there is where it is known only at run time what is asked, and with what.
///
/// INVARIANT: `ask` wants no more than what the processor was found to have.
#[derive(Clone, Copy)]
pub(crate) struct Whole<'a> {
    ask: unsafe fn(&Asked<'_>, u64) -> bool,
    asked: Asked<'a>,
}

impl<'a> Whole<'a> {
    /// A filter that is asked by a function which every processor can run.
    pub(crate) fn portable(ask: fn(&Asked<'_>, u64) -> bool, asked: Asked<'a>) -> Whole<'a> {
        Whole { ask, asked }
    }

    /// The same filter over `payload`, which must be the same bytes somewhere else.
    #[inline]
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> Whole<'b> {
        let (blocks, _) = payload.as_chunks();
        Whole { ask: self.ask, asked: Asked { payload, blocks, ..self.asked } }
    }

    /// Whether the key of `hash` may have been added.
    #[inline(always)]
    pub(crate) fn contains(&self, hash: u64) -> bool {
        // SAFETY: whoever made this had found the processor to have what the function wants.
        unsafe { (self.ask)(&self.asked, hash) }
    }
}

impl fmt::Debug for Whole<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Whole").field(&self.asked).finish()
    }
}

impl Vectors {
    /// Asks the processor.
    pub(crate) fn of_this_processor() -> Vectors {
        Vectors(InstructionSet::of_this_processor() != InstructionSet::Portable)
    }

    /// Runs the better one of the two.
    #[inline(always)]
    pub(crate) fn run<W: CompiledTwice>(self, work: W) -> W::Answer {
        #[cfg(target_arch = "x86_64")]
        if self.0 {
            // SAFETY: the function wants AVX2 and what comes with it, and this processor has it.
            return unsafe { avx2::run(work) };
        }
        work.run::<false>()
    }

    /// Whether a line of 512 bits has the bits of `hash`.
    #[inline(always)]
    pub(crate) fn in_line_512(self, line: &impl Words, hash: u64, probes: u32) -> Option<bool> {
        with_vectors!(self, in_line_512(line, hash, probes))
    }

    /// What asks a whole filter of lines of 512 bits.
    pub(crate) fn whole_512(self, asked: Asked<'_>) -> Option<Whole<'_>> {
        whole!(self, whole_512, asked)
    }

    /// What asks a whole filter of blocks of 256 bits.
    pub(crate) fn whole_256(self, asked: Asked<'_>) -> Option<Whole<'_>> {
        whole!(self, whole_256, asked)
    }

    /// What asks a whole filter of split blocks.
    pub(crate) fn whole_split(self, asked: Asked<'_>) -> Option<Whole<'_>> {
        whole!(self, whole_split, asked)
    }

    /// Answers for every hash whether its line of 512 bits has its bits.
    pub(crate) fn lines_512(
        self,
        lines: &[impl Words],
        hashes: &[u64],
        probes: u32,
        found: &mut [bool],
    ) -> Option<()> {
        with_vectors!(self, lines_512(lines, hashes, probes, found))
    }

    /// Answers for every hash whether its block of 256 bits has its bits.
    pub(crate) fn blocks_256(
        self,
        blocks: &[[u8; 32]],
        hashes: &[u64],
        probes: u32,
        found: &mut [bool],
    ) -> Option<()> {
        with_vectors!(self, blocks_256(blocks, hashes, probes, found))
    }

    /// Answers for every hash whether its split block has its bits.
    pub(crate) fn split_blocks(
        self,
        blocks: &[[u8; 32]],
        hashes: &[u64],
        found: &mut [bool],
    ) -> Option<()> {
        with_vectors!(self, split_blocks(blocks, hashes, found))
    }
}

/// Asks the processor for the cache line of `place` without waiting for it: one that is read soon,
/// many others in between. Does nothing where the processor cannot be asked.
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

/// Eight words in a register, each as it is at some moment.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
#[target_feature(enable = "avx512f")]
fn load_line(line: &[AtomicU64; 8]) -> std::arch::x86_64::__m512i {
    let words;
    // SAFETY: it reads 64 bytes that are borrowed, and touches nothing else. Others may set bits
    // meanwhile, which a read by the compiler's own means must not meet; the processor reads each
    // word that lies on a boundary of eight bytes, as these do, as a whole.
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

/// Sixteen bytes in a register.
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
