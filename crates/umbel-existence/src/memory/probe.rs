//! Looking at the bits of a line, with what the processor has for that.
//!
//! Where it looks at all probes at once nothing is branched upon but the answer, which is nearly
//! always the same. A branch behind two probes goes wrong for a quarter of absent hashes, and that
//! is known only when the line has come from memory: until then the processor is busy with what it
//! will throw away.

use umbel_filter::{ByLine, LineLanes};

use crate::line::{AtomicLine, LINE_BITS, MULTIPLIERS, PROBES_RANGE, has_all, mix, place};

/// What a filter has to tell of itself to be asked.
pub(crate) trait Asked {
    /// The lines that are there.
    fn lines(&self) -> &[AtomicLine];
    /// How many lines hashes are spread over.
    fn count(&self) -> u64;
    /// How it is asked.
    fn asking(&self) -> &Asking;
}

/// How lines of a filter are asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking {
    lanes: LineLanes,
    probes: u32,
    /// A bit for each probe.
    held: u8,
}

impl Asking {
    /// With so many probes, and what this processor has.
    pub(crate) fn new(probes: u32) -> Asking {
        Asking::with(LineLanes::of_this_processor(), probes)
    }

    fn with(lanes: LineLanes, probes: u32) -> Asking {
        let held = (1u16 << probes.min(*PROBES_RANGE.end())) - 1;
        Asking { lanes, probes, held: held as u8 }
    }
}

/// Whether the line of a hash has all bits of it. One that is not there has them.
#[inline(always)]
pub(crate) fn ask<A: Asked>(asked: &A, hash: u64) -> bool {
    let by_lanes = asked.asking().lanes.run(One(asked, hash));
    by_lanes.unwrap_or_else(|| ask_portably(asked, hash))
}

/// The same without vectors.
#[inline(never)]
fn ask_portably<A: Asked>(asked: &A, hash: u64) -> bool {
    let place = place(hash, asked.count());
    let line = asked.lines().get(place.line as usize);
    line.is_none_or(|line| has_all(line, place, asked.asking().probes))
}

/// As [`ask`] for each hash.
pub(crate) fn ask_all<A: Asked>(asked: &A, hashes: &[u64], answers: &mut [bool]) {
    let all = All { asked, hashes, answers: &mut *answers };
    if asked.asking().lanes.run(all).is_none() {
        for (hash, answer) in hashes.iter().zip(answers) {
            *answer = ask_portably(asked, *hash);
        }
    }
}

/// One question: no more than what a call hands over in registers.
struct One<'a, A>(&'a A, u64);

impl<A: Asked> ByLine for One<'_, A> {
    type Answer = bool;

    #[inline(always)]
    fn run(self, held: impl Fn(&AtomicLine, [u64; 2], u16) -> u8) -> bool {
        let One(asked, hash) = self;
        let place = place(hash, asked.count());
        let mixes = MULTIPLIERS.map(|multiplier| mix(place.rest, multiplier));
        let line = asked.lines().get(place.line as usize);
        let missing = |line| asked.asking().held & !held(line, mixes, LINE_BITS as u16);
        line.is_none_or(|line| missing(line) == 0)
    }
}

/// Many.
struct All<'a, A> {
    asked: &'a A,
    hashes: &'a [u64],
    answers: &'a mut [bool],
}

impl<A: Asked> ByLine for All<'_, A> {
    type Answer = ();

    #[inline(always)]
    fn run(self, held: impl Fn(&AtomicLine, [u64; 2], u16) -> u8) {
        for (hash, answer) in self.hashes.iter().zip(self.answers) {
            *answer = One(self.asked, *hash).run(&held);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{LINE_WORDS, Place, mask, set};

    /// The first of forty lines.
    impl Asked for (&[AtomicLine], Asking) {
        fn lines(&self) -> &[AtomicLine] {
            self.0
        }

        fn count(&self) -> u64 {
            40
        }

        fn asking(&self) -> &Asking {
            &self.1
        }
    }

    /// Whatever is asked with, the answer is that of the bits that an insert sets.
    #[test]
    fn every_processor_answers_the_same() {
        let hash = |number: u64| umbel_base::checksum::checksum(3, number, b"key");
        for probes in PROBES_RANGE {
            let lines: Vec<AtomicLine> = (0..37).map(|_| AtomicLine::default()).collect();
            for number in 0..37 * 50 {
                let place = place(hash(number), 40);
                if let Some(line) = lines.get(place.line as usize) {
                    set(line, &mask(place, probes));
                }
            }
            let hashes: Vec<u64> = (0..20_000).map(hash).collect();
            let expected = |at: Place| {
                let Some(line) = lines.get(at.line as usize) else { return true };
                let (line, mask) = (crate::line::load(line), mask(at, probes));
                (0..LINE_WORDS).all(|word| line[word] & mask[word] == mask[word])
            };
            let expected: Vec<bool> =
                hashes.iter().map(|hash| expected(place(*hash, 40))).collect();
            assert!(expected.contains(&true) && expected.contains(&false));
            for lanes in [LineLanes::of_this_processor(), LineLanes::NONE] {
                let filter = (&lines[..], Asking::with(lanes, probes));
                let single: Vec<bool> = hashes.iter().map(|hash| ask(&filter, *hash)).collect();
                let mut together = vec![false; hashes.len()];
                ask_all(&filter, &hashes, &mut together);
                assert!(single == expected && together == expected, "{probes} probes, {lanes:?}");
            }
        }
    }
}
