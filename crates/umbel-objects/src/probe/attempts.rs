//! Requests of the probe, repeated while the store does not serve them.
//!
//! INVARIANT: only a certain answer breaks a guarantee. A request without an answer may have had
//! its effect or have it later, so a check then begins again with a new name.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::time::Duration;

use umbel_env::{
    Creation, Env, ListPage, ObjectBytes, ObjectError, ObjectErrorKind, ObjectName, ObjectResult,
    Objects,
};

/// Number of attempts of each request or check.
const ATTEMPTS: u32 = 8;
/// Wait after the first failed attempt; each wait is twice as long as the one before, up to 2 s.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Decrease of the store's time that is not a broken guarantee, since several machines of a store
/// have clocks of their own.
const CLOCK_SKEW_MICROS: u64 = 5_000_000;

/// Reason why a check did not pass.
#[derive(Debug)]
pub(super) enum CheckFailure {
    Broken(String),
    Unfinished(ObjectErrorKind, String),
}

/// Result of a check.
pub(super) type CheckResult<T> = Result<T, CheckFailure>;

/// Result of one attempt; an error text if nothing is certain.
pub(super) type Attempt<T> = Result<T, String>;

/// Returns a broken guarantee.
pub(super) fn broken<T>(reason: impl Into<String>) -> CheckResult<T> {
    Err(CheckFailure::Broken(reason.into()))
}

impl From<ObjectError> for CheckFailure {
    /// An error that a repetition cannot remove breaks the guarantee, apart from missing rights.
    fn from(error: ObjectError) -> CheckFailure {
        match error.kind {
            ObjectErrorKind::Refused | ObjectErrorKind::Damaged => {
                CheckFailure::Broken(error.to_string())
            }
            ObjectErrorKind::Denied | ObjectErrorKind::Unavailable => {
                CheckFailure::Unfinished(error.kind, error.to_string())
            }
        }
    }
}

/// A store, and the names below which a probe works.
#[derive(Debug)]
pub(super) struct Attempts<'a> {
    pub(super) env: &'a Env,
    pub(super) objects: &'a dyn Objects,
    /// Prefix of all objects of the probe, with `-` at its end.
    pub(super) prefix: String,
    /// Names of objects that may exist.
    names: RefCell<Vec<ObjectName>>,
    next_number: Cell<u64>,
    last_micros: Cell<Option<u64>>,
    pub(super) clock_difference_micros: Cell<Option<i64>>,
    /// First fault of the store's clock.
    pub(super) clock_fault: RefCell<Option<String>>,
}

