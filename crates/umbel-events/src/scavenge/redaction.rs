//! Redaction: removes the data and the metadata of single events. Streams, ids, types, revisions
//! and positions stay.
//!
//! A redaction rewrites the chunks of the events, as a scavenge does. Before the first rewrite it
//! appends an audit event for each event to the stream `$redactions`.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::json;

use crate::append::append_request::{AppendRequest, StreamAppend};
use crate::event_log::chunk::Chunk;
use crate::event_log::event_format::Frame;
use crate::scavenge::index_cleanup;
use crate::scavenge::retention_policy::{Verdict, has_content};
use crate::scavenge::{self, ScavengeHalt, ScavengeJob, ScavengeOptions};
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::types::event::{EventId, NewEvent};
use crate::types::expected_version::ExpectedVersion;

/// Stream of the audit events of redactions.
pub const REDACTIONS_STREAM: &str = "$redactions";
/// Type of the audit events of redactions.
const AUDIT_TYPE: &str = "$event-redacted";
/// Maximum number of events of one redaction.
pub const REDACTED_EVENTS_MAX: usize = 1000;
/// Number of characters of an invalid place that an error shows.
const SHOWN_CHARS_MAX: usize = 100;
/// Maximum length of a reason, in bytes.
const REASON_BYTES_MAX: usize = 4096;

/// Request to redact events.
#[derive(Debug, Clone, Copy)]
pub struct Redaction<'a> {
    /// Streams and revisions of the events, at most 1,000.
    pub events: &'a [(&'a str, u64)],
    /// Reason for the audit events, at most 4,096 bytes; empty without one.
    pub reason: &'a str,
    /// Name of the user who requests the redaction, for the audit events; empty if unknown.
    pub user: &'a str,
}

/// Parses an event's place, `STREAM@REVISION`. The last `@` separates.
///
/// # Errors
/// [`Error::Invalid`] with the place and the remedy.
pub fn parse_event_place(text: &str) -> Result<(&str, u64)> {
    let invalid = |cause: &str| {
        let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
        Error::invalid(format!(
            "{shown:?} {cause}; write STREAM@REVISION, such as cart-42@7, with the revision that \
             reads of the stream show"
        ))
    };
    let (stream, number) = text.rsplit_once('@').ok_or_else(|| invalid("has no @"))?;
    if stream.is_empty() {
        return Err(invalid("has no stream name before the last @"));
    }
    // `parse` also accepts a plus sign.
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let revision = number.parse().ok().filter(|_| is_number);
    Ok((stream, revision.ok_or_else(|| invalid("has no revision after the last @"))?))
}

/// Result of a redaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RedactionReport {
    /// Number of events that lost data or metadata.
    pub events_redacted: u64,
    /// Number of events that had neither before.
    pub events_without_data: u64,
    /// Number of rewritten chunks.
    pub chunks_rewritten: u64,
    /// Replaced files of this and of earlier scavenges and redactions that still exist, because a
    /// reader in another process uses them. The store removes them later, at the latest at its next
    /// open.
    pub files_kept: Vec<PathBuf>,
    /// Replaced files that have another name, in a copy of the store that was made of hard links.
    /// The copy still has the data.
    pub files_with_other_names: Vec<PathBuf>,
}

/// Verdict on an event of a chunk that a redaction rewrites.
pub fn redaction_verdict(redacted: &HashSet<u64>, frame: &Frame<'_>) -> Verdict {
    let is_redacted = redacted.contains(&frame.meta.position) && has_content(frame, &[]);
    if is_redacted { Verdict::Replace(&[]) } else { Verdict::Keep }
}

/// An event to redact, and its audit event.
struct Target {
    position: u64,
    audit_id: EventId,
    audit_data: Vec<u8>,
}

/// Redacts events on the calling thread.
pub fn run(shared: &Arc<StoreInner>, request: &Redaction<'_>) -> Result<RedactionReport> {
    check(request)?;
    let options = ScavengeOptions { busy_percent: 100, ..ScavengeOptions::default() };
    let mut job = scavenge::begin(shared, &options)?;
    let mut report = RedactionReport::default();
    let targets = shared.damage.record(find_all(shared, request, &mut report))?;
    if !targets.is_empty() {
        // Appends count damage for themselves.
        append_audit_events(shared, &targets)?;
    }
    shared.damage.record(rewrite_chunks(shared, &mut job, &targets, &mut report))?;
    Ok(report)
}

/// Finds the events to redact, in the order of the log. Counts events without data in the report.
fn find_all(
    shared: &StoreInner,
    request: &Redaction<'_>,
    report: &mut RedactionReport,
) -> Result<Vec<Target>> {
    let mut targets = Vec::new();
    for &(stream, revision) in request.events {
        match find(shared, request, stream, revision)? {
            Some(target) => targets.push(target),
            None => report.events_without_data += 1,
        }
    }
    targets.sort_by_key(|target: &Target| target.position);
    targets.dedup_by_key(|target| target.position);
    Ok(targets)
}

