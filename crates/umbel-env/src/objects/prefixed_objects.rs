//! [`PrefixedObjects`]: an object store below a further prefix.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::objects::{
    Creation, CreationRequest, ListPage, ObjectBytes, ObjectError, ObjectErrorKind, ObjectName,
    ObjectResult, ObjectSource, Objects,
};

/// The objects of a store whose names begin with a prefix, under their names without it.
#[derive(Debug)]
pub struct PrefixedObjects {
    inner: Arc<dyn Objects>,
    /// The prefix, with a `/` at its end.
    prefix: String,
    location: String,
}

impl PrefixedObjects {
    /// Returns the objects of `inner` below the prefix, which is a name without a `/` at its end.
    pub fn new(inner: Arc<dyn Objects>, prefix: &ObjectName) -> PrefixedObjects {
        let location = format!("{}/{}", inner.location().trim_end_matches('/'), prefix.as_str());
        PrefixedObjects { inner, prefix: format!("{}/", prefix.as_str()), location }
    }

    /// Returns the name in the inner store.
    fn inner_name(&self, name: &ObjectName, verb: &'static str) -> Result<ObjectName, ObjectError> {
        let full = format!("{}{}", self.prefix, name.as_str());
        ObjectName::new(full).map_err(|error| {
            let object = format!("{}/{}", self.location, name.as_str());
            ObjectError::new(ObjectErrorKind::Refused, verb, object, error.to_string())
        })
    }
}

impl Objects for PrefixedObjects {
    fn location(&self) -> &str {
        &self.location
    }

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        self.inner.create(&self.inner_name(name, "create")?, bytes)
    }

    fn create_concurrently(&self, requests: &[CreationRequest]) -> Vec<ObjectResult<Creation>> {
        let named = requests.iter().map(|request| {
            let name = self.inner_name(&request.name, "create")?;
            Ok(CreationRequest { name, ..request.clone() })
        });
        match named.collect::<Result<Vec<_>, ObjectError>>() {
            Ok(requests) => self.inner.create_concurrently(&requests),
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        self.inner.put(&self.inner_name(name, "write")?, source)
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        self.inner.read(&self.inner_name(name, "read")?, range)
    }

    fn list(
        &self,
        prefix: &str,
        after: Option<&str>,
        objects_max: usize,
    ) -> ObjectResult<ListPage> {
        let after = after.map(|after| format!("{}{after}", self.prefix));
        let listed = format!("{}{prefix}", self.prefix);
        let mut page = self.inner.list(&listed, after.as_deref(), objects_max)?;
        let shortened = |name: &str| name.strip_prefix(&self.prefix).map(str::to_owned);
        let foreign = |name: &str| {
            let cause = format!("the store listed {name}, which does not begin with {listed}");
            ObjectError::new(ObjectErrorKind::Damaged, "list", self.location.clone(), cause)
        };
        for object in &mut page.value.objects {
            let name = object.name.as_str();
            let name = shortened(name).and_then(|short| ObjectName::new(short).ok());
            object.name = name.ok_or_else(|| foreign(object.name.as_str()))?;
        }
        if let Some(next) = &page.value.next_after {
            page.value.next_after = Some(shortened(next).ok_or_else(|| foreign(next))?);
        }
        Ok(page)
    }

    fn delete(&self, name: &ObjectName) -> ObjectResult<()> {
        self.inner.delete(&self.inner_name(name, "delete")?)
    }

    fn time_micros(&self, age_max: Duration) -> Result<Option<u64>, ObjectError> {
        self.inner.time_micros(age_max)
    }
}
