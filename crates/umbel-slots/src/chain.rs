//! [`ChainState`]: what a node knows of the chain of slots, and its bytes.
//!
//! FORMAT: `docs/formats/slots.md`.

use umbel_base::{Decoder, varint};

use crate::decode_error::DecodeError;
use crate::epoch_table::{EpochStart, EpochTable};
use crate::object_frame::NUMBER_LIMIT;
use crate::slot_entry::SlotEntry;
use crate::slot_format::Slot;
use crate::slot_settings::SlotSettings;

/// The last slot of the chain that a node knows. A slot is in the chain if it names the uid of the
/// slot before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChainEnd {
    /// Number of the slot; 0 before the first one.
    pub number: u64,
    /// Uid of the slot; zeros before the first one.
    pub uid: [u8; 16],
    /// Epoch of the slot; 0 before the first one.
    pub epoch: u64,
    /// Whether the leader gave up its epoch with the slot.
    pub has_resigned: bool,
}

impl ChainEnd {
    /// Returns the chain with this slot at its end.
    ///
    /// # Errors
    /// The reason why the slot does not follow.
    pub fn followed_by(&self, slot: &Slot) -> Result<ChainEnd, String> {
        if slot.number != self.number + 1 {
            return Err(format!("slot {} follows slot {}", slot.number, self.number));
        }
        if slot.previous != self.uid {
            return Err(format!(
                "it does not follow the slot {} that this node has; two leaders wrote, or the \
                 store lost an object",
                self.number
            ));
        }
        let epoch = self.epoch + u64::from(slot.begins_epoch());
        if slot.epoch != epoch {
            return Err(format!("its epoch is {} instead of {epoch}", slot.epoch));
        }
        if self.has_resigned && epoch == self.epoch {
            return Err(format!(
                "its leader gave up epoch {epoch} with slot {}, and wrote on",
                self.number
            ));
        }
        if epoch == 0 {
            return Err("it is the first slot, and begins no epoch".into());
        }
        let (number, uid) = (slot.number, slot.ids.uid);
        Ok(ChainEnd { number, uid, epoch, has_resigned: slot.ends_epoch() })
    }
}

/// Knowledge of a node about the chain. It is a function of the slots up to its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ChainState {
    /// The last slot.
    pub end: ChainEnd,
    /// The first slots of the epochs.
    pub epochs: EpochTable,
    /// Settings that hold after the end.
    pub settings: SlotSettings,
}

impl ChainState {
    /// Returns the reason why the slot does not follow.
    pub fn check_next(&self, slot: &Slot) -> Result<(), String> {
        self.settings_after(slot)?;
        self.end.followed_by(slot).map(|_| ())
    }

    /// Adds the slot at the end.
    ///
    /// # Errors
    /// The reason why the slot does not follow. It changes nothing then.
    pub fn advance(&mut self, slot: &Slot) -> Result<(), String> {
        let settings = self.settings_after(slot)?;
        let end = self.end.followed_by(slot)?;
        if slot.begins_epoch() {
            self.epochs.add(EpochStart { epoch: end.epoch, number: end.number, uid: end.uid });
        }
        (self.end, self.settings) = (end, settings);
        Ok(())
    }

    fn settings_after(&self, slot: &Slot) -> Result<SlotSettings, String> {
        slot.entries.iter().try_fold(self.settings, |before, entry| match entry {
            SlotEntry::Settings(settings) => settings.check_after(&before).map(|()| *settings),
            _ => Ok(before),
        })
    }

    /// Returns the reason why this is not a later state of the chain of `earlier`.
    pub fn check_continues(&self, earlier: &ChainState) -> Result<(), String> {
        let (now, before) = (self.end.number, earlier.end.number);
        if let Some(own) = earlier.epochs.last() {
            self.epochs.check_continues(own, before)?;
        }
        if now < before || (now == before && self.end != earlier.end) {
            return Err(format!("it ends with another slot {now} than slot {before} of this node"));
        }
        Ok(())
    }

