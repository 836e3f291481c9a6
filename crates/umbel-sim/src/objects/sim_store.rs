//! [`SimStore`]: the state of a simulated object store, advanced event by event.
//!
//! INVARIANT: events are handled in the order of their moments, and of their numbers within a
//! moment. The seed and the calls decide every event.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use umbel_env::{ListPage, ListedObject, ObjectBytes, ObjectName};

use crate::objects::object_fault::{FaultRates, ObjectFault, RequestKind, RequestTimes};
use crate::objects::object_store_mode::{ConditionMode, ObjectStoreMode};
use crate::objects::object_versions::{ObjectVersion, ObjectVersions};
use crate::objects::request::{AnswerBody, Request, RequestBody, SimAnswer};
use crate::random::{Random, digest, join};
use crate::simulated_machine::WALL_START_MICROS;

/// Time that a client waits for an answer.
pub(crate) const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Most objects of a page, as in buckets.
const PAGE_OBJECTS_MAX: usize = 1000;

/// Number of a request.
pub(crate) type RequestNumber = u64;

/// Step of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The store takes the request.
    Take,
    /// The store checks early whether the name exists.
    Judge,
    /// The request takes effect.
    Commit,
    /// The answer arrives.
    Answer,
}

/// A simulated object store.
#[derive(Debug)]
pub(crate) struct SimStore {
    pub(crate) now_ns: u64,
    /// Difference between the store's clock and the clients' clock.
    pub(crate) clock_offset_micros: i64,
    pub(crate) mode: ObjectStoreMode,
    pub(crate) rates: FaultRates,
    pub(crate) planned: VecDeque<ObjectFault>,
    pub(crate) planned_times: VecDeque<RequestTimes>,
    pub(crate) are_credentials_expired: bool,
    /// Longest time between the timeout of a request and its late landing.
    pub(crate) landing_delay_max: Duration,
    /// Largest age of the state that a stale answer shows.
    pub(crate) staleness_max: Duration,
    pub(crate) versions: ObjectVersions,
    pub(crate) history: Vec<String>,
    pub(crate) keeps_history: bool,
    pub(crate) trace: u64,
    pub(crate) injected: BTreeMap<ObjectFault, u64>,
    pub(crate) request_counts: BTreeMap<&'static str, u64>,
    pub(crate) random: Random,
    queue: BTreeMap<(u64, u64), (RequestNumber, Step)>,
    requests: BTreeMap<RequestNumber, Request>,
    next_event: u64,
    next_request: RequestNumber,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX >> 2)
}

impl SimStore {
    pub(crate) fn new(seed: u64) -> SimStore {
        SimStore {
            now_ns: 0,
            clock_offset_micros: 0,
            mode: ObjectStoreMode::default(),
            rates: FaultRates::none(),
            planned: VecDeque::new(),
            planned_times: VecDeque::new(),
            are_credentials_expired: false,
            landing_delay_max: Duration::from_secs(120),
            staleness_max: Duration::from_secs(5),
            versions: ObjectVersions::default(),
            history: Vec::new(),
            keeps_history: true,
            trace: seed,
            injected: BTreeMap::new(),
            request_counts: BTreeMap::new(),
            random: Random::new(join(seed, 0x4F62_6A65)),
            queue: BTreeMap::new(),
            requests: BTreeMap::new(),
            next_event: 0,
            next_request: 1,
        }
    }

    /// Returns the store's clock, in microseconds since 1970.
    pub(crate) fn store_micros(&self) -> u64 {
        (WALL_START_MICROS + self.now_ns / 1000).saturating_add_signed(self.clock_offset_micros)
    }

    fn note(&mut self, number: RequestNumber, event: &str) {
        let Some(request) = self.requests.get(&number) else { return };
        let (client, verb, name) = (request.client, request.body.verb(), request.body.name());
        let micros = self.now_ns / 1000;
        let line =
            format!("{micros} us, client {client}, request {number}, {verb} {name}: {event}");
        self.trace = join(self.trace, digest(line.as_bytes()));
        if self.keeps_history {
            self.history.push(line);
        }
    }

    fn schedule(&mut self, after: Duration, number: RequestNumber, step: Step) {
        let moment_ns = self.now_ns.saturating_add(nanos(after));
        if let Some(request) = self.requests.get_mut(&number) {
            request.steps_left += 1;
        }
        self.queue.insert((moment_ns, self.next_event), (number, step));
        self.next_event += 1;
    }

    // -- sending --

