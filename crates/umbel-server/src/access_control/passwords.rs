//! [`Secret`], and password storage as Argon2id hashes.
//!
//! Argon2 needs 19 MiB for each hash. Hashes borrow this memory from a pool of two buffers that
//! stay allocated. With allocations for each hash, the buffers stayed in the heap of every worker
//! thread that had hashed a password.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use tonic::Status;
use umbel_env::{Entropy, ProcessLocal};

/// Most bytes of a password.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Largest memory in KiB, and most passes, that a stored hash may require; a hash that another
/// program wrote could require any.
const MEMORY_KIB_MAX: u32 = 64 << 10;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 4;
const SALT_BYTES: usize = 16;
/// Most passwords that are hashed concurrently.
pub const CONCURRENT_HASHES_MAX: usize = 2;
/// Number of characters of a generated password: 140 bits of entropy.
const GENERATED_CHARS: usize = 24;
/// Letters and digits, except those that look alike.
const LETTERS: &[u8; 57] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// A password; its debug output hides the text.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps this password.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The password itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// A random password that cannot be guessed.
    pub fn generate(entropy: &dyn Entropy) -> umbel::Result<Secret> {
        let mut made = String::with_capacity(GENERATED_CHARS);
        while made.len() < GENERATED_CHARS {
            let mut random = [0; 32];
            entropy.fill(&mut random)?;
            // Every character is equally likely.
            let fair = random.iter().map(|byte| usize::from(byte & 63));
            let letters = fair.filter(|at| *at < LETTERS.len()).map(|at| char::from(LETTERS[at]));
            made.extend(letters.take(GENERATED_CHARS - made.len()));
        }
        Ok(Secret(made))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// Checks the length of a password; the error does not contain the password.
pub fn check_length(password: &str) -> Result<(), Status> {
    match password.len() {
        1..=PASSWORD_BYTES_MAX => Ok(()),
        bytes => Err(Status::invalid_argument(format!(
            "the password has {bytes} bytes, but must have 1 to {PASSWORD_BYTES_MAX}"
        ))),
    }
}

/// The stored hash of a password. Hashing deliberately takes some milliseconds and 19 MiB.
pub fn hash_password(password: &str, entropy: &dyn Entropy) -> Result<String, Status> {
    let mut salt = [0; SALT_BYTES];
    entropy.fill(&mut salt).map_err(|error| Status::internal(error.to_string()))?;
    let failed = || Status::internal("the password could not be stored");
    let argon2 = Argon2::default();
    let hash =
        argon2_hash(&argon2, password, &salt, Params::DEFAULT_OUTPUT_LEN).ok_or_else(failed)?;
    let kept = PasswordHash {
        algorithm: Algorithm::default().ident(),
        version: Some(Version::default().into()),
        params: ParamsString::try_from(argon2.params()).map_err(|_| failed())?,
        salt: Some(Salt::new(&salt).map_err(|_| failed())?),
        hash: Some(hash),
    };
    Ok(kept.to_string())
}

/// Whether the password matches a stored hash. Verifying takes as long as [`hash_password`].
pub fn verify(password: &str, kept: &str) -> bool {
    let Ok(kept) = PasswordHash::new(kept) else { return false };
    let is_fair = |params: &Params| {
        params.m_cost() <= MEMORY_KIB_MAX
            && params.t_cost() <= PASSES_MAX
            && params.p_cost() <= LANES_MAX
    };
    let Some(params) = Params::try_from(&kept).ok().filter(is_fair) else { return false };
    let algorithm = Algorithm::try_from(kept.algorithm.as_str());
    let version = kept.version.map_or(Ok(Version::default()), Version::try_from);
    let (Ok(algorithm), Ok(version)) = (algorithm, version) else { return false };
    let (Some(salt), Some(wanted)) = (kept.salt, kept.hash) else { return false };
    let argon2 = Argon2::new(algorithm, version, params);
    // The comparison takes the same time for any difference.
    argon2_hash(&argon2, password, &salt, wanted.len()).is_some_and(|found| found == wanted)
}

/// The Argon2 hash of a password, `bytes` long; `None` if Argon2 rejects the password or salt.
fn argon2_hash(argon2: &Argon2<'_>, password: &str, salt: &[u8], bytes: usize) -> Option<Output> {
    let mut out = [0; Output::MAX_LENGTH];
    let out = out.get_mut(..bytes)?;
    let mut memory = HashMemory::acquire(argon2.params().block_count());
    let done =
        argon2.hash_password_into_with_memory(password.as_bytes(), salt, out, &mut memory.blocks);
    done.ok()?;
    Output::new(out).ok()
}

/// Working memory of a password hash; returned to the pool on drop.
struct HashMemory {
    blocks: Vec<Block>,
}

/// The pool of working memory.
struct MemoryPool {
    /// Number of buffers that may still be acquired.
    available: usize,
    /// Returned buffers, each of the default size.
    free: Vec<Vec<Block>>,
}

/// Lends working memory to at most [`CONCURRENT_HASHES_MAX`] hashes.
struct MemoryLender {
    memories: Mutex<MemoryPool>,
    returned: Condvar,
}

impl Default for MemoryLender {
    fn default() -> MemoryLender {
        let memories = MemoryPool { available: CONCURRENT_HASHES_MAX, free: Vec::new() };
        MemoryLender { memories: Mutex::new(memories), returned: Condvar::new() }
    }
}

/// A forked child starts with a full pool: buffers in use in its parent never return in the child.
static LENDER: ProcessLocal<MemoryLender> = ProcessLocal::new();

fn memories() -> MutexGuard<'static, MemoryPool> {
    LENDER.get().memories.lock().ignore_poison()
}