impl<'a> Attempts<'a> {
    pub(super) fn new(env: &'a Env, objects: &'a dyn Objects, prefix: String) -> Attempts<'a> {
        Attempts {
            env,
            objects,
            prefix,
            names: RefCell::default(),
            next_number: Cell::default(),
            last_micros: Cell::default(),
            clock_difference_micros: Cell::default(),
            clock_fault: RefCell::default(),
        }
    }

    /// Returns a name that no other request has used, for the objects of one kind.
    pub(super) fn new_name(&self, kind: &str) -> CheckResult<ObjectName> {
        let number = self.next_number.replace(self.next_number.get() + 1);
        let name = ObjectName::new(format!("{}{kind}-{number:04}", self.prefix));
        let name = name.map_err(|error| CheckFailure::Broken(error.to_string()))?;
        self.names.borrow_mut().push(name.clone());
        Ok(name)
    }

    /// Returns the names of all objects that the probe may have created.
    pub(super) fn names(&self) -> Vec<ObjectName> {
        self.names.borrow().clone()
    }

    /// Repeats a check until it has a result, with a pause after each attempt without one. The
    /// closure `attempt` returns an error text as long as the result is uncertain.
    pub(super) fn repeat<T>(
        &self,
        mut attempt: impl FnMut() -> CheckResult<Attempt<T>>,
    ) -> CheckResult<T> {
        let mut pause = FIRST_PAUSE;
        let mut last = String::new();
        for number in 1..=ATTEMPTS {
            match attempt()? {
                Ok(done) => return Ok(done),
                Err(reason) => last = reason,
            }
            if number < ATTEMPTS {
                self.env.threads.pause(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
        let reason = format!("{last} ({ATTEMPTS} attempts)");
        Err(CheckFailure::Unfinished(ObjectErrorKind::Unavailable, reason))
    }

    /// Repeats a request while the store is unavailable.
    fn request<T>(&self, mut send: impl FnMut() -> ObjectResult<T>) -> CheckResult<T> {
        self.repeat(|| match send() {
            Ok(answer) => Ok(Ok(answer.value)),
            Err(error) if error.is_temporary() => Ok(Err(error.to_string())),
            Err(error) => Err(error.into()),
        })
    }

    /// Sends one creation; `None` if it failed for a reason that can pass.
    pub(super) fn create_once(
        &self,
        name: &ObjectName,
        bytes: &[u8],
    ) -> CheckResult<Attempt<Creation>> {
        match self.objects.create(name, bytes) {
            Ok(answer) => {
                if answer.value == Creation::Created {
                    self.note_time(answer.store_micros);
                }
                match answer.value {
                    Creation::Unknown(error) if error.is_temporary() => Ok(Err(error.to_string())),
                    Creation::Unknown(error) => Err(error.into()),
                    certain => Ok(Ok(certain)),
                }
            }
            Err(error) => {
                self.names.borrow_mut().retain(|known| known != name);
                match error.is_temporary() {
                    true => Ok(Err(error.to_string())),
                    false => Err(error.into()),
                }
            }
        }
    }

    /// Creates an object under a new name, until one creation is confirmed.
    pub(super) fn create(&self, kind: &str, bytes: &[u8]) -> CheckResult<ObjectName> {
        self.repeat(|| {
            let name = self.new_name(kind)?;
            match self.create_once(&name, bytes)? {
                Ok(Creation::Created) => Ok(Ok(name)),
                // A request that was delivered twice is refused its own name.
                Ok(_) => match self.read(&name, 0..u64::MAX >> 1)? {
                    Some(found) if found.bytes == bytes => {
                        Ok(Err(format!("the creation of {name} was delivered twice")))
                    }
                    Some(_) => broken(format!("the new name {name} has an object of other bytes")),
                    None => broken(format!(
                        "the store refused to create {name} since it exists, but a read does not \
                         find it"
                    )),
                },
                Err(reason) => Ok(Err(reason)),
            }
        })
    }

    pub(super) fn read(
        &self,
        name: &ObjectName,
        range: Range<u64>,
    ) -> CheckResult<Option<ObjectBytes>> {
        self.request(|| self.objects.read(name, range.clone()))
    }

    pub(super) fn list(&self, prefix: &str, after: Option<&str>) -> CheckResult<ListPage> {
        self.request(|| self.objects.list(prefix, after, 3))
    }

    pub(super) fn put(&self, name: &ObjectName, bytes: &[u8]) -> CheckResult<()> {
        self.request(|| self.objects.put(name, &bytes))
    }

    pub(super) fn delete(&self, name: &ObjectName) -> CheckResult<()> {
        self.request(|| self.objects.delete(name))
    }

    /// Notes the time of a confirmed creation.
    fn note_time(&self, store_micros: Option<u64>) {
        let mut fault = self.clock_fault.borrow_mut();
        let Some(micros) = store_micros else {
            fault.get_or_insert_with(|| {
                "a confirmed creation has no time of the store (the header `Date`)".to_owned()
            });
            return;
        };
        let wall = self.env.clock.wall_micros();
        let difference = i128::from(micros) - i128::from(wall);
        self.clock_difference_micros.set(i64::try_from(difference).ok());
        if let Some(last) = self.last_micros.replace(Some(micros))
            && micros.saturating_add(CLOCK_SKEW_MICROS) < last
        {
            let seconds = (last - micros) / 1_000_000;
            fault.get_or_insert_with(|| {
                format!(
                    "the store's time went back by {seconds} s between two creations; synchronize \
                     the clocks of its machines"
                )
            });
        }
    }
}
