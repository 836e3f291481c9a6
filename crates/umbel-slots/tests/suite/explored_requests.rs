//! [`ExploredRequest`]: a request of an explored node, whose start, effect, stated time and answer
//! are events of their own.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use umbel_env::{
    Answer, Clock, Creation, CreationRequest, ListPage, ObjectBytes, ObjectError, ObjectName,
    ObjectResult, ObjectSource, Objects,
};

use super::explored_store::{ExploredClock, ExploredStore};

/// The times of a store that a node gets for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StatedTimes {
    /// The closest ones that rule C3 permits.
    #[default]
    AtEffect,
    /// One at the start and one at the answer, as in a directory.
    Around,
    /// Breaks C3: for the comparison with an earlier contact, the time is before the effect.
    BeforeEffect,
    /// Breaks C3: for the comparison with a later contact, the time is after the effect.
    AfterEffect,
}

/// A request that a node has sent and that has no answer yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExploredRequest {
    /// The node's clocks, and the store's, at the start.
    start: (ExploredClock, u64),
    /// The answer, and the store's clock at the effect.
    effect: Option<(RecordedAnswer, u64)>,
}

/// Answer of the store to a request of a follower, a candidate or a leader.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RecordedAnswer {
    Create(ObjectResult<Creation>),
    Read(ObjectResult<Option<ObjectBytes>>),
    List(ObjectResult<ListPage>),
}

impl Hash for ExploredRequest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        format!("{self:?}").hash(state);
    }
}

impl ExploredRequest {
    /// A request that was sent at this moment.
    pub fn new(clock: ExploredClock, store_micros: u64) -> ExploredRequest {
        ExploredRequest { start: (clock, store_micros), effect: None }
    }

    /// Whether it took effect.
    pub fn has_effect(&self) -> bool {
        self.effect.is_some()
    }

    /// Lets the request take effect, which `step` sends. Returns `false` if it sends none.
    pub fn take_effect(
        &mut self,
        store: &ExploredStore,
        store_micros: u64,
        step: impl FnOnce(&dyn Objects),
    ) -> bool {
        let recorder = Recorder { store, answer: Mutex::new(None) };
        step(&recorder);
        let answer = recorder.answer.into_inner().expect("one thread");
        self.effect = answer.map(|answer| (answer, store_micros));
        self.has_effect()
    }

    /// The store and the clocks for the step that gets the answer now. REQUIRES: it took effect.
    pub fn replay(self, times: StatedTimes, now: ExploredClock, store_micros: u64) -> Replay {
        let (started, sent_micros) = self.start;
        let (answer, effect_micros) = self.effect.expect("it took effect");
        let (before_micros, after_micros) = match times {
            StatedTimes::AtEffect => (effect_micros, effect_micros),
            StatedTimes::Around => (sent_micros, store_micros),
            StatedTimes::BeforeEffect => (sent_micros, sent_micros),
            StatedTimes::AfterEffect => (store_micros, store_micros),
        };
        let is_sent = AtomicBool::new(false);
        Replay { answer, before_micros, after_micros, started, now, is_sent }
    }
}

/// A store that records the answer to one request.
#[derive(Debug)]
struct Recorder<'a> {
    store: &'a ExploredStore,
    answer: Mutex<Option<RecordedAnswer>>,
}

impl Recorder<'_> {
    fn record(&self, answer: RecordedAnswer) {
        let earlier = self.answer.lock().expect("one thread").replace(answer);
        assert!(earlier.is_none(), "a step sends one request");
    }
}

impl Objects for Recorder<'_> {
    umbel_env::delegate_object_calls!(store: location create_concurrently put delete);

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        let answer = self.store.create(name, bytes);
        self.record(RecordedAnswer::Create(answer.clone()));
        answer
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        let answer = self.store.read(name, range);
        self.record(RecordedAnswer::Read(answer.clone()));
        answer
    }

    fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> ObjectResult<ListPage> {
        let answer = self.store.list(prefix, after, limit);
        self.record(RecordedAnswer::List(answer.clone()));
        answer
    }
}

/// The store and the clocks of a node during the step that gets a recorded answer.
#[derive(Debug)]
pub struct Replay {
    answer: RecordedAnswer,
    before_micros: u64,
    after_micros: u64,
    started: ExploredClock,
    now: ExploredClock,
    is_sent: AtomicBool,
}

impl Replay {
    /// The clock before the request, or after its answer.
    fn clock(&self) -> ExploredClock {
        if self.is_sent.load(Ordering::Relaxed) { self.now } else { self.started }
    }

    fn timed<T>(&self, answer: &ObjectResult<T>) -> ObjectResult<T>
    where
        T: Clone,
    {
        self.is_sent.store(true, Ordering::Relaxed);
        let Answer { value, store_micros } = answer.clone()?;
        Ok(Answer { value, store_micros: store_micros.map(|_| self.after_micros) })
    }
}

impl Clock for Replay {
    fn now(&self) -> Duration {
        self.clock().now()
    }

    fn wall_micros(&self) -> u64 {
        self.clock().wall_micros()
    }
}

impl Objects for Replay {
    fn location(&self) -> &str {
        "explored:"
    }

    fn create(&self, _: &ObjectName, _: &[u8]) -> ObjectResult<Creation> {
        let RecordedAnswer::Create(answer) = &self.answer else { panic!("another request") };
        self.timed(answer)
    }

    fn create_concurrently(&self, _: &[CreationRequest]) -> Vec<ObjectResult<Creation>> {
        unreachable!("only the probe creates at the same time")
    }

    fn put(&self, _: &ObjectName, _: &dyn ObjectSource) -> ObjectResult<()> {
        unreachable!("no state machine writes")
    }

    fn read(&self, _: &ObjectName, _: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        let RecordedAnswer::Read(answer) = &self.answer else { panic!("another request") };
        self.timed(answer)
    }

    fn list(&self, _: &str, _: Option<&str>, _: usize) -> ObjectResult<ListPage> {
        let RecordedAnswer::List(answer) = &self.answer else { panic!("another request") };
        self.timed(answer)
    }

    fn delete(&self, _: &ObjectName) -> ObjectResult<()> {
        unreachable!("deletions are not apart")
    }

    fn time_micros(&self, _: Duration) -> Result<Option<u64>, ObjectError> {
        Ok((!self.is_sent.load(Ordering::Relaxed)).then_some(self.before_micros))
    }
}