    /// Sends a request whose body takes `body_delay`. Returns its number.
    pub(crate) fn send(
        &mut self,
        client: u64,
        body: RequestBody,
        body_delay: Duration,
    ) -> RequestNumber {
        let kind = body.kind();
        let drawn = self.rates.draw(&mut self.random, kind);
        let is_planned = |fault: &ObjectFault| fault.fits(kind);
        let planned = self.planned.iter().position(is_planned);
        let fault = planned.and_then(|index| self.planned.remove(index)).or(drawn);
        let mut times = RequestTimes::draw(&mut self.random);
        let late = Duration::from_nanos(self.random.below(nanos(self.landing_delay_max).max(1)));
        let answers_second = self.random.percent(50);
        if let Some(planned) = self.planned_times.pop_front() {
            times = planned;
        }
        let number = self.next_request;
        self.next_request += 1;
        *self.request_counts.entry(body.verb()).or_default() += 1;
        self.requests.insert(number, Request::new(client, body, fault));
        match fault {
            Some(fault) => {
                *self.injected.entry(fault).or_default() += 1;
                self.note(number, &format!("sent, with {fault:?}"));
            }
            None => self.note(number, "sent"),
        }
        match fault {
            Some(ObjectFault::LostRequest) => times.taken = None,
            Some(ObjectFault::LostAnswer) => times.answered = None,
            Some(ObjectFault::LateLanding) => {
                times.committed = times.committed.map(|at| at + CLIENT_TIMEOUT + late);
            }
            _ => {}
        }
        if fault == Some(ObjectFault::Duplicate) {
            let delay = if answers_second { Duration::from_millis(5) } else { late };
            self.send_again(number, times, body_delay, delay, answers_second);
            times.answered = times.answered.filter(|_| !answers_second);
        }
        self.schedule_steps(number, times, body_delay);
        number
    }

    /// Schedules the second delivery of a request, which is late by `delay`. Only one delivery is
    /// answered.
    fn send_again(
        &mut self,
        first: RequestNumber,
        times: RequestTimes,
        body_delay: Duration,
        delay: Duration,
        is_answered: bool,
    ) {
        let Some(request) = self.requests.get(&first).cloned() else { return };
        let number = self.next_request;
        self.next_request += 1;
        let second =
            Request { repeats: Some(first), is_awaited: false, is_collected: true, ..request };
        self.requests.insert(number, second);
        let taken = times.taken.map(|at| at + delay);
        let answered = times.answered.filter(|_| is_answered);
        self.schedule_steps(number, RequestTimes { taken, answered, ..times }, body_delay);
    }

    fn schedule_steps(&mut self, number: RequestNumber, times: RequestTimes, body_delay: Duration) {
        let Some(taken) = times.taken else { return };
        self.schedule(taken, number, Step::Take);
        // The store needs some time for an answer without an effect, too.
        let served = taken + body_delay + times.committed.unwrap_or(Duration::from_millis(1));
        if let ConditionMode::Racing(window) = self.mode.conditions {
            self.schedule(served.saturating_sub(window).max(taken), number, Step::Judge);
        }
        if times.committed.is_some() {
            self.schedule(served, number, Step::Commit);
        }
        if let Some(answered) = times.answered {
            self.schedule(served + answered, number, Step::Answer);
        }
    }

    // -- steps --

    /// Handles the next event up to a moment; returns `false` if there is none.
    fn step(&mut self, until_ns: u64) -> bool {
        let Some((&(moment_ns, event), &(number, step))) = self.queue.first_key_value() else {
            return false;
        };
        if moment_ns > until_ns {
            return false;
        }
        self.queue.remove(&(moment_ns, event));
        self.now_ns = self.now_ns.max(moment_ns);
        match step {
            Step::Take => self.take(number),
            Step::Judge => self.judge(number),
            Step::Commit => self.commit(number),
            Step::Answer => self.deliver(number),
        }
        if let Some(request) = self.requests.get_mut(&number) {
            request.steps_left -= 1;
        }
        self.forget_done(number);
        true
    }

    /// Handles all events up to a moment.
    pub(crate) fn run_until(&mut self, until_ns: u64) {
        while self.step(until_ns) {}
        self.now_ns = self.now_ns.max(until_ns);
    }

    /// Handles all events.
    pub(crate) fn run_all(&mut self) {
        while self.step(u64::MAX) {}
    }

    /// Handles events until the answers of these requests are here, or the client's patience ends.
    pub(crate) fn await_answers(&mut self, numbers: &[RequestNumber]) -> Vec<Option<SimAnswer>> {
        let deadline_ns = self.now_ns.saturating_add(nanos(CLIENT_TIMEOUT));
        let is_awaited = |store: &SimStore| {
            let mut requests = numbers.iter().filter_map(|number| store.requests.get(number));
            requests.any(|request| request.is_awaited)
        };
        while is_awaited(self) && self.step(deadline_ns) {}
        if is_awaited(self) {
            self.now_ns = self.now_ns.max(deadline_ns);
        }
        numbers.iter().map(|number| self.take_answer(*number)).collect()
    }

