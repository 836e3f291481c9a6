//! [`StreamHead`]: entry of each stream in the index, under the stream's name.

use umbel_base::{Decoder, varint};

use crate::types::stream_metadata::RetentionRules;

const IS_TOMBSTONED: u8 = 1;
const HAS_RETENTION: u8 = 2;
const HAS_MAX_COUNT: u8 = 4;
const HAS_MAX_AGE: u8 = 8;

/// Entry of a stream in the index.
///
/// FORMAT: `docs/formats/event-index.md`. The last event is in the head and nowhere else in the
/// index; when another event follows, it gets an entry. So a stream with one event costs one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamHead {
    /// Position of the stream's first event, which identifies the stream in the index.
    pub id: u64,
    /// Revision of the stream's last event, not counting the tombstone.
    pub last_revision: u64,
    /// Position of the stream's last event.
    pub last_position: u64,
    /// Whether the stream is tombstoned; if so, `last_position` is the position of the tombstone.
    pub is_tombstoned: bool,
    /// In the head of a metadata stream: the retention rules for the stream that the metadata
    /// describes.
    pub retention: Option<RetentionRules>,
}

impl StreamHead {
    /// Returns the retention rules in a metadata stream's head for the stream whose head is
    /// `subject`. A delete before the stream's first event does not apply to the stream.
    pub fn retention_of(&self, subject: Option<StreamHead>) -> Option<RetentionRules> {
        let mut settings = self.retention?;
        let came_before = subject.is_some_and(|subject| self.last_position < subject.id);
        if came_before && settings.is_deleted() {
            settings.truncate_before = 0;
        }
        Some(settings)
    }

    /// Appends the encoded head to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        let settings = self.retention.unwrap_or_default();
        for (flag, is_set) in [
            (IS_TOMBSTONED, self.is_tombstoned),
            (HAS_RETENTION, self.retention.is_some()),
            (HAS_MAX_COUNT, settings.max_count.is_some()),
            (HAS_MAX_AGE, settings.max_age_seconds.is_some()),
        ] {
            if is_set {
                flags |= flag;
            }
        }
        out.push(flags);
        varint::put_u64(out, self.id);
        varint::put_u64(out, self.last_revision);
        varint::put_u64(out, self.last_position - self.id);
        if self.retention.is_some() {
            varint::put_u64(out, settings.truncate_before);
        }
        for number in [settings.max_count, settings.max_age_seconds].into_iter().flatten() {
            varint::put_u64(out, number);
        }
    }

    /// Decodes the output of [`StreamHead::encode`]; `None` where it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<StreamHead> {
        let mut decoder = Decoder::new(bytes);
        let flags = decoder.u8().filter(|flags| *flags < 16)?;
        let (id, last_revision) = (decoder.varint()?, decoder.varint()?);
        let last_position = id.checked_add(decoder.varint()?)?;
        let mut settings = None;
        if flags & HAS_RETENTION != 0 {
            let mut read =
                RetentionRules { truncate_before: decoder.varint()?, ..RetentionRules::default() };
            if flags & HAS_MAX_COUNT != 0 {
                read.max_count = Some(decoder.varint()?);
            }
            if flags & HAS_MAX_AGE != 0 {
                read.max_age_seconds = Some(decoder.varint()?);
            }
            settings = Some(read);
        } else if flags & (HAS_MAX_COUNT | HAS_MAX_AGE) != 0 {
            return None;
        }
        let is_tombstoned = flags & IS_TOMBSTONED != 0;
        let head =
            StreamHead { id, last_revision, last_position, is_tombstoned, retention: settings };
        decoder.is_done().then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_head_round_trips() {
        let plain = StreamHead {
            id: 96,
            last_revision: 7,
            last_position: 70_000,
            is_tombstoned: false,
            retention: None,
        };
        let settings =
            RetentionRules { truncate_before: 3, max_count: Some(5), max_age_seconds: Some(60) };
        let partly = RetentionRules { max_count: None, ..settings };
        for head in [
            plain,
            StreamHead { is_tombstoned: true, ..plain },
            StreamHead { retention: Some(settings), ..plain },
            StreamHead { retention: Some(partly), ..plain },
        ] {
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            assert_eq!(StreamHead::decode(&bytes), Some(head));
            for len in 0..bytes.len() {
                assert_eq!(StreamHead::decode(&bytes[..len]), None, "{len} bytes of {head:?}");
            }
        }
        assert_eq!(StreamHead::decode(&[HAS_MAX_AGE, 1, 1, 1, 1]), None);
        assert_eq!(StreamHead::decode(&[16, 1, 1, 1]), None);
    }
}
