//! [`SlotSettings`]: what all nodes of a replicated log must do alike, and how it changes.

use std::time::Duration;

use umbel_base::{Decoder, varint};

use crate::decode_error::DecodeError;
use crate::object_frame::SLOT_FORMAT;

/// Maximum bytes of a slot: 16 MiB of records, or one record, and the rest.
pub const SLOT_BYTES_MAX: u64 = 80 << 20;
/// Version of the derivation of views, heads and retention in a new log.
const FIRST_DERIVATION: u64 = 1;
/// Least value of [`SlotSettings::slot_bytes_max`]. Each slot without records fits.
pub const SLOT_BYTES_MAX_LEAST: u64 = 64 << 10;
/// Maximum of each duration, 366 days in microseconds.
pub const SETTING_MICROS_MAX: u64 = 366 * 24 * 3600 * 1_000_000;

/// Settings of a replicated log, equal at all nodes. An entry of a slot states all of them, and
/// replaces the earlier ones.
///
/// INVARIANT: `format`, `derivation` and `keep_micros` never decrease. A node that did not read the
/// change yet would read what it does not know, or trust an object that others delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SlotSettings {
    /// Format that the later slots may use.
    pub format: u64,
    /// Version of the derivation of views, heads and retention.
    pub derivation: u64,
    /// Maximum bytes of a slot that leaders write.
    pub slot_bytes_max: u64,
    /// Age below which nothing is deleted, in microseconds.
    pub keep_micros: u64,
    /// Time without a slot after which a follower becomes a candidate, in microseconds.
    pub follower_wait_micros: u64,
}

impl Default for SlotSettings {
    fn default() -> SlotSettings {
        SlotSettings {
            format: u64::from(SLOT_FORMAT),
            derivation: FIRST_DERIVATION,
            slot_bytes_max: SLOT_BYTES_MAX,
            keep_micros: 2 * 3600 * 1_000_000,
            follower_wait_micros: 8 * 1_000_000,
        }
    }
}

impl SlotSettings {
    /// Time without a slot after which a follower becomes a candidate.
    pub fn follower_wait(&self) -> Duration {
        Duration::from_micros(self.follower_wait_micros)
    }

    /// Returns the reason why these settings cannot be those of a log.
    pub fn check(&self) -> Result<(), String> {
        let known = u64::from(SLOT_FORMAT);
        if self.format != known {
            return Err(format!("it states format {}, and there is {known}", self.format));
        }
        if self.derivation < FIRST_DERIVATION {
            return Err("it states no version of the derivation".into());
        }
        if !(SLOT_BYTES_MAX_LEAST..=SLOT_BYTES_MAX).contains(&self.slot_bytes_max) {
            return Err(format!(
                "it states slots of {} bytes, not {SLOT_BYTES_MAX_LEAST} to {SLOT_BYTES_MAX}",
                self.slot_bytes_max
            ));
        }
        for (micros, name) in
            [(self.keep_micros, "keep"), (self.follower_wait_micros, "follower wait")]
        {
            if micros == 0 || micros > SETTING_MICROS_MAX {
                return Err(format!("its {name} of {micros} µs is not above 0 and up to 366 days"));
            }
        }
        Ok(())
    }

    /// Returns the reason why these settings cannot follow `earlier`.
    pub fn check_after(&self, earlier: &SlotSettings) -> Result<(), String> {
        for (now, before, name) in [
            (self.format, earlier.format, "format"),
            (self.derivation, earlier.derivation, "version of the derivation"),
            (self.keep_micros, earlier.keep_micros, "keep in microseconds"),
        ] {
            if now < before {
                return Err(format!("its {name} is {now}, below {before} before it"));
            }
        }
        Ok(())
    }

    /// Returns the reason why no leader writes a slot of this length.
    pub fn check_slot_bytes(&self, bytes: u64) -> Result<(), String> {
        let max = self.slot_bytes_max;
        match bytes <= max {
            true => Ok(()),
            false => Err(format!("it has {bytes} bytes, and the log has {max} at most")),
        }
    }

    /// Appends the bytes of the settings, which have no length of their own.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [
            self.format,
            self.derivation,
            self.slot_bytes_max,
            self.keep_micros,
            self.follower_wait_micros,
        ] {
            varint::put_u64(out, number);
        }
    }

    /// Decodes the output of [`SlotSettings::encode`].
    pub fn decode(bytes: &[u8]) -> Result<SlotSettings, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        // A later format may have more fields.
        let format = decoder.varint().ok_or_else(DecodeError::malformed)?;
        if format > u64::from(SLOT_FORMAT) {
            return Err(DecodeError::Newer(format!("its settings have format {format}")));
        }
        let settings = SlotSettings::decode_rest(format, &mut decoder)
            .filter(|_| decoder.is_done())
            .ok_or_else(DecodeError::malformed)?;
        settings.check()?;
        Ok(settings)
    }

    fn decode_rest(format: u64, decoder: &mut Decoder<'_>) -> Option<SlotSettings> {
        Some(SlotSettings {
            format,
            derivation: decoder.varint()?,
            slot_bytes_max: decoder.varint()?,
            keep_micros: decoder.varint()?,
            follower_wait_micros: decoder.varint()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(settings: SlotSettings) -> Result<SlotSettings, DecodeError> {
        let mut bytes = Vec::new();
        settings.encode(&mut bytes);
        SlotSettings::decode(&bytes)
    }

    #[test]
    fn impossible_settings_are_refused() {
        let good = SlotSettings::default();
        assert_eq!(round_trip(good), Ok(good));
        for bad in [
            SlotSettings { format: 1, ..good },
            SlotSettings { derivation: 0, ..good },
            SlotSettings { slot_bytes_max: SLOT_BYTES_MAX_LEAST - 1, ..good },
            SlotSettings { slot_bytes_max: SLOT_BYTES_MAX + 1, ..good },
            SlotSettings { keep_micros: 0, ..good },
            SlotSettings { keep_micros: SETTING_MICROS_MAX + 1, ..good },
            SlotSettings { follower_wait_micros: 0, ..good },
            SlotSettings { follower_wait_micros: u64::MAX, ..good },
        ] {
            assert!(matches!(round_trip(bad), Err(DecodeError::Wrong(_))), "{bad:?}");
        }
    }

    /// Settings of a later format can have more fields.
    #[test]
    fn settings_of_a_newer_umbel_are_named() {
        let mut bytes = Vec::new();
        SlotSettings { format: 3, ..SlotSettings::default() }.encode(&mut bytes);
        bytes.push(1);
        let error = SlotSettings::decode(&bytes).expect_err("format 3");
        assert_eq!(
            error.to_string(),
            "a newer Umbel wrote it (its settings have format 3); use that Umbel"
        );
    }

    #[test]
    fn versions_and_keep_never_decrease() {
        let SlotSettings { derivation, keep_micros, .. } = SlotSettings::default();
        let earlier = SlotSettings { derivation: derivation + 1, ..SlotSettings::default() };
        let changed = SlotSettings { slot_bytes_max: SLOT_BYTES_MAX_LEAST, ..earlier };
        let changed = SlotSettings { follower_wait_micros: 1, ..changed };
        for good in [earlier, changed, SlotSettings { keep_micros: keep_micros + 1, ..earlier }] {
            assert_eq!(good.check_after(&earlier), Ok(()), "{good:?}");
        }
        for bad in [
            SlotSettings { derivation, ..earlier },
            SlotSettings { keep_micros: keep_micros - 1, ..earlier },
        ] {
            bad.check_after(&earlier).expect_err("it decreased");
        }
    }
}
