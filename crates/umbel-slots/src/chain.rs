//! [`ChainEnd`]: the last slot that a node knows to be in the chain.

use crate::slot_format::Slot;

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
        Ok(ChainEnd { number: slot.number, uid: slot.ids.uid, epoch })
    }
}