    /// Returns the answer of a request; `None` after a timeout. Later answers are dropped.
    fn take_answer(&mut self, number: RequestNumber) -> Option<SimAnswer> {
        let request = self.requests.get_mut(&number)?;
        let answer = if request.is_awaited { None } else { request.answer.take() };
        (request.is_awaited, request.is_collected) = (false, true);
        if answer.is_none() {
            self.note(number, "no answer in time");
        }
        self.forget_done(number);
        answer
    }

    fn exists(&self, number: RequestNumber) -> bool {
        let name = self.requests.get(&number).map(|request| request.body.name());
        name.is_some_and(|name| self.versions.at(name, self.now_ns).is_some())
    }

    fn take(&mut self, number: RequestNumber) {
        self.note(number, "taken");
        if self.mode.conditions == ConditionMode::JudgedAtStart {
            self.judge(number);
        }
    }

    fn judge(&mut self, number: RequestNumber) {
        let exists = self.exists(number);
        if let Some(request) = self.requests.get_mut(&number) {
            request.judged = Some(exists);
        }
    }

    fn commit(&mut self, number: RequestNumber) {
        let Some(request) = self.requests.get(&number).cloned() else { return };
        let body = match self.refusal(&request) {
            Some(status) => AnswerBody::Status(status),
            None => self.serve(number, &request),
        };
        let body = altered(body, request.fault);
        self.note(number, &format!("committed, answer {:016x}", answer_digest(&body)));
        let has_time = match self.mode.times_creations_only {
            true => matches!(request.body.kind(), RequestKind::Create | RequestKind::Put),
            false => true,
        };
        let has_time = has_time && self.mode.reports_time;
        let store_micros = has_time.then(|| self.store_micros());
        if let Some(request) = self.requests.get_mut(&number) {
            request.answer = Some(SimAnswer { body, store_micros });
        }
    }

    /// Returns the status of a request that the store refuses without an effect.
    fn refusal(&self, request: &Request) -> Option<u16> {
        use ObjectFault as F;
        let is_create = matches!(request.body, RequestBody::Create { .. });
        match request.fault {
            _ if self.are_credentials_expired => Some(403),
            Some(F::Denied) => Some(403),
            Some(F::Conflict { commits: false }) => Some(409),
            Some(F::Precondition { commits: false }) => Some(412),
            Some(F::ServerError { commits: false }) => Some(500),
            Some(F::SlowDown { commits: false }) => Some(503),
            Some(F::BrokenPage) if is_later_page(&request.body) => Some(500),
            _ if is_create && self.mode.conditions == ConditionMode::OnlyIfMatch => Some(501),
            _ => None,
        }
    }

    /// Executes a request.
    fn serve(&mut self, number: RequestNumber, request: &Request) -> AnswerBody {
        match &request.body {
            RequestBody::Create { name, bytes } => {
                let exists = match self.mode.conditions {
                    ConditionMode::Ignored => false,
                    _ => request.judged.unwrap_or_else(|| self.exists(number)),
                };
                if exists {
                    return AnswerBody::Exists;
                }
                self.store(name, Some(Arc::clone(bytes)));
                AnswerBody::Done
            }
            RequestBody::Put { name, bytes } => {
                self.store(name, Some(Arc::clone(bytes)));
                AnswerBody::Done
            }
            RequestBody::Delete { name } => {
                if self.exists(number) && !self.mode.keeps_deleted {
                    self.store(name, None);
                }
                AnswerBody::Done
            }
            RequestBody::Read { name, range } => {
                self.serve_read(name, range.clone(), request.fault)
            }
            RequestBody::List { prefix, after, objects_max } => {
                self.serve_list(prefix, after.as_deref(), *objects_max, request.fault)
            }
        }
    }

    fn store(&mut self, name: &str, bytes: Option<Arc<[u8]>>) {
        let bytes = match bytes {
            Some(bytes) if self.mode.recodes => {
                Some(bytes.iter().copied().filter(|byte| *byte != b'\r').collect())
            }
            bytes => bytes,
        };
        let created_micros = self.store_micros();
        let version = ObjectVersion { since_ns: self.now_ns, bytes, created_micros };
        self.versions.push(name, version);
    }

    /// Returns the moment whose state an answer shows.
    fn shown_moment(&mut self, lag: Duration, is_stale: bool) -> u64 {
        let stale_ns = match is_stale {
            true => 1 + self.random.below(nanos(self.staleness_max).max(1)),
            false => 0,
        };
        self.now_ns.saturating_sub(nanos(lag)).saturating_sub(stale_ns)
    }