impl HashMemory {
    /// Waits until fewer than [`CONCURRENT_HASHES_MAX`] passwords are being hashed. Contents that
    /// an earlier hash left in the buffer are overwritten.
    fn acquire(blocks: usize) -> HashMemory {
        let wait = LENDER.get().returned.wait_while(memories(), |memories| memories.available == 0);
        let mut memories = wait.ignore_poison();
        memories.available -= 1;
        let kept = if is_default_size(blocks) { memories.free.pop() } else { None };
        drop(memories);
        HashMemory { blocks: kept.unwrap_or_else(|| vec![Block::new(); blocks]) }
    }
}

impl Drop for HashMemory {
    fn drop(&mut self) {
        let mut memories = memories();
        memories.available += 1;
        if is_default_size(self.blocks.len()) {
            memories.free.push(std::mem::take(&mut self.blocks));
        }
        drop(memories);
        LENDER.get().returned.notify_one();
    }
}

/// Whether this is the memory size that the server's own password hashes need.
fn is_default_size(blocks: usize) -> bool {
    blocks == Params::DEFAULT.block_count()
}

#[cfg(test)]
mod tests {
    use umbel_env::Env;

    use super::*;

    #[test]
    fn stored_hash_verifies_only_its_password() {
        let env = Env::system();
        let kept = hash_password("correct horse", &*env.entropy).unwrap();
        assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept}");
        assert!(!kept.contains("horse"));
        assert!(verify("correct horse", &kept));
        assert!(!verify("correct horsf", &kept) && !verify("", &kept));
        assert_ne!(
            hash_password("correct horse", &*env.entropy).unwrap(),
            kept,
            "the salt is another"
        );
    }

    /// Story: each password was hashed in newly allocated memory, in whichever thread was free. The
    /// allocator keeps freed memory for the thread that had it. An hour of logins thus held 19 MiB
    /// for each of a dozen threads, and 32 concurrent passwords took 600 MiB.
    #[test]
    fn concurrent_verifications_share_two_buffers() {
        let env = Env::system();
        let kept = std::thread::scope(|scope| {
            let work = |at: usize| {
                let entropy = &env.entropy;
                scope.spawn(move || {
                    (at, hash_password(&format!("password {at}"), &**entropy).unwrap())
                })
            };
            let threads: Vec<_> = (0..8).map(work).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let memories = memories();
        assert!(
            (1..=CONCURRENT_HASHES_MAX)
                .contains(&(memories.free.len() + CONCURRENT_HASHES_MAX - memories.available))
        );
        drop(memories);
        for (at, kept) in kept {
            assert!(verify(&format!("password {at}"), &kept));
            assert!(!verify(&format!("password {}", at + 1), &kept));
        }
    }

    #[test]
    fn stored_hash_equals_that_of_the_argon2_crate() {
        use argon2::{PasswordHasher, PasswordVerifier};
        let env = Env::system();
        let kept = hash_password("theirs", &*env.entropy).unwrap();
        let parsed = PasswordHash::new(&kept).unwrap();
        assert!(Argon2::default().verify_password(b"theirs", &parsed).is_ok());
        for (algorithm, version) in [("argon2id", 0x13), ("argon2i", 0x10), ("argon2d", 0x13)] {
            let params = Params::new(512, 3, 2, Some(24)).unwrap();
            let algorithm = Algorithm::try_from(algorithm).unwrap();
            let theirs = Argon2::new(algorithm, Version::try_from(version).unwrap(), params);
            let hash = theirs.hash_password_with_salt(b"theirs", b"a salt of theirs").unwrap();
            assert!(verify("theirs", &hash.to_string()), "{hash}");
            assert!(!verify("ours", &hash.to_string()), "{hash}");
        }
    }

    /// Without a limit, one stored hash could request all available memory.
    #[test]
    fn hash_with_foreign_parameters_is_rejected() {
        let env = Env::system();
        let kept = hash_password("a", &*env.entropy).unwrap();
        for broken in ["", "a", "$argon2id$", &kept[..40], &kept.replace("m=19456", "m=4000000")] {
            assert!(!verify("a", broken), "{broken}");
        }
        assert!(!verify("a", &kept.replace("t=2", "t=4000000000")));
    }

    #[test]
    fn generated_passwords_differ_and_are_hidden_in_debug() {
        let env = Env::system();
        let made: Vec<Secret> = (0..9).map(|_| Secret::generate(&*env.entropy).unwrap()).collect();
        for secret in &made {
            assert_eq!(secret.reveal().len(), GENERATED_CHARS);
            assert_eq!(made.iter().filter(|other| *other == secret).count(), 1);
            assert!(!format!("{secret:?}").contains(secret.reveal()));
        }
    }
}
