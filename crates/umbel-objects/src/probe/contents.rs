//! Checks of reads, lists, writes and deletions.

use umbel_env::{Creation, ObjectError, ObjectErrorKind, ObjectName};

use super::attempts::{Attempts, CheckFailure, CheckResult, broken};

/// Number of objects whose reads and lists are checked.
const OBJECTS: usize = 7;
/// Number of pages after which a list without an end is broken.
const PAGES_MAX: usize = 200;

/// Returns bytes that a store which recodes text or packed data would change: every value, ends of
/// lines, and the beginning of a compressed file.
pub(super) fn sample_bytes() -> Vec<u8> {
    let mut bytes = vec![0x1F, 0x8B, 8, 0, 0, 0, 0, 0];
    bytes.extend_from_slice(b"line\r\nline\r\n\xEF\xBB\xBF\x00\x00");
    (0..40).for_each(|_| bytes.extend(0..=255));
    bytes
}

/// Checks that a read after a confirmed creation finds the object, also if a read has found it
/// absent before.
pub(super) fn read_after_write(attempts: &Attempts<'_>) -> CheckResult<()> {
    for number in 0..OBJECTS {
        attempts.repeat(|| {
            let name = attempts.new_name("read")?;
            if attempts.read(&name, 0..9)?.is_some() {
                return broken(format!("the new name {name} has an object"));
            }
            match attempts.create_once(&name, &[number as u8])? {
                Ok(Creation::Created) => {}
                Ok(_) => return Ok(Err(format!("the creation of {name} was delivered twice"))),
                Err(reason) => return Ok(Err(reason)),
            }
            match attempts.read(&name, 0..9)? {
                Some(_) => Ok(Ok(())),
                None => broken(format!(
                    "a read does not find {name} after its creation was confirmed; use the store \
                     itself and not a cache or a replica"
                )),
            }
        })?;
    }
    Ok(())
}

/// Checks that reads return the written bytes.
pub(super) fn whole_bytes(attempts: &Attempts<'_>) -> CheckResult<()> {
    let sample = sample_bytes();
    for bytes in [sample.as_slice(), b"", b"x"] {
        let name = attempts.create("bytes", bytes)?;
        check_bytes(attempts, &name, bytes)?;
    }
    Ok(())
}

fn check_bytes(attempts: &Attempts<'_>, name: &ObjectName, bytes: &[u8]) -> CheckResult<()> {
    let Some(found) = attempts.read(name, 0..1 << 20)? else {
        return broken(format!("{name} is missing after its creation was confirmed"));
    };
    if found.object_bytes != bytes.len() as u64 || found.bytes.len() != bytes.len() {
        return broken(format!(
            "{name} has {} bytes, and {} were written",
            found.object_bytes,
            bytes.len()
        ));
    }
    match found.bytes.iter().zip(bytes).position(|(a, b)| a != b) {
        Some(offset) => broken(format!("byte {offset} of {name} differs from the written one")),
        None => Ok(()),
    }
}

/// Checks reads of ranges.
pub(super) fn ranges(attempts: &Attempts<'_>) -> CheckResult<()> {
    let bytes = sample_bytes();
    let len = bytes.len();
    let name = attempts.create("ranges", &bytes)?;
    for (start, end) in [(0, 1), (5, 300), (len - 1, len), (len - 9, len + 9), (len, len + 9)] {
        let Some(found) = attempts.read(&name, start as u64..end as u64)? else {
            return broken(format!("{name} is missing after its creation was confirmed"));
        };
        if found.bytes != bytes[start..end.min(len)] || found.object_bytes != len as u64 {
            return broken(format!(
                "the range {start} to {end} of {name} has other bytes or another length than \
                 written"
            ));
        }
    }
    Ok(())
}

/// Checks that an absent object is reported as absent.
pub(super) fn absence(attempts: &Attempts<'_>) -> CheckResult<()> {
    let existing = attempts.create("absence", b"x")?;
    let absent = attempts.new_name("absence")?;
    match attempts.read(&absent, 0..9) {
        Ok(None) => Ok(()),
        Ok(Some(_)) => broken(format!("the new name {absent} has an object")),
        Err(failure) => {
            // Without the right to list, some stores refuse the read of an absent object.
            let readable = attempts.read(&existing, 0..9)?.is_some();
            match failure {
                CheckFailure::Unfinished(_, reason) if readable && is_denied(attempts, &absent) => {
                    broken(format!(
                        "the store refuses to read an absent object and does not report that it is \
                         absent; grant the right to list the prefix ({reason})"
                    ))
                }
                other => Err(other),
            }
        }
    }
}

fn is_denied(attempts: &Attempts<'_>, absent: &ObjectName) -> bool {
    let denied = |error: &ObjectError| error.kind == ObjectErrorKind::Denied;
    attempts.objects.read(absent, 0..9).is_err_and(|error| denied(&error))
}

/// Checks that a list has all created objects, in order and in pages, and no others.
pub(super) fn list_after_write(attempts: &Attempts<'_>) -> CheckResult<()> {
    // A name outside of the prefix that sorts after it.
    attempts.create("listing", b"x")?;
    let mut created = Vec::new();
    for number in 0..OBJECTS {
        let bytes = vec![b'x'; number];
        created.push((attempts.create("list", &bytes)?, number as u64));
    }
    let prefix = format!("{}list-", attempts.prefix);
    let mut found = Vec::new();
    let mut after: Option<String> = None;
    for _ in 0..PAGES_MAX {
        let page = attempts.list(&prefix, after.as_deref())?;
        found.extend(page.objects.into_iter().map(|object| (object.name, object.bytes)));
        match page.next_after {
            Some(next) if after.as_ref().is_some_and(|last| next <= *last) => {
                return broken(format!("a page of the list of {prefix} begins again at {next}"));
            }
            Some(next) => after = Some(next),
            None => {
                after = None;
                break;
            }
        }
    }
    if after.is_some() {
        return broken(format!("the list of {prefix} has no end"));
    }
    if !found.is_sorted_by(|a, b| a.0 < b.0) {
        return broken(format!("the list of {prefix} is not in the order of the names"));
    }
    // Requests without an answer may have created further objects of the probe.
    let known = attempts.names();
    if let Some((other, _)) =
        found.iter().find(|(name, _)| !name.as_str().starts_with(&prefix) || !known.contains(name))
    {
        return broken(format!("the list of {prefix} has the object {other} of another prefix"));
    }
    match created.iter().find(|object| !found.contains(object)) {
        Some((missing, bytes)) => broken(format!(
            "the list of {prefix} lacks {missing} with {bytes} bytes after its creation was \
             confirmed"
        )),
        None => Ok(()),
    }
}

/// Checks that an object is written without a condition, also twice.
pub(super) fn put(attempts: &Attempts<'_>) -> CheckResult<()> {
    let name = attempts.new_name("put")?;
    let bytes = sample_bytes();
    attempts.put(&name, &bytes)?;
    attempts.put(&name, &bytes)?;
    check_bytes(attempts, &name, &bytes)
}

/// Checks that a deletion has an effect.
pub(super) fn delete(attempts: &Attempts<'_>) -> CheckResult<()> {
    let name = attempts.create("delete", b"x")?;
    // A creation that was delivered twice can land after the deletion.
    for _ in 0..3 {
        attempts.delete(&name)?;
        attempts.delete(&name)?;
        if attempts.read(&name, 0..9)?.is_none() {
            return Ok(());
        }
    }
    broken(format!(
        "{name} is still there after its deletion was confirmed; turn off object lock and retention"
    ))
}
