//! [`SimObjects`]: one client of a simulated object store.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{
    Answer, Creation, CreationRequest, ListPage, ObjectBytes, ObjectError, ObjectErrorKind,
    ObjectName, ObjectResult, ObjectSource, Objects,
};

use crate::objects::request::{AnswerBody, RequestBody, SimAnswer};
use crate::objects::sim_store::SimStore;

/// A client of a simulated object store.
#[derive(Debug)]
pub(crate) struct SimObjects {
    pub(crate) store: Arc<Mutex<SimStore>>,
    pub(crate) client: u64,
    pub(crate) is_dead: Arc<AtomicBool>,
}

/// Location of every simulated store.
const LOCATION: &str = "sim://bucket";

fn error(kind: ObjectErrorKind, verb: &'static str, name: &str, cause: &str) -> ObjectError {
    ObjectError::new(kind, verb, format!("{LOCATION}/{name}"), cause)
}

fn status_error(status: u16, verb: &'static str, name: &str) -> ObjectError {
    let (kind, cause) = match status {
        403 => (ObjectErrorKind::Denied, "status 403: the credentials are refused; renew them"),
        501 => (ObjectErrorKind::Refused, "status 501: the store does not know this condition"),
        503 => (ObjectErrorKind::Unavailable, "status 503: too many requests"),
        409 => (ObjectErrorKind::Unavailable, "status 409: another request is in progress"),
        _ => (ObjectErrorKind::Unavailable, "status 500: internal error"),
    };
    error(kind, verb, name, cause)
}

impl SimObjects {
    /// Sends requests at the same time, and waits for the answers.
    fn call(&self, bodies: Vec<(RequestBody, Duration)>) -> Vec<Result<SimAnswer, ObjectError>> {
        let named: Vec<_> =
            bodies.iter().map(|(body, _)| (body.verb(), body.name().to_owned())).collect();
        if self.is_dead.load(Ordering::Relaxed) {
            let cause = "the simulated client is dead";
            let failed = |(verb, name): &(&'static str, String)| {
                Err(error(ObjectErrorKind::Unavailable, verb, name, cause))
            };
            return named.iter().map(failed).collect();
        }
        let mut store = self.store.lock().ignore_poison();
        let numbers: Vec<_> =
            bodies.into_iter().map(|(body, delay)| store.send(self.client, body, delay)).collect();
        let answers = store.await_answers(&numbers);
        let timeout = |(verb, name): &(&'static str, String)| {
            error(ObjectErrorKind::Unavailable, verb, name, "no answer within 30 s")
        };
        let answers = answers.into_iter().zip(&named);
        answers.map(|(answer, named)| answer.ok_or_else(|| timeout(named))).collect()
    }

    fn call_one(&self, body: RequestBody) -> Result<SimAnswer, ObjectError> {
        let (verb, name) = (body.verb(), body.name().to_owned());
        let mut answers = self.call(vec![(body, Duration::ZERO)]);
        let missing = || Err(error(ObjectErrorKind::Unavailable, verb, &name, "no answer"));
        let answer = answers.pop().unwrap_or_else(missing)?;
        match answer.body {
            AnswerBody::Status(status) => Err(status_error(status, verb, &name)),
            AnswerBody::Cut => {
                let cause = "the connection ended within the body";
                Err(error(ObjectErrorKind::Unavailable, verb, &name, cause))
            }
            _ => Ok(answer),
        }
    }

    /// Returns an error if a name is the parent of another one, which a directory cannot hold.
    fn check_parents(&self, verb: &'static str, name: &ObjectName) -> Result<(), ObjectError> {
        let store = self.store.lock().ignore_poison();
        let name = name.as_str();
        let is_parent = |of: &str, child: &str| {
            child.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'))
        };
        let mut objects = store.versions.all_at(store.now_ns);
        if objects.any(|(other, _)| is_parent(other, name) || is_parent(name, other)) {
            let cause = "one name is the parent of the other";
            return Err(error(ObjectErrorKind::Refused, verb, name, cause));
        }
        Ok(())
    }
}