/// Rewrites the chunks of the events without their data, and completes the report.
fn rewrite_chunks(
    shared: &Arc<StoreInner>,
    job: &mut ScavengeJob,
    targets: &[Target],
    report: &mut RedactionReport,
) -> Result<()> {
    if targets.is_empty() {
        report.files_kept = index_cleanup::replaced_files(&shared.components)?;
        return Ok(());
    }
    shared.end_newest_chunk()?;
    let mut chunks: BTreeMap<u64, (Arc<Chunk>, HashSet<u64>)> = BTreeMap::new();
    for target in targets {
        let chunk = shared.log.chunks.find(target.position);
        let chunk = chunk.ok_or_else(|| Error::invalid("internal: an event without a chunk"))?;
        let entry = chunks.entry(chunk.id).or_insert_with(|| (chunk, HashSet::new()));
        entry.1.insert(target.position);
    }
    for (chunk, positions) in chunks.into_values() {
        job.redacted = positions;
        let examined = job.examine(&chunk);
        let finished = job.finish_swapped();
        match examined {
            Ok(()) => finished?,
            Err(ScavengeHalt::Failed(error)) => return Err(error),
            Err(ScavengeHalt::Stopped) => return Err(umbel::Error::Closed.into()),
        }
    }
    let done = job.control.report();
    report.events_redacted = done.events_stubbed;
    report.chunks_rewritten = done.chunks_rewritten;
    report.files_kept = index_cleanup::replaced_files(&shared.components)?;
    report.files_with_other_names = done.files_with_other_names;
    Ok(())
}

fn check(request: &Redaction<'_>) -> Result<()> {
    let count = request.events.len();
    if count > REDACTED_EVENTS_MAX {
        return Err(Error::invalid(format!(
            "{count} events are more than the {REDACTED_EVENTS_MAX} of one redaction; use several \
             redactions"
        )));
    }
    if request.reason.len() > REASON_BYTES_MAX {
        let bytes = request.reason.len();
        return Err(Error::invalid(format!(
            "the reason has {bytes} bytes, but may have at most {REASON_BYTES_MAX}; shorten it"
        )));
    }
    let system = request.events.iter().find(|(stream, _)| stream.starts_with('$'));
    if let Some((stream, _)) = system {
        return Err(Error::invalid(format!(
            "events of the system stream {stream:?} cannot be redacted, because the store and the \
             server read them; redact events of other streams"
        )));
    }
    Ok(())
}

/// Finds an event. Returns `None` if it has neither data nor metadata.
fn find(
    shared: &StoreInner,
    request: &Redaction<'_>,
    stream: &str,
    revision: u64,
) -> Result<Option<Target>> {
    let head = shared.components.head(stream)?;
    let position = match head {
        // Only the head has the position of the last event.
        Some(head) if revision == head.last_revision && !head.is_tombstoned => {
            Some(head.last_position)
        }
        Some(head) => shared.index.position(head.id, revision)?,
        None => None,
    };
    let absent = || {
        Error::invalid(format!(
            "the stream {stream:?} has no event with revision {revision}; read the stream to find \
             the revision of the event"
        ))
    };
    let position = position.ok_or_else(absent)?;
    let mut cursor = shared.log.cursor();
    let frame = cursor.find_event(position)?.ok_or_else(absent)?;
    if !has_content(&frame, &[]) {
        return Ok(None);
    }
    let mut audit = json!({
        "stream": stream,
        "revision": revision,
        "eventId": frame.event.id.to_string(),
        "eventType": frame.event.kind,
        "position": position,
    });
    for (key, text) in [("reason", request.reason), ("user", request.user)] {
        if !text.is_empty() {
            audit[key] = json!(text);
        }
    }
    let audit_id = shared.new_id()?;
    Ok(Some(Target { position, audit_id, audit_data: audit.to_string().into_bytes() }))
}

fn append_audit_events(shared: &Arc<StoreInner>, targets: &[Target]) -> Result<()> {
    let events: Vec<NewEvent<'_>> = targets
        .iter()
        .map(|target| NewEvent::json(target.audit_id, AUDIT_TYPE, &target.audit_data))
        .collect();
    let (stream, expected) = (REDACTIONS_STREAM, ExpectedVersion::Any);
    let appends = [StreamAppend { stream, expected, events: &events }];
    let request = AppendRequest { appends: &appends, checks: &[] };
    shared.submit_append(&request)?.wait()?;
    shared.damage.record(shared.sync_log())
}
