//! Probes of the bits of a line, with the processor's vector instructions.
//!
//! If the processor tests all bits at once, the only branch is on the answer, which is nearly
//! always the same. A branch after two bits is mispredicted for a quarter of absent hashes. The
//! processor notices a misprediction only when the line has arrived from memory, and until then
//! executes instructions that it discards.

use umbel_filter::{LineCode, LineLanes};

use crate::layout::cache_line::{
    AtomicLine, LINE_BITS, MULTIPLIERS, PROBES_RANGE, has_all, locate, mix,
};

/// Data of a filter that a probe needs.
pub(crate) trait ProbeTarget {
    /// The lines of the filter that are in memory.
    fn lines(&self) -> &[AtomicLine];
    /// Number of lines over which hashes are distributed.
    fn count(&self) -> u64;
    /// Code that probes a line.
    fn prober(&self) -> &Prober;
}

/// Probes of a filter's lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prober {
    lanes: LineLanes,
    probes: u32,
    /// A bit for each probe.
    full_mask: u8,
}

impl Prober {
    /// Creates probes of `probes` bits, with the vector instructions of this processor.
    pub(crate) fn new(probes: u32) -> Prober {
        Prober::with(LineLanes::of_this_processor(), probes)
    }

    fn with(lanes: LineLanes, probes: u32) -> Prober {
        let held = (1u16 << probes.min(*PROBES_RANGE.end())) - 1;
        Prober { lanes, probes, full_mask: held as u8 }
    }
}

/// Whether a hash's line has all bits of the hash. A line that is not in `lines` counts as having
/// them.
#[inline(always)]
pub(crate) fn probe<A: ProbeTarget>(target: &A, hash: u64) -> bool {
    let by_lanes = target.prober().lanes.run(SingleProbe(target, hash));
    by_lanes.unwrap_or_else(|| probe_portably(target, hash))
}

/// Probes a line without vector instructions.
#[inline(never)]
fn probe_portably<A: ProbeTarget>(target: &A, hash: u64) -> bool {
    let place = locate(hash, target.count());
    let line = target.lines().get(place.line as usize);
    line.is_none_or(|line| has_all(line, place, target.prober().probes))
}

/// Calls [`probe`] for each hash.
pub(crate) fn probe_all<A: ProbeTarget>(target: &A, hashes: &[u64], answers: &mut [bool]) {
    let all = BatchProbe { target, hashes, answers: &mut *answers };
    if target.prober().lanes.run(all).is_none() {
        for (hash, answer) in hashes.iter().zip(answers) {
            *answer = probe_portably(target, *hash);
        }
    }
}

/// A function that probes one hash, with arguments that fit into registers.
struct SingleProbe<'a, A>(&'a A, u64);

impl<A: ProbeTarget> LineCode for SingleProbe<'_, A> {
    type Answer = bool;

    #[inline(always)]
    fn run(self, held: impl Fn(&AtomicLine, [u64; 2], u16) -> u8) -> bool {
        let SingleProbe(target, hash) = self;
        let place = locate(hash, target.count());
        let mixes = MULTIPLIERS.map(|multiplier| mix(place.rest, multiplier));
        let line = target.lines().get(place.line as usize);
        let missing = |line| target.prober().full_mask & !held(line, mixes, LINE_BITS as u16);
        line.is_none_or(|line| missing(line) == 0)
    }
}

/// Many.
struct BatchProbe<'a, A> {
    target: &'a A,
    hashes: &'a [u64],
    answers: &'a mut [bool],
}

impl<A: ProbeTarget> LineCode for BatchProbe<'_, A> {
    type Answer = ();

    #[inline(always)]
    fn run(self, held: impl Fn(&AtomicLine, [u64; 2], u16) -> u8) {
        for (hash, answer) in self.hashes.iter().zip(self.answers) {
            *answer = SingleProbe(self.target, *hash).run(&held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::cache_line::{LINE_WORDS, LinePosition, mask, set};

    /// The first of forty lines.
    impl ProbeTarget for (&[AtomicLine], Prober) {
        fn lines(&self) -> &[AtomicLine] {
            self.0
        }

        fn count(&self) -> u64 {
            40
        }

        fn prober(&self) -> &Prober {
            &self.1
        }
    }

    /// Every instruction set answers by the bits that an insert sets.
    #[test]
    fn every_instruction_set_agrees() {
        let hash = |number: u64| umbel_base::checksum::checksum(3, number, b"key");
        for probes in PROBES_RANGE {
            let lines: Vec<AtomicLine> = (0..37).map(|_| AtomicLine::default()).collect();
            for number in 0..37 * 50 {
                let place = locate(hash(number), 40);
                if let Some(line) = lines.get(place.line as usize) {
                    set(line, &mask(place, probes));
                }
            }
            let hashes: Vec<u64> = (0..20_000).map(hash).collect();
            let expected = |at: LinePosition| {
                let Some(line) = lines.get(at.line as usize) else { return true };
                let (line, mask) = (crate::layout::cache_line::load(line), mask(at, probes));
                (0..LINE_WORDS).all(|word| line[word] & mask[word] == mask[word])
            };
            let expected: Vec<bool> =
                hashes.iter().map(|hash| expected(locate(*hash, 40))).collect();
            assert!(expected.contains(&true) && expected.contains(&false));
            for lanes in [LineLanes::of_this_processor(), LineLanes::NONE] {
                let filter = (&lines[..], Prober::with(lanes, probes));
                let single: Vec<bool> = hashes.iter().map(|hash| probe(&filter, *hash)).collect();
                let mut together = vec![false; hashes.len()];
                probe_all(&filter, &hashes, &mut together);
                assert!(single == expected && together == expected, "{probes} probes, {lanes:?}");
            }
        }
    }
}