    /// Appends the bytes of the state.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.end.number);
        varint::put_u64(out, self.end.epoch);
        out.extend_from_slice(&self.end.uid);
        out.push(u8::from(self.end.has_resigned));
        let mut settings = Vec::new();
        self.settings.encode(&mut settings);
        varint::put_bytes(out, &settings);
        self.epochs.encode(out);
    }

    /// Decodes the output of [`ChainState::encode`].
    ///
    /// # Errors
    /// The reason why no replicated log has this state.
    pub fn decode(decoder: &mut Decoder<'_>) -> Result<ChainState, DecodeError> {
        let (end, settings) = ChainState::decode_end(decoder).ok_or_else(DecodeError::malformed)?;
        let settings = SlotSettings::decode(settings)?;
        let starts = EpochTable::decode(decoder).ok_or_else(DecodeError::malformed)?;
        let state = ChainState { end, epochs: EpochTable::new(starts)?, settings };
        match state.is_possible() {
            true => Ok(state),
            false => Err(DecodeError::Wrong("its end contradicts its table of epochs".into())),
        }
    }

    /// Takes the end, and the bytes of the settings.
    fn decode_end<'a>(decoder: &mut Decoder<'a>) -> Option<(ChainEnd, &'a [u8])> {
        let (number, epoch) = (decoder.varint()?, decoder.varint()?);
        let uid = decoder.array()?;
        let has_resigned = decoder.u8().filter(|flag| *flag <= 1)? == 1;
        Some((ChainEnd { number, uid, epoch, has_resigned }, decoder.bytes()?))
    }

    fn is_possible(&self) -> bool {
        let ChainEnd { number, uid, epoch, .. } = self.end;
        match self.epochs.last() {
            None => self.end == ChainEnd::default(),
            Some(last) => {
                let is_after = last.number < number || (last.number == number && last.uid == uid);
                last.epoch == epoch && is_after && number < NUMBER_LIMIT
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot_format::SlotIds;

    /// A slot after this end.
    fn slot(end: ChainEnd, uid: u8, entries: Vec<SlotEntry>) -> Slot {
        let ids = SlotIds { store: [7; 16], uid: [uid; 16] };
        let (number, previous) = (end.number + 1, end.uid);
        let mut slot =
            Slot { ids, number, epoch: 0, previous, node: "a".into(), wall_micros: 0, entries };
        slot.epoch = end.epoch + u64::from(slot.begins_epoch());
        slot
    }

    fn begins() -> SlotEntry {
        SlotEntry::EpochBegins { host: "h".into(), port: 1 }
    }

    /// The state after two epochs, the second one given up.
    fn example() -> ChainState {
        let settings = SlotSettings { derivation: 3, ..SlotSettings::default() };
        let mut state = ChainState::default();
        for (uid, entries) in [
            (1, vec![begins()]),
            (2, vec![SlotEntry::Settings(settings)]),
            (3, vec![begins(), SlotEntry::Nothing]),
            (4, vec![SlotEntry::Resigned]),
        ] {
            state.advance(&slot(state.end, uid, entries)).expect("it follows");
        }
        state
    }

    fn round_trip(state: &ChainState) -> Result<ChainState, DecodeError> {
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        ChainState::decode(&mut Decoder::new(&bytes))
    }

    #[test]
    fn state_is_a_function_of_the_slots() {
        let state = example();
        assert_eq!(state.end, ChainEnd { number: 4, uid: [4; 16], epoch: 2, has_resigned: true });
        let starts = [(1, 1, 1), (2, 3, 3)].map(|(epoch, number, uid)| EpochStart {
            epoch,
            number,
            uid: [uid; 16],
        });
        assert_eq!(state.epochs.starts(), starts);
        assert_eq!(state.settings.derivation, 3);
        for state in [state, ChainState::default()] {
            assert_eq!(round_trip(&state), Ok(state));
        }
    }

    #[test]
    fn slots_after_a_resignation_begin_an_epoch() {
        let mut state = example();
        let error = state.advance(&slot(state.end, 5, vec![SlotEntry::Nothing]));
        assert_eq!(error, Err("its leader gave up epoch 2 with slot 4, and wrote on".into()));
        assert_eq!(state, example(), "nothing changed");
        state.advance(&slot(state.end, 5, vec![begins()])).expect("it follows");
        assert_eq!((state.end.epoch, state.end.has_resigned), (3, false));
    }

    #[test]
    fn first_slot_begins_an_epoch() {
        let state = ChainState::default();
        state.check_next(&slot(state.end, 1, vec![SlotEntry::Nothing])).expect_err("epoch 0");
        state.check_next(&slot(state.end, 1, vec![begins()])).expect("it follows");
    }

    /// Each of several settings in one slot follows the one before it.
    #[test]
    fn settings_that_decrease_do_not_follow() {
        let state = example();
        let settings = |derivation| {
            SlotEntry::Settings(SlotSettings { derivation, ..SlotSettings::default() })
        };
        for (entries, is_valid) in [
            (vec![begins(), settings(3), settings(5)], true),
            (vec![begins(), settings(2)], false),
            (vec![begins(), settings(5), settings(4)], false),
        ] {
            assert_eq!(state.check_next(&slot(state.end, 5, entries)).is_ok(), is_valid);
        }
    }

    #[test]
    fn states_that_no_log_has_are_refused() {
        let good = example();
        let with = |end: ChainEnd| ChainState { end, ..good.clone() };
        let end = good.end;
        for bad in [
            with(ChainEnd { epoch: 3, ..end }),
            with(ChainEnd { number: 2, ..end }),
            with(ChainEnd { number: 3, ..end }),
            with(ChainEnd { number: NUMBER_LIMIT, ..end }),
            with(ChainEnd { number: u64::MAX, ..end }),
            ChainState { epochs: EpochTable::default(), ..good.clone() },
            ChainState {
                end: ChainEnd { has_resigned: true, ..ChainEnd::default() },
                ..ChainState::default()
            },
        ] {
            assert!(matches!(round_trip(&bad), Err(DecodeError::Wrong(_))), "{bad:?}");
        }
    }

    #[test]
    fn earlier_or_other_ends_are_no_later_state() {
        let state = example();
        state.check_continues(&ChainState::default()).expect("before the first slot");
        state.check_continues(&state).expect("the same");
        let mut later = state.clone();
        later.advance(&slot(state.end, 5, vec![begins()])).expect("it follows");
        later.check_continues(&state).expect("later");
        state.check_continues(&later).expect_err("earlier");
        let mut longer = ChainState::default();
        longer.advance(&slot(longer.end, 1, vec![begins()])).expect("it follows");
        let shorter = longer.clone();
        longer.advance(&slot(longer.end, 9, vec![SlotEntry::Nothing])).expect("it follows");
        shorter.check_continues(&longer).expect_err("the same epoch, and fewer slots");
        let other = ChainEnd { uid: [8; 16], ..longer.end };
        ChainState { end: other, ..longer.clone() }.check_continues(&longer).expect_err("another");
    }
}
