//! Tests that spans are empty in the states for which they are proven, with all short sequences of
//! steps and random long ones.

use std::collections::BTreeMap;

use umbel_sim::Random;

use super::*;

/// Number of keys of a model; each key is one byte long.
type Keys = u8;

/// A keyspace in which a writer and readers take turns, one step at a time.
#[derive(Default)]
struct Model {
    keys: Keys,
    spans: SkipSpans,
    /// Writes in order; the sequence number of each is its index plus one.
    writes: Vec<(u8, bool)>,
    visible: SequenceNumber,
}

/// A step of the writer or of a reader.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The writer, with the commit lock, inserts a put or a delete.
    Write(u8, bool),
    /// The writer inserts a put or a delete, and does not see yet that a range was recorded.
    WriteUnaware(u8, bool),
    /// The writer publishes the writes that it inserted.
    Publish,
    /// A reader passes the keys of a range, at a state this number of writes before the newest
    /// visible one.
    Pass(u64, u8, u8),
    /// A reader arms the recorded ranges, if the writer does not hold the commit lock.
    Arm,
}

impl Model {
    fn new(keys: Keys) -> Model {
        Model { keys, ..Model::default() }
    }

    fn last(&self) -> SequenceNumber {
        self.writes.len() as u64
    }

    fn state(&self, sequence: SequenceNumber) -> BTreeMap<u8, ()> {
        let mut state = BTreeMap::new();
        for &(key, is_put) in &self.writes[..sequence as usize] {
            match is_put {
                true => state.insert(key, ()),
                false => state.remove(&key),
            };
        }
        state
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Write(key, is_put) => self.write(key, is_put, true),
            Step::WriteUnaware(key, is_put) => self.write(key, is_put, false),
            Step::Publish => self.visible = self.last(),
            Step::Pass(ago, from, to) => {
                let sequence = self.visible.saturating_sub(ago);
                if self.state(sequence).range(from..to).next().is_none() {
                    self.spans.record((&[from], &[to]), sequence, 1);
                }
            }
            Step::Arm if self.visible == self.last() => self.spans.arm(self.last()),
            Step::Arm => {}
        }
    }

    fn write(&mut self, key: u8, is_put: bool, is_aware: bool) {
        self.writes.push((key, is_put));
        let kind = if is_put { ValueKind::Put } else { ValueKind::Delete };
        // Armed spans are seen by every writer, because arming takes the commit lock.
        if self.spans.has(HAS_SPANS) || is_aware && self.spans.is_active() {
            self.spans.note_write(&[key], kind, self.last());
        }
    }

    /// Checks that no span hides a key that a reader sees.
    fn check(&self) {
        let mut target = Vec::new();
        for sequence in 0..=self.visible {
            let state = self.state(sequence);
            for key in 0..self.keys {
                if self.spans.skip_forward(&[key], sequence, &mut target) {
                    // A bound may be the successor of a key: `[key, 0]`.
                    let end = target[0] + u8::from(target.len() > 1);
                    assert_eq!(state.range(key..end).next(), None, "forward at {sequence}");
                }
                if self.spans.skip_backward(&[key], sequence, &mut target) {
                    let start = target[0] + u8::from(target.len() > 1);
                    let hidden = state.range(start.min(key)..=key).next();
                    assert_eq!(hidden, None, "backward at {sequence}");
                }
            }
        }
        let set = self.spans.lock();
        let bytes = set.spans.iter().map(|(start, span)| start.len() + span.end.len()).sum();
        assert_eq!(set.key_bytes, bytes);
        let ends = set.spans.values().map(|span| &span.end);
        assert!(ends.zip(set.spans.keys().skip(1)).all(|(end, next)| end <= next));
        assert!(set.spans.iter().all(|(start, span)| *start < span.end));
    }
}

