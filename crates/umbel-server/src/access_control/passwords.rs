//! [`Secret`], and how passwords are kept: as Argon2id says what they are, never as they are.
//!
//! Argon2 works in 19 MiB. They are lent out of two that stay: asked of the allocator each time,
//! and by whichever thread has time, they stayed in the heap of every thread that ever worked on
//! one.

use std::fmt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use tonic::Status;
use umbel_env::{Entropy, PerProcess};

/// Most bytes of a password.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Most memory that a kept password may ask for, in KiB, and most passes over it: what other
/// programs wrote is not believed.
const MEMORY_KIB_MAX: u32 = 64 << 10;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 4;
const SALT_BYTES: usize = 16;
/// How many passwords are worked on at a time.
pub const AT_A_TIME: usize = 2;
/// Letters and digits that a made password has, 140 bits of chance.
const MADE_LETTERS: usize = 24;
/// Without those that look alike.
const LETTERS: &[u8; 57] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// A password, which is not shown by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// This password.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The password itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// A password that nobody can guess.
    pub fn make(entropy: &dyn Entropy) -> umbel::Result<Secret> {
        let mut made = String::with_capacity(MADE_LETTERS);
        while made.len() < MADE_LETTERS {
            let mut random = [0; 32];
            entropy.fill(&mut random)?;
            // Every letter has the same chance.
            let fair = random.iter().map(|byte| usize::from(byte & 63));
            let letters = fair.filter(|at| *at < LETTERS.len()).map(|at| char::from(LETTERS[at]));
            made.extend(letters.take(MADE_LETTERS - made.len()));
        }
        Ok(Secret(made))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

/// Whether somebody may have this password; an error that does not tell it.
pub fn check(password: &str) -> Result<(), Status> {
    match password.len() {
        1..=PASSWORD_BYTES_MAX => Ok(()),
        bytes => Err(Status::invalid_argument(format!(
            "the password has {bytes} bytes, but must have 1 to {PASSWORD_BYTES_MAX}"
        ))),
    }
}

/// What is kept of a password. It takes some milliseconds and 19 MiB, on purpose.
pub fn keep(password: &str, entropy: &dyn Entropy) -> Result<String, Status> {
    let mut salt = [0; SALT_BYTES];
    entropy.fill(&mut salt).map_err(|error| Status::internal(error.to_string()))?;
    let failed = || Status::internal("the password could not be kept");
    let argon2 = Argon2::default();
    let hash = hash(&argon2, password, &salt, Params::DEFAULT_OUTPUT_LEN).ok_or_else(failed)?;
    let kept = PasswordHash {
        algorithm: Algorithm::default().ident(),
        version: Some(Version::default().into()),
        params: ParamsString::try_from(argon2.params()).map_err(|_| failed())?,
        salt: Some(Salt::new(&salt).map_err(|_| failed())?),
        hash: Some(hash),
    };
    Ok(kept.to_string())
}

/// Whether this is the password of which that was kept. It takes as long as [`keep`].
pub fn is_right(password: &str, kept: &str) -> bool {
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
    // The comparison takes as long whatever differs.
    hash(&argon2, password, &salt, wanted.len()).is_some_and(|found| found == wanted)
}

/// What Argon2 makes of a password, in so many bytes; `None` where it takes no such password or
/// salt.
fn hash(argon2: &Argon2<'_>, password: &str, salt: &[u8], bytes: usize) -> Option<Output> {
    let mut out = [0; Output::MAX_LENGTH];
    let out = out.get_mut(..bytes)?;
    let mut memory = Memory::lent(argon2.params().block_count());
    let done =
        argon2.hash_password_into_with_memory(password.as_bytes(), salt, out, &mut memory.blocks);
    done.ok()?;
    Output::new(out).ok()
}

/// Memory that passwords are worked on in; given back when it is dropped.
struct Memory {
    blocks: Vec<Block>,
}

/// What there is of it.
struct Memories {
    /// How many more may be lent.
    left: usize,
    /// Those that were lent before, each as long as usual.
    kept: Vec<Vec<Block>>,
}

/// Lends memory.
struct Lender {
    memories: Mutex<Memories>,
    given_back: Condvar,
}

impl Default for Lender {
    fn default() -> Lender {
        let memories = Memories { left: AT_A_TIME, kept: Vec::new() };
        Lender { memories: Mutex::new(memories), given_back: Condvar::new() }
    }
}

/// A forked child starts with nothing lent: what its parent had lent never comes back there.
static LENDER: PerProcess<Lender> = PerProcess::new();

fn memories() -> MutexGuard<'static, Memories> {
    LENDER.get().memories.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    /// Waits until fewer than [`AT_A_TIME`] passwords are worked on. What an earlier one left there
    /// is written over.
    fn lent(blocks: usize) -> Memory {
        let wait = LENDER.get().given_back.wait_while(memories(), |memories| memories.left == 0);
        let mut memories = wait.unwrap_or_else(PoisonError::into_inner);
        memories.left -= 1;
        let kept = if is_usual(blocks) { memories.kept.pop() } else { None };
        drop(memories);
        Memory { blocks: kept.unwrap_or_else(|| vec![Block::new(); blocks]) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut memories = memories();
        memories.left += 1;
        if is_usual(self.blocks.len()) {
            memories.kept.push(std::mem::take(&mut self.blocks));
        }
        drop(memories);
        LENDER.get().given_back.notify_one();
    }
}

/// Whether that is as much as the server's own passwords take.
fn is_usual(blocks: usize) -> bool {
    blocks == Params::DEFAULT.block_count()
}

#[cfg(test)]
mod tests {
    use umbel_env::Env;

    use super::*;

    #[test]
    fn a_password_is_known_by_what_was_kept_of_it_and_no_other_is() {
        let env = Env::system();
        let kept = keep("correct horse", &*env.entropy).unwrap();
        assert!(kept.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{kept}");
        assert!(!kept.contains("horse"));
        assert!(is_right("correct horse", &kept));
        assert!(!is_right("correct horsf", &kept) && !is_right("", &kept));
        assert_ne!(keep("correct horse", &*env.entropy).unwrap(), kept, "the salt is another");
    }

    /// Each password was worked on in memory of its own, in whichever thread had time. The
    /// allocator keeps what is given back for that thread, so that an hour of logging in held
    /// 19 MiB for each of a dozen threads, and 32 passwords at once took 600 MiB.
    #[test]
    fn however_many_passwords_come_at_once_they_are_worked_on_in_two_memories() {
        let env = Env::system();
        let kept = std::thread::scope(|scope| {
            let work = |at: usize| {
                let entropy = &env.entropy;
                scope.spawn(move || (at, keep(&format!("password {at}"), &**entropy).unwrap()))
            };
            let threads: Vec<_> = (0..8).map(work).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let memories = memories();
        assert!((1..=AT_A_TIME).contains(&(memories.kept.len() + AT_A_TIME - memories.left)));
        drop(memories);
        for (at, kept) in kept {
            assert!(is_right(&format!("password {at}"), &kept));
            assert!(!is_right(&format!("password {}", at + 1), &kept));
        }
    }

    #[test]
    fn what_is_kept_is_what_argon2_itself_makes_and_knows() {
        use argon2::{PasswordHasher, PasswordVerifier};
        let env = Env::system();
        let kept = keep("theirs", &*env.entropy).unwrap();
        let parsed = PasswordHash::new(&kept).unwrap();
        assert!(Argon2::default().verify_password(b"theirs", &parsed).is_ok());
        for (algorithm, version) in [("argon2id", 0x13), ("argon2i", 0x10), ("argon2d", 0x13)] {
            let params = Params::new(512, 3, 2, Some(24)).unwrap();
            let algorithm = Algorithm::try_from(algorithm).unwrap();
            let theirs = Argon2::new(algorithm, Version::try_from(version).unwrap(), params);
            let hash = theirs.hash_password_with_salt(b"theirs", b"a salt of theirs").unwrap();
            assert!(is_right("theirs", &hash.to_string()), "{hash}");
            assert!(!is_right("ours", &hash.to_string()), "{hash}");
        }
    }

    /// One kept password could have asked for all memory there is.
    #[test]
    fn what_others_wrote_is_no_password() {
        let env = Env::system();
        let kept = keep("a", &*env.entropy).unwrap();
        for broken in ["", "a", "$argon2id$", &kept[..40], &kept.replace("m=19456", "m=4000000")] {
            assert!(!is_right("a", broken), "{broken}");
        }
        assert!(!is_right("a", &kept.replace("t=2", "t=4000000000")));
    }

    #[test]
    fn made_passwords_differ_and_are_not_shown() {
        let env = Env::system();
        let made: Vec<Secret> = (0..9).map(|_| Secret::make(&*env.entropy).unwrap()).collect();
        for secret in &made {
            assert_eq!(secret.reveal().len(), MADE_LETTERS);
            assert_eq!(made.iter().filter(|other| *other == secret).count(), 1);
            assert!(!format!("{secret:?}").contains(secret.reveal()));
        }
    }
}
