//! [`EpochTable`]: where each epoch of a replicated log began.
//!
//! One leader writes in an epoch, and the slots of an epoch follow its first one by their uids. So
//! two nodes with the same first slot of an epoch have the same slots before it, and of its slots
//! the one has the first ones of the other. The tables of leader epochs of Kafka (KIP-101) show in
//! the same way where two histories part.

use umbel_base::{Decoder, varint};

use crate::object_frame::NUMBER_LIMIT;

/// Maximum number of epochs in a table, which forgets older ones. A node with an older epoch cannot
/// show that it has this history.
pub const EPOCHS_MAX: usize = 1 << 16;

/// First slot of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: u64,
    /// Number of its first slot.
    pub number: u64,
    /// Uid of this slot.
    pub uid: [u8; 16],
}

/// The newest epochs of a replicated log, without a gap.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct EpochTable(Vec<EpochStart>);

impl EpochTable {
    /// A table of these epochs.
    ///
    /// # Errors
    /// The reason why no replicated log has them.
    pub fn new(starts: Vec<EpochStart>) -> Result<EpochTable, String> {
        let Some(first) = starts.first() else { return Ok(EpochTable(starts)) };
        let is_next = |pair: &[EpochStart]| {
            pair[0].epoch.checked_add(1) == Some(pair[1].epoch) && pair[0].number < pair[1].number
        };
        // Each epoch has a slot, so its number is at least its epoch.
        let is_whole = match first.epoch {
            0 => false,
            1 => first.number == 1,
            epoch => starts.len() == EPOCHS_MAX && first.number >= epoch,
        };
        let is_valid = is_whole
            && starts.len() <= EPOCHS_MAX
            && starts.windows(2).all(is_next)
            && starts.iter().all(|start| start.number < NUMBER_LIMIT);
        match is_valid {
            true => Ok(EpochTable(starts)),
            false => Err("its table of epochs is impossible".into()),
        }
    }

    /// The epochs, from the oldest one on.
    pub fn starts(&self) -> &[EpochStart] {
        &self.0
    }

    /// The newest epoch; `None` before the first slot.
    pub fn last(&self) -> Option<EpochStart> {
        self.0.last().copied()
    }

    /// Adds the next epoch.
    pub fn add(&mut self, start: EpochStart) {
        if self.0.len() >= EPOCHS_MAX {
            self.0.remove(0);
        }
        self.0.push(start);
    }

    /// Returns the reason why a log with this table is not a later state of one whose newest epoch
    /// is `own`, and which ends at slot `end`.
    pub fn check_continues(&self, own: EpochStart, end: u64) -> Result<(), String> {
        let EpochStart { epoch, number, .. } = own;
        let index = self.0.partition_point(|start| start.epoch < epoch);
        let Some(found) = self.0.get(index) else {
            return Err(format!("this node has epoch {epoch}, which has not begun there"));
        };
        if found.epoch != epoch {
            return Err(format!(
                "this node has epoch {epoch}, and only epochs from {} on can be compared",
                found.epoch
            ));
        }
        if *found != own {
            return Err(format!(
                "epoch {epoch} began with another slot {} than slot {number} of this node",
                found.number
            ));
        }
        match self.0.get(index + 1) {
            Some(next) if next.number <= end => Err(format!(
                "epoch {} began at slot {}, and this node has slot {end} of epoch {epoch}",
                next.epoch, next.number
            )),
            _ => Ok(()),
        }
    }

    /// Appends the bytes of the table.
    pub fn encode(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.0.len() as u64);
        for start in &self.0 {
            varint::put_u64(out, start.epoch);
            varint::put_u64(out, start.number);
            out.extend_from_slice(&start.uid);
        }
    }

    /// Decodes the output of [`EpochTable::encode`]; `None` if it is malformed.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<Vec<EpochStart>> {
        let count = decoder.varint_usize().filter(|count| *count <= EPOCHS_MAX)?;
        let mut starts = Vec::new();
        for _ in 0..count {
            let (epoch, number) = (decoder.varint()?, decoder.varint()?);
            starts.push(EpochStart { epoch, number, uid: decoder.array()? });
        }
        Some(starts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(epoch: u64, number: u64) -> EpochStart {
        EpochStart { epoch, number, uid: [epoch as u8; 16] }
    }

    #[test]
    fn impossible_tables_are_refused() {
        for good in [vec![], vec![start(1, 1)], vec![start(1, 1), start(2, 5)]] {
            EpochTable::new(good).expect("a table");
        }
        for bad in [
            vec![start(0, 1)],
            vec![start(1, 2)],
            vec![start(2, 5)],
            vec![start(1, 1), start(3, 5)],
            vec![start(1, 1), start(2, 1)],
            vec![start(1, 1), start(2, NUMBER_LIMIT)],
            vec![start(u64::MAX, 1), start(0, 2)],
        ] {
            EpochTable::new(bad.clone()).expect_err(&format!("{bad:?}"));
        }
    }

    #[test]
    fn tables_forget_the_oldest_epochs() {
        let max = EPOCHS_MAX as u64;
        let mut table = EpochTable::default();
        (1..=max + 1).for_each(|epoch| table.add(start(epoch, 2 * epoch - 1)));
        assert_eq!(table.starts().first(), Some(&start(2, 3)));
        assert_eq!(EpochTable::new(table.starts().to_vec()), Ok(table.clone()));
        let mut longer = table.starts().to_vec();
        longer.push(start(max + 2, 3 * max));
        EpochTable::new(longer).expect_err("it is longer than any");
        EpochTable::new(table.starts()[1..].to_vec()).expect_err("an epoch is missing");
        let error = table.check_continues(start(1, 1), 1).expect_err("it is not in the table");
        assert_eq!(error, "this node has epoch 1, and only epochs from 2 on can be compared");
        table.check_continues(start(2, 3), 4).expect("the same history");
    }

    #[test]
    fn decoded_tables_have_at_most_the_maximum() {
        let mut bytes = Vec::new();
        varint::put_u64(&mut bytes, EPOCHS_MAX as u64 + 1);
        bytes.resize(bytes.len() + 18 * (EPOCHS_MAX + 1), 0);
        assert_eq!(EpochTable::decode(&mut Decoder::new(&bytes)), None);
    }

    #[test]
    fn other_histories_are_told_from_later_states() {
        let table = EpochTable::new(vec![start(1, 1), start(2, 5), start(3, 9)]).expect("a table");
        for (own, end) in [(start(1, 1), 4), (start(2, 5), 8), (start(3, 9), 9), (start(3, 9), 99)]
        {
            assert_eq!(table.check_continues(own, end), Ok(()), "{own:?} {end}");
        }
        let other = EpochStart { uid: [77; 16], ..start(2, 5) };
        for (own, end, reason) in [
            (other, 5, "epoch 2 began with another slot 5 than slot 5 of this node"),
            (start(2, 6), 6, "epoch 2 began with another slot 5 than slot 6 of this node"),
            (start(1, 1), 5, "epoch 2 began at slot 5, and this node has slot 5 of epoch 1"),
            (start(4, 20), 20, "this node has epoch 4, which has not begun there"),
        ] {
            assert_eq!(table.check_continues(own, end), Err(reason.into()));
        }
    }
}
