//! [`IdGenerator`]: identifiers for the events of one call that its client sent without one.
//!
//! Random bytes of the operating system cost a system call each time, and a call may have 100,000
//! events. So the generator takes one key from the system, and then the key stream of ChaCha20.

use std::sync::Arc;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use tonic::Status;
use umbel_env::Entropy;
use umbel_events::EventId;

use crate::protocol::grpc_status;

/// Bytes of an identifier.
const ID_BYTES: usize = 16;
/// Bytes of the key stream that are computed at once.
const BLOCK_BYTES: usize = 64 * ID_BYTES;
/// Bytes of a key of ChaCha20.
const KEY_BYTES: usize = 32;

/// The generator of unpredictable identifiers. It draws its key with the first identifier.
#[derive(Debug)]
pub struct IdGenerator {
    entropy: Arc<dyn Entropy>,
    stream: Option<KeyStream>,
}

/// The key stream of a random key, in blocks.
#[derive(Debug)]
struct KeyStream {
    key: LessSafeKey,
    block: [u8; BLOCK_BYTES],
    used_bytes: usize,
    next_block: u64,
}

impl IdGenerator {
    /// Creates a generator whose key comes from `entropy`.
    pub fn new(entropy: &Arc<dyn Entropy>) -> IdGenerator {
        IdGenerator { entropy: Arc::clone(entropy), stream: None }
    }

    /// Generates an identifier.
    ///
    /// # Errors
    /// The operating system provides no random bytes.
    pub fn generate(&mut self) -> Result<EventId, Status> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => self.stream.insert(KeyStream::new(&*self.entropy)?),
        };
        stream.take().map(EventId::from_random)
    }
}

impl KeyStream {
    fn new(entropy: &dyn Entropy) -> Result<KeyStream, Status> {
        let mut key = [0; KEY_BYTES];
        entropy.fill(&mut key).map_err(|error| grpc_status::status(&error.into()))?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &key).map_err(|_| no_key_stream())?;
        let (key, block) = (LessSafeKey::new(key), [0; BLOCK_BYTES]);
        Ok(KeyStream { key, block, used_bytes: BLOCK_BYTES, next_block: 0 })
    }

    fn take(&mut self) -> Result<[u8; ID_BYTES], Status> {
        if self.used_bytes == BLOCK_BYTES {
            self.fill_block()?;
        }
        let mut bytes = [0; ID_BYTES];
        bytes.copy_from_slice(&self.block[self.used_bytes..][..ID_BYTES]);
        self.used_bytes += ID_BYTES;
        Ok(bytes)
    }

    /// Replaces the block by the next one, which is the encryption of zeros.
    fn fill_block(&mut self) -> Result<(), Status> {
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&self.next_block.to_le_bytes());
        self.block = [0; BLOCK_BYTES];
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), &mut self.block);
        // The tag of the encryption is not needed.
        let _tag = sealed.map_err(|_| no_key_stream())?;
        (self.next_block, self.used_bytes) = (self.next_block + 1, 0);
        Ok(())
    }
}

fn no_key_stream() -> Status {
    Status::internal("no identifiers could be generated for events")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use umbel_env::Env;

    use super::*;

    /// Random bytes whose requests are counted.
    #[derive(Debug)]
    struct CountedEntropy(Arc<dyn Entropy>, AtomicUsize);

    impl Entropy for CountedEntropy {
        fn fill(&self, buffer: &mut [u8]) -> umbel::Result<()> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.fill(buffer)
        }
    }

    /// Story: each record without an identifier cost a system call on an asynchronous worker.
    #[test]
    fn identifiers_of_a_call_are_unique_and_take_one_key() {
        let counted = Arc::new(CountedEntropy(Env::system().entropy, AtomicUsize::new(0)));
        let entropy: Arc<dyn Entropy> = Arc::<CountedEntropy>::clone(&counted);
        let requests = || counted.1.load(Ordering::Relaxed);
        let (mut one, mut other) = (IdGenerator::new(&entropy), IdGenerator::new(&entropy));
        assert_eq!(requests(), 0, "a call whose events have identifiers needs no key");
        let mut ids = HashSet::new();
        for _ in 0..100_000 {
            assert!(ids.insert(one.generate().unwrap()));
        }
        assert_eq!(requests(), 1);
        assert!((0..1000).all(|_| ids.insert(other.generate().unwrap())), "keys differ");
        assert_eq!(requests(), 2);
    }

    /// No bit of the identifiers is constant, except the six that say that they are random.
    #[test]
    fn identifiers_are_random_in_all_bits() {
        let mut generator = IdGenerator::new(&Env::system().entropy);
        let mut ones = [0; 128];
        for _ in 0..10_000 {
            let id = u128::from_be_bytes(generator.generate().unwrap().0);
            for (bit, count) in ones.iter_mut().enumerate() {
                *count += (id >> bit & 1) as usize;
            }
        }
        let is_random = |count: &usize| (4_500..5_500).contains(count);
        assert_eq!(ones.iter().filter(|count| is_random(count)).count(), 122, "{ones:?}");
    }
}