#[test]
fn spans_are_empty_in_every_short_history() {
    const DEPTH: u32 = 6;
    let mut steps = vec![Step::Publish, Step::Arm];
    for key in 0..2 {
        steps.extend([Step::Write(key, true), Step::Write(key, false)]);
    }
    steps.extend([Step::WriteUnaware(0, true), Step::Pass(0, 0, 2), Step::Pass(1, 0, 2)]);
    steps.push(Step::Pass(0, 0, 1));
    let choices = steps.len() as u64;
    for history in 0..choices.pow(DEPTH) {
        let mut model = Model::new(2);
        for place in 0..DEPTH {
            model.run(steps[(history / choices.pow(place) % choices) as usize]);
        }
        model.check();
    }
}

#[test]
fn spans_are_empty_in_long_random_histories() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let mut below = |limit: u64| random.below(limit);
        let mut model = Model::new(24);
        for _ in 0..400 {
            let key = below(24) as u8;
            let step = match below(10) {
                0 => Step::Write(key, true),
                1..=3 => Step::Write(key, false),
                4 => Step::WriteUnaware(key, below(4) == 0),
                5 => Step::Publish,
                6 => Step::Arm,
                _ => Step::Pass(below(3) * below(4), key.min(below(24) as u8), key + 1),
            };
            model.run(step);
            model.check();
        }
    }
}

/// Returns the spans of a queue whose front moves on by one key in each round.
fn queue(rounds: u64) -> SkipSpans {
    let spans = SkipSpans::default();
    for round in 1..=rounds {
        let (last, key) = (round * 2, round.to_be_bytes());
        spans.note_write(&[0xff], ValueKind::Put, last - 1);
        if spans.is_active() {
            spans.note_write(&key, ValueKind::Delete, last);
        }
        if round % 16 == 0 {
            spans.record((&0u64.to_be_bytes(), &key), last, 20);
        }
    }
    spans
}

#[test]
fn spans_of_a_queue_stay_few_and_serve_readers_that_began_earlier() {
    let spans = queue(10_000);
    assert!(spans.counts().0 <= 64, "{:?}", spans.counts());
    let mut target = Vec::new();
    for ago in [0, 8, 64, 512] {
        assert!(spans.skip_forward(&0u64.to_be_bytes(), 20_000 - ago, &mut target));
        let reached = u64::from_be_bytes(target[..8].try_into().unwrap());
        assert!(reached + 64 + 2 * ago >= 10_000, "{ago} writes ago only up to {reached}");
    }
}

#[test]
fn spans_of_the_fewest_hidden_entries_are_dropped_first() {
    let spans = SkipSpans::default();
    for number in 0..4 * SPANS_MAX as u64 {
        let key = |low: u8| [&number.to_be_bytes()[..], &[low]].concat();
        spans.record((&key(0), &key(1)), 7, if number % 16 == 0 { 100 } else { 16 });
        spans.arm(7);
    }
    let (count, bytes) = spans.counts();
    assert!(count <= SPANS_MAX && bytes <= KEY_BYTES_MAX, "{count} spans, {bytes} bytes");
    let memory = spans.memory_bytes();
    assert!(memory > bytes as u64 && memory < 2 * KEY_BYTES_MAX as u64, "{memory} bytes");
    let mut target = Vec::new();
    let start = |number: u64| [&number.to_be_bytes()[..], &[0]].concat();
    let mut heavy = (0..4 * SPANS_MAX as u64).step_by(16);
    assert!(heavy.all(|number| spans.skip_forward(&start(number), 7, &mut target)));
}

#[test]
fn spans_that_no_cursor_uses_are_dropped() {
    let spans = queue(1000);
    let mut target = Vec::new();
    for number in 0..3 * u64::from(UNUSED_PUTS_MAX) {
        assert!(spans.is_active());
        spans.note_write(&[0xff], ValueKind::Put, 3000 + number);
        if number % 50_000 == 0 {
            assert!(spans.skip_forward(&0u64.to_be_bytes(), 3000 + number, &mut target));
        }
    }
    for number in 0..2 * u64::from(UNUSED_PUTS_MAX) {
        if spans.is_active() {
            spans.note_write(&[0xff], ValueKind::Put, 900_000 + number);
        }
    }
    assert!(!spans.is_active());
}