    fn serve_read(
        &mut self,
        name: &str,
        range: std::ops::Range<u64>,
        fault: Option<ObjectFault>,
    ) -> AnswerBody {
        let is_stale = fault == Some(ObjectFault::StaleRead);
        let moment_ns = self.shown_moment(self.mode.read_lag, is_stale);
        let mut found = self.versions.at(name, moment_ns).and_then(|v| v.bytes.clone());
        if fault == Some(ObjectFault::OtherBody) {
            let others: Vec<_> = self
                .versions
                .all_at(self.now_ns)
                .filter(|(other, _)| *other != name)
                .filter_map(|(_, version)| version.bytes.clone())
                .collect();
            if !others.is_empty() {
                found = Some(Arc::clone(&others[self.random.below_usize(others.len())]));
            }
        }
        let Some(bytes) = found else {
            return match self.mode.hides_absence {
                true => AnswerBody::Status(403),
                false => AnswerBody::Bytes(None),
            };
        };
        let object_bytes = bytes.len() as u64;
        let range = if self.mode.ignores_ranges { 0..object_bytes } else { range };
        let start = range.start.min(object_bytes);
        let end = range.end.clamp(start, object_bytes);
        let mut bytes = bytes[start as usize..end as usize].to_vec();
        let mut object_bytes = object_bytes;
        if !bytes.is_empty() {
            let at = self.random.below_usize(bytes.len());
            match fault {
                Some(ObjectFault::WrongBody) => bytes[at] ^= 1 << self.random.below(8),
                Some(ObjectFault::ShortBody) => {
                    bytes.truncate(at);
                    object_bytes = start + at as u64;
                }
                _ => {}
            }
        }
        AnswerBody::Bytes(Some(ObjectBytes { bytes, object_bytes }))
    }

    fn serve_list(
        &mut self,
        prefix: &str,
        after: Option<&str>,
        objects_max: usize,
        fault: Option<ObjectFault>,
    ) -> AnswerBody {
        let is_stale = fault == Some(ObjectFault::StaleList);
        let moment_ns = self.shown_moment(self.mode.list_lag, is_stale);
        let prefix = if self.mode.ignores_prefix { "" } else { prefix };
        let objects_max = objects_max.min(PAGE_OBJECTS_MAX);
        let page_objects = match fault {
            Some(ObjectFault::ShortPage) => 1 + self.random.below_usize(objects_max),
            _ => objects_max,
        };
        let mut page = ListPage::default();
        for (name, version) in self.versions.all_at(moment_ns) {
            if !name.starts_with(prefix) || after.is_some_and(|after| name <= after) {
                continue;
            }
            if page.objects.len() == page_objects {
                let last = page.objects.last();
                page.next_after = last.map(|object| object.name.as_str().to_owned());
                break;
            }
            let Ok(name) = ObjectName::new(name) else { continue };
            let bytes = version.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
            let created_micros = Some(version.created_micros);
            page.objects.push(ListedObject { name, bytes, created_micros });
        }
        AnswerBody::Page(page)
    }

    /// Delivers the answer of a request to its client.
    fn deliver(&mut self, number: RequestNumber) {
        self.note(number, "answered");
        let Some(request) = self.requests.get(&number) else { return };
        let failed = || SimAnswer { body: AnswerBody::Status(500), store_micros: None };
        let (waiting, answer) = (request.repeats, request.answer.clone().unwrap_or_else(failed));
        if let Some(request) = self.requests.get_mut(&waiting.unwrap_or(number)) {
            request.answer = Some(answer);
            request.is_awaited = false;
        }
    }

    /// Drops a request that has no step left and whose answer was collected.
    fn forget_done(&mut self, number: RequestNumber) {
        let is_done = |request: &Request| request.steps_left == 0 && request.is_collected;
        if self.requests.get(&number).is_some_and(is_done) {
            self.requests.remove(&number);
        }
    }
}

/// Returns the answer that a fault makes of the store's answer.
fn altered(body: AnswerBody, fault: Option<ObjectFault>) -> AnswerBody {
    match fault {
        Some(ObjectFault::Conflict { .. }) => AnswerBody::Status(409),
        Some(ObjectFault::Precondition { .. }) => AnswerBody::Status(412),
        Some(ObjectFault::ServerError { .. }) => AnswerBody::Status(500),
        Some(ObjectFault::SlowDown { .. }) => AnswerBody::Status(503),
        Some(ObjectFault::CutBody) => AnswerBody::Cut,
        _ => body,
    }
}

fn is_later_page(body: &RequestBody) -> bool {
    matches!(body, RequestBody::List { after: Some(_), .. })
}

fn answer_digest(body: &AnswerBody) -> u64 {
    match body {
        AnswerBody::Bytes(Some(found)) => join(digest(&found.bytes), found.object_bytes),
        other => digest(format!("{other:?}").as_bytes()),
    }
}
