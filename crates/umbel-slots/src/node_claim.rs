//! [`NodeClaim`]: the object that binds the name of a node to its directory.
//!
//! Two directories under one name would both count as the node that led last. So a name belongs to
//! the first directory that takes it, for ever: a node whose disk is lost starts under a new name.
//!
//! A claim is no state machine: [`NodeClaim::take`] sends a few requests, and waits for nothing.
//!
//! FORMAT: `docs/formats/slots.md`.

use umbel_base::Decoder;
use umbel_env::{Clock, Creation, ObjectName, Objects};

use crate::decode_error::DecodeError;
use crate::object_frame::ObjectFrame;
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_requests::{damaged, read_whole, unreadable};

const FRAME: ObjectFrame = ObjectFrame { magic: *b"UmbelNod", noun: "claim of a name", offset: 4 };
/// Prefix of the names of these objects.
const NODE_PREFIX: &str = "nodes/";
/// Maximum bytes of the object.
const CLAIM_BYTES_MAX: u64 = 1 << 10;
/// Maximum bytes of the name of a node.
pub const NODE_NAME_BYTES_MAX: usize = 64;
/// Number of creations without a known outcome after which a claim fails.
const ATTEMPTS_MAX: usize = 5;

/// The claim of a name by a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeClaim {
    /// Id of the replicated log.
    pub store: [u8; 16],
    /// Instance of the directory.
    pub instance: [u8; 16],
}

impl NodeClaim {
    /// Name of the object of a node.
    ///
    /// # Errors
    /// The reason why no node has the name.
    pub fn name(node: &str) -> Result<ObjectName, String> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_name =
            (1..=NODE_NAME_BYTES_MAX).contains(&node.len()) && node.bytes().all(is_allowed);
        let name = is_name.then(|| ObjectName::new(format!("{NODE_PREFIX}{node}")).ok()).flatten();
        name.ok_or_else(|| {
            format!("must have 1 to {NODE_NAME_BYTES_MAX} letters, digits, '-' and '_'")
        })
    }

    /// Returns the bytes of the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.extend_from_slice(&self.store);
        out.extend_from_slice(&self.instance);
        FRAME.seal(0, out)
    }

    /// Decodes the output of [`NodeClaim::encode`].
    ///
    /// # Errors
    /// The reason why the bytes are no claim.
    pub fn decode(bytes: &[u8]) -> Result<NodeClaim, DecodeError> {
        NodeClaim::decode_body(FRAME.open(0, bytes)?).ok_or_else(DecodeError::malformed)
    }

    fn decode_body(bytes: &[u8]) -> Option<NodeClaim> {
        let mut decoder = Decoder::new(bytes);
        let claim = NodeClaim { store: decoder.array()?, instance: decoder.array()? };
        decoder.is_done().then_some(claim)
    }

    /// Reads the claim of a node; `None` if no directory has the name.
    ///
    /// # Errors
    /// A failed request, or an object that this Umbel cannot use.
    pub fn read(
        objects: &dyn Objects,
        clock: &dyn Clock,
        node: &str,
    ) -> SlotResult<Option<NodeClaim>> {
        let name = NodeClaim::name(node).map_err(SlotError::Refused)?;
        let Some(bytes) = read_whole(objects, clock, &name, CLAIM_BYTES_MAX)?.value else {
            return Ok(None);
        };
        let claim = NodeClaim::decode(&bytes);
        let remedy = "move it away, and start the node again";
        claim.map(Some).map_err(|error| unreadable(objects, &name, error, remedy))
    }

    /// Returns an error if another directory has the name of the node.
    ///
    /// # Errors
    /// Those of [`NodeClaim::read`]; [`SlotError::Refused`] for another directory.
    pub fn check_free(
        &self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        node: &str,
    ) -> SlotResult<bool> {
        match NodeClaim::read(objects, clock, node)? {
            None => Ok(false),
            Some(found) if found == *self => Ok(true),
            Some(_) => Err(NodeClaim::taken(objects, node)),
        }
    }

    /// The refusal of a name that belongs to another directory.
    pub fn taken(objects: &dyn Objects, node: &str) -> SlotError {
        SlotError::Refused(format!(
            "the node name {node} belongs to another directory of the replicated log in {}; start \
             the node with its own directory, or under a name that no node has had",
            objects.location()
        ))
    }

    /// Takes the name of the node for the directory. Does nothing if the directory has it.
    ///
    /// # Errors
    /// Those of [`NodeClaim::check_free`]. A call can be repeated.
    pub fn take(&self, objects: &dyn Objects, clock: &dyn Clock, node: &str) -> SlotResult<()> {
        let name = NodeClaim::name(node).map_err(SlotError::Refused)?;
        let mut last = None;
        for _ in 0..ATTEMPTS_MAX {
            if self.check_free(objects, clock, node)? {
                return Ok(());
            }
            match objects.create(&name, &self.encode())?.value {
                Creation::Created => return Ok(()),
                // The next read says who has it.
                Creation::Exists => {}
                Creation::Unknown(error) => last = Some(error),
            }
        }
        Err(match last {
            Some(error) => SlotError::Objects(error),
            None => {
                damaged(objects, &name, "it exists for creations, and is missing for reads".into())
            }
        })
    }
}

/// Decodes the bytes with the correct checksum. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let _ = NodeClaim::decode(bytes);
    if let Some(claim) = NodeClaim::decode_body(bytes) {
        let object = claim.encode();
        assert_eq!(FRAME.open(0, &object), Ok(bytes), "a claim has other bytes");
        assert_eq!(NodeClaim::decode(&object), Ok(claim), "a claim changed in its bytes");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_read_as_they_were_written() {
        let claim = NodeClaim { store: [1; 16], instance: [2; 16] };
        assert_eq!(NodeClaim::decode(&claim.encode()), Ok(claim));
        let mut longer = FRAME.begin();
        longer.extend_from_slice(&[0; 33]);
        assert!(NodeClaim::decode(&FRAME.seal(0, longer)).is_err());
    }

    #[test]
    fn names_are_one_segment() {
        for name in ["a", "node-7", "B_2", &"n".repeat(NODE_NAME_BYTES_MAX)] {
            assert!(NodeClaim::name(name).is_ok(), "{name}");
        }
        let long = "n".repeat(NODE_NAME_BYTES_MAX + 1);
        for name in ["", "a/b", "a.b", ".", "é", "a b", &long] {
            let reason = NodeClaim::name(name).expect_err(name);
            assert!(reason.starts_with("must have 1 to 64 letters"), "{reason}");
        }
    }
}