fn creation(name: &ObjectName, answer: Result<SimAnswer, ObjectError>) -> ObjectResult<Creation> {
    let answer = match answer {
        Ok(answer) => answer,
        // The request was sent, unless the client is dead; then no caller looks at the outcome.
        Err(error) => {
            return Ok(Answer { value: Creation::Unknown(error), store_micros: None });
        }
    };
    let value = match answer.body {
        AnswerBody::Done => Creation::Created,
        AnswerBody::Exists | AnswerBody::Status(412) => Creation::Exists,
        AnswerBody::Status(status @ (403 | 501)) => {
            return Err(status_error(status, "create", name.as_str()));
        }
        AnswerBody::Status(status) => {
            Creation::Unknown(status_error(status, "create", name.as_str()))
        }
        _ => {
            let cause = "the answer is not that of a creation";
            Creation::Unknown(error(ObjectErrorKind::Damaged, "create", name.as_str(), cause))
        }
    };
    Ok(Answer { value, store_micros: answer.store_micros })
}

fn unexpected(verb: &'static str, name: &str) -> ObjectError {
    error(ObjectErrorKind::Damaged, verb, name, "the answer is that of another request")
}

impl Objects for SimObjects {
    fn location(&self) -> &str {
        LOCATION
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        let request = CreationRequest {
            name: name.clone(),
            bytes: bytes.to_vec(),
            body_delay: Duration::ZERO,
        };
        let missing = || Err(error(ObjectErrorKind::Unavailable, "create", name.as_str(), "none"));
        self.create_concurrently(&[request]).pop().unwrap_or_else(missing)
    }

    fn create_concurrently(&self, requests: &[CreationRequest]) -> Vec<ObjectResult<Creation>> {
        for request in requests {
            if let Err(error) = self.check_parents("create", &request.name) {
                return requests.iter().map(|_| Err(error.clone())).collect();
            }
        }
        let body = |request: &CreationRequest| {
            let name = request.name.as_str().to_owned();
            let bytes = request.bytes.as_slice().into();
            (RequestBody::Create { name, bytes }, request.body_delay)
        };
        let answers = self.call(requests.iter().map(body).collect());
        let answers = answers.into_iter().zip(requests);
        answers.map(|(answer, request)| creation(&request.name, answer)).collect()
    }

    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        self.check_parents("write", name)?;
        let mut bytes = vec![0; usize::try_from(source.byte_count()).unwrap_or(usize::MAX)];
        source.read(&mut bytes, 0)?;
        let body = RequestBody::Put { name: name.as_str().to_owned(), bytes: bytes.into() };
        let answer = self.call_one(body)?;
        Ok(Answer { value: (), store_micros: answer.store_micros })
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        let range_bytes = range.end.saturating_sub(range.start);
        let answer = self.call_one(RequestBody::Read { name: name.as_str().to_owned(), range })?;
        let AnswerBody::Bytes(value) = answer.body else {
            return Err(unexpected("read", name.as_str()));
        };
        if value.as_ref().is_some_and(|found| found.bytes.len() as u64 > range_bytes) {
            let cause = "the store ignores ranges: the answer is longer than the range";
            return Err(error(ObjectErrorKind::Damaged, "read", name.as_str(), cause));
        }
        Ok(Answer { value, store_micros: answer.store_micros })
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        objects_max: usize,
    ) -> ObjectResult<ListPage> {
        let after = after.map(str::to_owned);
        let objects_max = objects_max.max(1);
        let answer =
            self.call_one(RequestBody::List { prefix: prefix.to_owned(), after, objects_max })?;
        let AnswerBody::Page(value) = answer.body else { return Err(unexpected("list", prefix)) };
        Ok(Answer { value, store_micros: answer.store_micros })
    }

    fn delete(&self, name: &ObjectName) -> ObjectResult<()> {
        let answer = self.call_one(RequestBody::Delete { name: name.as_str().to_owned() })?;
        Ok(Answer { value: (), store_micros: answer.store_micros })
    }

    /// Takes no time of its own, and has no fault.
    fn time_micros(&self, _: Duration) -> Result<Option<u64>, ObjectError> {
        if self.is_dead.load(Ordering::Relaxed) {
            let cause = "the simulated client is dead";
            return Err(error(ObjectErrorKind::Unavailable, "take the time of", "", cause));
        }
        let store = self.store.lock().ignore_poison();
        let states_time = store.mode.times_creations_only && store.mode.reports_time;
        Ok(states_time.then(|| store.store_micros()))
    }
}
