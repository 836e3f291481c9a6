//! [`LeaderProofs`]: which reads a leader may answer that require the leader.
//!
//! INVARIANT (C4): a read is answered only after a proof that began after the read arrived. Each
//! proof is a request to the object store, so it shows that no later leader had a slot then. The
//! clock of the node proves nothing: it can stand still while another leader writes.

/// Arrival of a read that requires the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadTicket(u64);

/// Result of a request for a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProofStep {
    /// The node leads. [`SlotWriter::can_answer`](crate::SlotWriter::can_answer) says which reads
    /// it may answer.
    Proven,
    /// The answer proves nothing, since it has no time. The step can be repeated.
    Unknown,
    /// The node leads no more, and answers no read that requires the leader.
    Deposed,
}

/// Proofs of a leader, in the order in which they began. Reads share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LeaderProofs {
    /// Number of proofs that began.
    begun: u64,
    /// Number of the last one that succeeded.
    succeeded: u64,
}

impl LeaderProofs {
    /// A read arrives.
    pub fn arrive(&self) -> ReadTicket {
        ReadTicket(self.begun)
    }

    /// A proof begins.
    pub fn begin(&mut self) {
        self.begun += 1;
    }

    /// The proof that began last succeeded.
    pub fn succeed(&mut self) {
        self.succeeded = self.begun;
    }

    /// Whether a proof succeeded that began after the read arrived.
    pub fn can_answer(&self, read: ReadTicket) -> bool {
        self.succeeded > read.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_counts_for_reads_that_arrived_before_it() {
        let mut proofs = LeaderProofs::default();
        let first = proofs.arrive();
        proofs.begin();
        let second = proofs.arrive();
        assert!(!proofs.can_answer(first));
        proofs.succeed();
        assert!(proofs.can_answer(first) && !proofs.can_answer(second));
        proofs.begin();
        proofs.begin();
        proofs.succeed();
        assert!(proofs.can_answer(second) && !proofs.can_answer(proofs.arrive()));
    }
}
