//! [`Head`]: what is kept of each stream, under its name.

use umbel_base::{Decoder, varint};

use crate::settings::Settings;

const IS_TOMBSTONED: u8 = 1;
const HAS_SETTINGS: u8 = 2;
const HAS_MAX_COUNT: u8 = 4;
const HAS_MAX_AGE: u8 = 8;

/// What is kept of a stream.
///
/// FORMAT: `docs/formats/event-index.md`. The last event is in here and nowhere else in the index:
/// the next one puts it there, so that a stream of one event costs one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The position of its first event, by which the index knows the stream.
    pub id: u64,
    /// The revision of its last event, the one that ends a tombstoned stream not counted.
    pub last_revision: u64,
    /// The position of its last event.
    pub last_position: u64,
    /// Whether it ended for good; the position of the event that says so is in `last_position`.
    pub is_tombstoned: bool,
    /// In the head of a stream with metadata: what that says about the other stream.
    pub settings: Option<Settings>,
}

impl Head {
    /// Of the head of a stream with metadata: what that says about the stream whose head is
    /// `subject`. A deletion that came before the stream's first event says nothing of it.
    pub fn settings_of(&self, subject: Option<Head>) -> Option<Settings> {
        let mut settings = self.settings?;
        let came_before = subject.is_some_and(|subject| self.last_position < subject.id);
        if came_before && settings.is_deleted() {
            settings.truncate_before = 0;
        }
        Some(settings)
    }

    /// Writes the head as bytes behind what is in `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut flags = 0;
        let settings = self.settings.unwrap_or_default();
        for (flag, is_set) in [
            (IS_TOMBSTONED, self.is_tombstoned),
            (HAS_SETTINGS, self.settings.is_some()),
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
        if self.settings.is_some() {
            varint::put_u64(out, settings.truncate_before);
        }
        for number in [settings.max_count, settings.max_age_seconds].into_iter().flatten() {
            varint::put_u64(out, number);
        }
    }

    /// Reads what [`Head::encode`] wrote; `None` where it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<Head> {
        let mut decoder = Decoder::new(bytes);
        let flags = decoder.u8().filter(|flags| *flags < 16)?;
        let (id, last_revision) = (decoder.varint()?, decoder.varint()?);
        let last_position = id.checked_add(decoder.varint()?)?;
        let mut settings = None;
        if flags & HAS_SETTINGS != 0 {
            let mut read = Settings { truncate_before: decoder.varint()?, ..Settings::default() };
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
        let head = Head { id, last_revision, last_position, is_tombstoned, settings };
        decoder.is_done().then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_comes_back() {
        let plain = Head {
            id: 96,
            last_revision: 7,
            last_position: 70_000,
            is_tombstoned: false,
            settings: None,
        };
        let settings =
            Settings { truncate_before: 3, max_count: Some(5), max_age_seconds: Some(60) };
        let partly = Settings { max_count: None, ..settings };
        for head in [
            plain,
            Head { is_tombstoned: true, ..plain },
            Head { settings: Some(settings), ..plain },
            Head { settings: Some(partly), ..plain },
        ] {
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            assert_eq!(Head::decode(&bytes), Some(head));
            for len in 0..bytes.len() {
                assert_eq!(Head::decode(&bytes[..len]), None, "{len} bytes of {head:?}");
            }
        }
        assert_eq!(Head::decode(&[HAS_MAX_AGE, 1, 1, 1, 1]), None);
        assert_eq!(Head::decode(&[16, 1, 1, 1]), None);
    }
}
