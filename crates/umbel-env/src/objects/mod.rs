//! [`Objects`]: an object store, such as a bucket or a shared directory.
//!
//! A caller relies on these guarantees only. The probe of `umbel-objects` tries each of them and
//! refuses a store that breaks one.
//!
//! 1. **One creation.** Of all creations of one name, at most one takes effect, also if they arrive
//!    at the same time or take long. A name is free again only after [`Objects::delete`].
//! 2. **Whole objects.** A reader sees all bytes of an object, or no object.
//! 3. **Durable.** An object whose creation was confirmed, or that a read has returned, stays until
//!    its deletion, whatever crashes.
//! 4. **Read after write.** A read that begins after the confirmation finds the object.
//! 5. **List after write.** A list that begins after the confirmation contains the object, unless
//!    the object is deleted before the list ends. A list is no snapshot: if one object is created
//!    and another one deleted meanwhile, it can lack both. Garbage collection, reports and backups
//!    rely on this guarantee. Slots do not: they read names that they know.
//! 6. **The store's clock.** Each confirmed creation carries the store's time, so that a caller can
//!    compare ages without its own wall clock. A store whose other answers have no time states it
//!    on demand ([`Objects::time_micros`]).
//!
//! Everything else is left open. A request without an answer can take effect later, even after the
//! death of its sender ([`Creation::Unknown`]). A deletion can do so, too.

mod object_error;
mod object_name;
#[doc(hidden)]
pub mod objects_wrapper;
mod prefixed_objects;

use std::fmt::Debug;
use std::ops::Range;
use std::time::Duration;

pub use object_error::{ObjectError, ObjectErrorKind};
pub use object_name::{
    OBJECT_NAME_BYTES_MAX, OBJECT_NAME_SEGMENT_BYTES_MAX, OBJECT_NAME_SEGMENTS_MAX, ObjectName,
};
pub use prefixed_objects::PrefixedObjects;

/// Result of a call of an object store.
pub type ObjectResult<T> = Result<Answer<T>, ObjectError>;

/// An answer of an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// Content of the answer.
    pub value: T,
    /// The store's time at the answer, in microseconds since 1970 by the store's own clock; `None`
    /// if the answer has no time. It is not before the effect of the request. Differences of two
    /// times are meaningful if both are from the same store.
    pub store_micros: Option<u64>,
}

/// Outcome of a creation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Creation {
    /// This request created the object, which is durable.
    Created,
    /// An object has the name. An earlier delivery of the same request can have created it, so the
    /// caller reads the object and compares all bytes.
    Exists,
    /// The request took effect, or will do so at any later time, or never. The caller reads the
    /// object: if it is missing, the caller may create it again with the same bytes.
    Unknown(ObjectError),
}

/// Bytes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectBytes {
    /// The bytes of the range, as far as the object reaches.
    pub bytes: Vec<u8>,
    /// Number of bytes of the whole object.
    pub object_bytes: u64,
}

/// An object in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedObject {
    /// The name.
    pub name: ObjectName,
    /// Number of bytes of the object.
    pub bytes: u64,
    /// Time of the creation, in microseconds since 1970 by the store's own clock; `None` if the
    /// store does not report it.
    pub created_micros: Option<u64>,
}

/// A page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    /// The objects, ordered by the bytes of their names.
    pub objects: Vec<ListedObject>,
    /// Name after which the next page begins; `None` after the last page.
    pub next_after: Option<String>,
}

/// One of several creations that are sent at the same time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreationRequest {
    /// Name of the object.
    pub name: ObjectName,
    /// Bytes of the object.
    pub bytes: Vec<u8>,
    /// Wait between the first and the last byte of the body.
    pub body_delay: Duration,
}

/// The bytes of an object to be written, which can be larger than the memory.
pub trait ObjectSource: Send + Sync {
    /// Number of bytes.
    fn byte_count(&self) -> u64;
    /// Fills `buffer` with the bytes from `offset` on. A store reads parts in any order, and reads
    /// them again when it repeats a request.
    /// REQUIRES: the range lies within the bytes.
    ///
    /// # Errors
    /// The write fails with this error, and creates no object.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), ObjectError>;
}

impl ObjectSource for [u8] {
    fn byte_count(&self) -> u64 {
        self.len() as u64
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), ObjectError> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match self.get(start..start.saturating_add(buffer.len())) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => {
                let cause = "internal: the range lies outside of the bytes";
                return Err(ObjectError::new(
                    ObjectErrorKind::Refused,
                    "read",
                    "the source of an object",
                    cause,
                ));
            }
        }
        Ok(())
    }
}

impl ObjectSource for &[u8] {
    fn byte_count(&self) -> u64 {
        (**self).byte_count()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), ObjectError> {
        (**self).read(buffer, offset)
    }
}

impl ObjectSource for Vec<u8> {
    fn byte_count(&self) -> u64 {
        self.as_slice().byte_count()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), ObjectError> {
        self.as_slice().read(buffer, offset)
    }
}

/// An object store below one prefix, with the guarantees that the module lists.
///
/// Calls wait for the store. They end after a time that the store's options set; a directory on a
/// network file system can wait as long as that. A thread that must not wait does not call.
///
/// A name must not be the parent of another name: `a` and `a/b` cannot both be objects.
pub trait Objects: Send + Sync + Debug {
    /// Location of the store for messages, such as `s3://bucket/prefix`, without credentials.
    fn location(&self) -> &str;

    /// Creates an object unless one has this name. The request is sent once.
    ///
    /// # Errors
    /// The request had no effect and will have none: it was not sent, or the store refused it.
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation>;

    /// Sends several creations at the same time, each on a connection of its own. Returns their
    /// outcomes in the order of the requests. The probe uses it to try races.
    fn create_concurrently(&self, requests: &[CreationRequest]) -> Vec<ObjectResult<Creation>>;

    /// Writes an object under a name that no other attempt uses, since it ends in a random id. The
    /// store may repeat the request and send the object in parts.
    ///
    /// # Errors
    /// The object can exist, now or at any later time, but then as a whole.
    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()>;

    /// Reads a range of an object; `None` if no object has this name. A range beyond the end is
    /// cut; an answer of another length is an error. At most the bytes of the range are in memory.
    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>>;

    /// Returns the next objects whose names begin with `prefix` and come after the name `after`, at
    /// most `objects_max` of them at least one if there is one. The empty prefix matches every
    /// name.
    fn list(&self, prefix: &str, after: Option<&str>, objects_max: usize)
    -> ObjectResult<ListPage>;

    /// Deletes an object; succeeds if no object has this name.
    ///
    /// # Errors
    /// The deletion can take effect, now or at any later time.
    fn delete(&self, name: &ObjectName) -> ObjectResult<()>;

    /// Returns a time of the store that is at most `age_max` old by the clock of this process, and
    /// not later than the store's clock at the return. `None` if the store states its time in all
    /// answers, as buckets do. A caller takes it before a request and after it, since the machine
    /// can pause between any two of them.
    ///
    /// # Errors
    /// The store cannot state its time now.
    fn time_micros(&self, age_max: Duration) -> Result<Option<u64>, ObjectError> {
        let _ = age_max;
        Ok(None)
    }
}
