//! [`Secret`], and how passwords are kept: as Argon2id says what they are, never as they are.

use std::fmt;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, Params, PasswordHasher, PasswordVerifier};
use tonic::Status;
use umbel_env::Entropy;

/// Most bytes of a password.
pub const PASSWORD_BYTES_MAX: usize = 1024;
/// Most memory that a kept password may ask for, in KiB, and most passes over it: what other
/// programs wrote is not believed.
const MEMORY_KIB_MAX: u32 = 64 << 10;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 4;
const SALT_BYTES: usize = 16;
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
    let hash: Result<PasswordHash, _> =
        Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
    hash.map(|hash| hash.to_string()).map_err(|error| Status::internal(error.to_string()))
}

/// Whether this is the password of which that was kept. It takes as long as [`keep`].
pub fn is_right(password: &str, kept: &str) -> bool {
    let Ok(hash) = PasswordHash::new(kept) else { return false };
    let is_fair = Params::try_from(&hash).is_ok_and(|params| {
        params.m_cost() <= MEMORY_KIB_MAX
            && params.t_cost() <= PASSES_MAX
            && params.p_cost() <= LANES_MAX
    });
    is_fair && Argon2::default().verify_password(password.as_bytes(), &hash).is_ok()
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
