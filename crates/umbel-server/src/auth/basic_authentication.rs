//! [`BasicCredentials`] and [`Authenticator`]: the credentials of a request and their verification.
//!
//! A verification deliberately costs some milliseconds and 19 MiB. At most two verifications run at
//! a time, one of them of a name that has not logged in lately from the same address. The requests
//! that wait are bounded, and one for each connection is in the queue ([`LoginQueue`]). Results are
//! cached for a while under a keyed hash of the credentials, never under the credentials. A cached
//! result is invalid once the user changes; a correct one stays cached while it is used, and wrong
//! ones have a cache of their own. Verifying an unknown name takes as long as verifying a wrong
//! password.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use ring::hmac;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use umbel_env::{Clock, Env};

use crate::access_control::acl_cache::{AclCache, CachedUser};
use crate::access_control::passwords::{self, CONCURRENT_HASHES_MAX, PASSWORD_BYTES_MAX, Secret};
use crate::access_control::users::{NAME_BYTES_MAX, User};
use crate::auth::login_queue::{CredentialHash, LoginQueue};
use crate::auth::password_threads::PasswordThreads;
use crate::event_store::EventStore;
use crate::limits::{CACHED_CREDENTIALS_MAX, CREDENTIALS_TIME, WRONG_CREDENTIALS_TIME};
use crate::protocol::grpc_status;
use crate::resources::connection_registry::LoginPeer;

/// Maximum number of users that are read from the store at the same time.
const CONCURRENT_LOOKUPS_MAX: usize = 4;

/// A name and a password from a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BasicCredentials {
    login: String,
    password: Secret,
}

impl BasicCredentials {
    /// Parses the credentials in the headers; an error if they are malformed.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<BasicCredentials>, Status> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let parsed =
            if values.next().is_some() { None } else { BasicCredentials::parse(value.as_bytes()) };
        parsed.map(Some).ok_or_else(grpc_status::unauthenticated)
    }

    /// Creates credentials of a name and a password.
    pub fn new(login: &str, password: &str) -> BasicCredentials {
        BasicCredentials { login: login.to_string(), password: Secret::new(password) }
    }

    /// The user name.
    pub fn login(&self) -> &str {
        &self.login
    }

    /// Checks that parsed credentials have a bounded length and are unchanged after encoding and
    /// parsing. For fuzzing only.
    pub fn assert_round_trip(&self) {
        let (login, password) = (&self.login, self.password.reveal());
        assert!(!login.contains(':') && login.len() <= NAME_BYTES_MAX);
        assert!(password.len() <= PASSWORD_BYTES_MAX);
        let values = format!("BASIC {}", STANDARD.encode(format!("{login}:{password}")));
        assert_eq!(BasicCredentials::parse(values.as_bytes()).as_ref(), Some(self));
    }

    fn parse(value: &[u8]) -> Option<BasicCredentials> {
        let (scheme, coded) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let text = String::from_utf8(STANDARD.decode(coded.trim_ascii()).ok()?).ok()?;
        let (login, password) = text.split_once(':')?;
        let is_short = login.len() <= NAME_BYTES_MAX && password.len() <= PASSWORD_BYTES_MAX;
        is_short.then(|| BasicCredentials::new(login, password))
    }
}

/// A keyed hash of a name and the address of its client.
type NameHash = [u8; 32];

/// The result of a verification of credentials.
#[derive(Clone)]
struct Verification {
    user: CachedUser,
    is_correct: bool,
    expires_at: Duration,
}

/// The slots of a verification: of a thread, and of a name that has not logged in lately.
type LoginSlots = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// Verifies names and passwords.
pub struct Authenticator {
    env: Env,
    key: hmac::Key,
    correct: Mutex<GenerationCache<Verification>>,
    wrong: Mutex<GenerationCache<Verification>>,
    /// Names that have logged in, each from an address.
    known_names: Mutex<GenerationCache<()>>,
    queue: Arc<LoginQueue>,
    worker_slots: Arc<Semaphore>,
    lookup_slots: Arc<Semaphore>,
    /// The one slot of names that have not logged in lately.
    unknown_name_slot: Arc<Semaphore>,
    /// The hash of a random password that no user has.
    dummy_hash: Arc<str>,
    password_threads: Arc<PasswordThreads>,
}

/// Recent values by the hash of their credentials or name, in two generations.
struct GenerationCache<T> {
    recent: HashMap<[u8; 32], T>,
    previous: HashMap<[u8; 32], T>,
}

impl<T> Default for GenerationCache<T> {
    fn default() -> GenerationCache<T> {
        GenerationCache { recent: HashMap::new(), previous: HashMap::new() }
    }
}

impl Authenticator {
    /// Creates an authenticator with an empty cache.
    pub fn new(env: &Env, password_threads: Arc<PasswordThreads>) -> umbel::Result<Authenticator> {
        let mut key = [0; 32];
        env.entropy.fill(&mut key)?;
        let secret = Secret::generate(&*env.entropy)?;
        // Without this hash an unknown name is refused sooner; nothing worse follows.
        let fallback_hash =
            passwords::hash_password(secret.reveal(), &*env.entropy).unwrap_or_default();
        Ok(Authenticator {
            env: env.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            correct: Mutex::default(),
            wrong: Mutex::default(),
            known_names: Mutex::default(),
            queue: Arc::default(),
            worker_slots: Arc::new(Semaphore::new(CONCURRENT_HASHES_MAX)),
            lookup_slots: Arc::new(Semaphore::new(CONCURRENT_LOOKUPS_MAX)),
            unknown_name_slot: Arc::new(Semaphore::new(CONCURRENT_HASHES_MAX - 1)),
            dummy_hash: fallback_hash.into(),
            password_threads,
        })
    }

    /// The user with this name and password; an error if name or password is wrong.
    pub async fn verify(
        &self,
        rules: &Arc<AclCache>,
        store: &EventStore,
        basic: BasicCredentials,
        peer: Option<LoginPeer>,
    ) -> Result<CachedUser, Status> {
        let mark = self.hash_credentials(&basic);
        if let Some(outcome) = self.cached(&mark) {
            return outcome.into_result();
        }
        let place = LoginQueue::join(&self.queue, mark, peer)?;
        let _turn = place.credentials_turn.lock().await;
        if let Some(outcome) = self.cached(&mark) {
            return outcome.into_result();
        }
        // Of each connection one request waits for a slot, so that all connections have a share.
        let _connection_turn = match &place.connection_turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        let user = self.look_up(rules, store, &basic.login).await?;
        let name = self.hash_name(&basic.login, peer.and_then(|peer| peer.address));
        let outcome = self.verify_uncached(rules, store, (user, basic), &name).await?;
        self.insert(mark, name, outcome.clone());
        outcome.into_result()
    }

    /// Verifies a password. A user who changed before the end of the hash is read again, so that
    /// the result is that of the new record. Each further hash needs a change of the password. No
    /// slot is taken during the read, which can wait for a slow disk.
    async fn verify_uncached(
        &self,
        rules: &Arc<AclCache>,
        store: &EventStore,
        (mut user, basic): (CachedUser, BasicCredentials),
        name: &NameHash,
    ) -> Result<Verification, Status> {
        let is_correct = loop {
            let slots = self.acquire_slots(name).await?;
            let is_right = self.verify_hash(&user, basic.password.clone(), slots).await?;
            if !user.is_fresh() {
                let changed = self.look_up(rules, store, &basic.login).await?;
                let has_same_password = password_hash(&changed) == password_hash(&user);
                user = changed;
                if !has_same_password {
                    continue;
                }
            }
            break is_right && user.value.as_ref().is_some_and(User::is_active);
        };
        let time = if is_correct { CREDENTIALS_TIME } else { WRONG_CREDENTIALS_TIME };
        let expires_at = self.clock().now().saturating_add(time);
        Ok(Verification { user, is_correct, expires_at })
    }

    /// Waits for the slots of a hash.
    async fn acquire_slots(&self, name: &NameHash) -> Result<LoginSlots, Status> {
        let unknown_slot = match self.is_known_name(name) {
            true => None,
            false => Some(acquire(&self.unknown_name_slot).await?),
        };
        Ok((acquire(&self.worker_slots).await?, unknown_slot))
    }

    /// Whether this is the user's password. The slots stay taken until the hash is done, even if
    /// the caller disconnects, and not longer.
    async fn verify_hash(
        &self,
        user: &CachedUser,
        password: Secret,
        slots: LoginSlots,
    ) -> Result<bool, Status> {
        let (user, dummy_hash) = (Arc::clone(user), Arc::clone(&self.dummy_hash));
        let verification = self.password_threads.run(move || {
            let kept = password_hash(&user).unwrap_or(&dummy_hash);
            let is_right = passwords::verify(password.reveal(), kept);
            drop(slots);
            is_right
        });
        verification.await
    }

    /// Looks a user up. The password threads do not: they have a low priority, so one could wait
    /// for a processor while it holds a lock that other calls need.
    async fn look_up(
        &self,
        rules: &Arc<AclCache>,
        store: &EventStore,
        login: &str,
    ) -> Result<CachedUser, Status> {
        if let Some(user) = rules.user_if_cached(login) {
            return Ok(user);
        }
        // It stays taken until the user is read, even if the caller disconnects.
        let slot = acquire(&self.lookup_slots).await?;
        let (rules, login) = (Arc::clone(rules), login.to_string());
        let lookup = store.blocking(move |store| {
            let _slot = slot;
            rules.user(store, &login)
        });
        lookup.await.map_err(|error| grpc_status::status(&error))
    }

    fn clock(&self) -> &dyn Clock {
        &*self.env.clock
    }

    fn hash_credentials(&self, basic: &BasicCredentials) -> CredentialHash {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&(basic.login.len() as u64).to_le_bytes());
        context.update(basic.login.as_bytes());
        context.update(basic.password.reveal().as_bytes());
        let mut mark = [0; 32];
        mark.copy_from_slice(context.sign().as_ref());
        mark
    }

    fn hash_name(&self, login: &str, address: Option<IpAddr>) -> NameHash {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&[u8::from(address.is_some())]);
        match address {
            Some(IpAddr::V4(address)) => context.update(&address.octets()),
            Some(IpAddr::V6(address)) => context.update(&address.octets()),
            None => {}
        }
        context.update(login.as_bytes());
        let mut hash = [0; 32];
        hash.copy_from_slice(context.sign().as_ref());
        hash
    }

    /// Whether the name has logged in lately from the same address.
    fn is_known_name(&self, name: &NameHash) -> bool {
        self.known_names.lock().ignore_poison().get(name).is_some()
    }

    /// The cached result of these credentials. A correct one stays cached while it is used: a
    /// change of the user invalidates it.
    fn cached(&self, mark: &CredentialHash) -> Option<Verification> {
        let now = self.clock().now();
        let is_valid = |outcome: &Verification| outcome.user.is_fresh() && now < outcome.expires_at;
        if let Some(outcome) = self.correct.lock().ignore_poison().get(mark)
            && is_valid(outcome)
        {
            outcome.expires_at = now.saturating_add(CREDENTIALS_TIME);
            return Some(outcome.clone());
        }
        let mut wrong = self.wrong.lock().ignore_poison();
        wrong.get(mark).filter(|outcome| is_valid(outcome)).map(|outcome| outcome.clone())
    }

    fn insert(&self, mark: CredentialHash, name: NameHash, outcome: Verification) {
        if outcome.is_correct {
            self.known_names.lock().ignore_poison().insert(name, ());
            self.correct.lock().ignore_poison().insert(mark, outcome);
        } else {
            self.wrong.lock().ignore_poison().insert(mark, outcome);
        }
    }
}

/// The password hash of a user; `None` if there is no such user.
fn password_hash(user: &CachedUser) -> Option<&str> {
    user.value.as_ref().map(|user| &*user.password_hash)
}

async fn acquire(slots: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Status> {
    let slot = Arc::clone(slots).acquire_owned().await;
    slot.map_err(|_| grpc_status::shutting_down())
}

impl<T> GenerationCache<T> {
    /// The value under this hash, which is then a recent one.
    fn get(&mut self, hash: &[u8; 32]) -> Option<&mut T> {
        if !self.recent.contains_key(hash) {
            let value = self.previous.remove(hash)?;
            self.insert(*hash, value);
        }
        self.recent.get_mut(hash)
    }

    fn insert(&mut self, hash: [u8; 32], value: T) {
        if self.recent.len() >= CACHED_CREDENTIALS_MAX {
            self.previous = std::mem::take(&mut self.recent);
        }
        self.recent.insert(hash, value);
    }
}

impl Verification {
    fn into_result(self) -> Result<CachedUser, Status> {
        if self.is_correct { Ok(self.user) } else { Err(grpc_status::unauthenticated()) }
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    use futures_util::FutureExt;
    use futures_util::future::LocalBoxFuture;

    use super::*;
    use crate::access_control::append_invalidated_cache::CacheEntry;
    use crate::access_control::users;
    use crate::test_support::test_service::TestService;

    /// Upper bound of every wait in these tests.
    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    /// A change of a user; `None` deletes the user.
    type Change<'a> = Option<&'a dyn Fn(&mut User)>;

    /// Points at which a login waits.
    #[derive(Debug, Clone, Copy)]
    enum WaitPoint {
        LookupSlot,
        UnknownNameSlot,
        WorkerSlot,
        Hash,
    }

    /// Slots and threads that no login gets until this value is dropped.
    struct Pause {
        _slots: Option<OwnedSemaphorePermit>,
        _threads: Vec<mpsc::Sender<()>>,
    }

    /// A store with users, and an authenticator.
    struct LoginFixture {
        service: TestService,
        rules: Arc<AclCache>,
        authenticator: Authenticator,
        /// Hash of the password `old`, which each user has first.
        old_hash: String,
    }

    impl LoginFixture {
        fn new() -> LoginFixture {
            let env = Env::system();
            let threads = Arc::new(PasswordThreads::new(&env).unwrap());
            LoginFixture {
                service: TestService::new(),
                rules: Arc::default(),
                authenticator: Authenticator::new(&env, threads).unwrap(),
                old_hash: passwords::hash_password("old", &*env.entropy).unwrap(),
            }
        }

        fn create(&self, login: &str) {
            let password_hash = self.old_hash.clone();
            let user = User { password_hash, ..User::with_login(login) };
            users::create(&self.service.store, &user).unwrap();
        }

        fn read(&self, login: &str) -> Option<User> {
            users::read(&self.service.store, login).unwrap()
        }

        /// Changes a user and invalidates the cache, as an append of the server does.
        fn change(&self, login: &str, change: Change<'_>) {
            let store = &self.service.store;
            let mut user = self.read(login).expect("the user exists");
            match change {
                Some(change) => {
                    change(&mut user);
                    users::update(store, &user, store.new_id().unwrap()).unwrap();
                }
                None => users::delete(store, &user).unwrap(),
            }
            self.rules.invalidate(&users::user_stream(login));
        }

        /// A login. All logins are of one connection.
        fn log_in(&self, login: &str, password: &str) -> LocalBoxFuture<'_, Option<CachedUser>> {
            let basic = BasicCredentials::new(login, password);
            let peer = LoginPeer { connection: 1, address: Some(IpAddr::from([10, 0, 0, 1])) };
            let store = &self.service.service.store;
            let verified = self.authenticator.verify(&self.rules, store, basic, Some(peer));
            let limited = tokio::time::timeout(TEST_TIMEOUT, verified);
            limited.map(|user| user.expect("the login ends").ok()).boxed_local()
        }

        /// Keeps logins at this point.
        async fn pause(&self, point: WaitPoint) -> Pause {
            let slots = match point {
                WaitPoint::LookupSlot => &self.authenticator.lookup_slots,
                WaitPoint::UnknownNameSlot => &self.authenticator.unknown_name_slot,
                WaitPoint::WorkerSlot => &self.authenticator.worker_slots,
                WaitPoint::Hash => {
                    let busy = (0..CONCURRENT_HASHES_MAX).map(|_| {
                        let (release, released) = mpsc::channel::<()>();
                        let work = self.authenticator.password_threads.run(move || released.recv());
                        assert!(work.now_or_never().is_none());
                        release
                    });
                    return Pause { _slots: None, _threads: busy.collect() };
                }
            };
            let all = slots.available_permits() as u32;
            let taken = Arc::clone(slots).acquire_many_owned(all).await.unwrap();
            Pause { _slots: Some(taken), _threads: Vec::new() }
        }

        /// Polls a login until it waits at this point.
        async fn reach(
            &self,
            point: WaitPoint,
            login: &str,
            call: &mut LocalBoxFuture<'_, Option<CachedUser>>,
        ) {
            let slots = &self.authenticator;
            let is_reached = || match point {
                WaitPoint::LookupSlot => !slots.queue.is_empty(),
                WaitPoint::UnknownNameSlot => self.rules.user_if_cached(login).is_some(),
                WaitPoint::WorkerSlot => slots.unknown_name_slot.available_permits() == 0,
                WaitPoint::Hash => slots.worker_slots.available_permits() < CONCURRENT_HASHES_MAX,
            };
            while !is_reached() {
                assert!(call.as_mut().now_or_never().is_none());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            assert!(call.as_mut().now_or_never().is_none());
        }

        /// Checks that no request waits, and that all slots get free.
        async fn assert_idle(&self) {
            assert!(self.authenticator.queue.is_empty());
            for (slots, count) in [
                (&self.authenticator.lookup_slots, CONCURRENT_LOOKUPS_MAX),
                (&self.authenticator.unknown_name_slot, CONCURRENT_HASHES_MAX - 1),
                (&self.authenticator.worker_slots, CONCURRENT_HASHES_MAX),
            ] {
                let all = tokio::time::timeout(TEST_TIMEOUT, slots.acquire_many(count as u32));
                drop(all.await.expect("all slots get free").unwrap());
                assert_eq!(slots.available_permits(), count);
            }
        }
    }

    fn block_on<F: Future>(test: F) -> F::Output {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap().block_on(test)
    }

    /// A client may disconnect while its login waits. Others with the same name go on.
    #[test]
    fn cancelled_login_frees_its_places() {
        block_on(async {
            let fixture = LoginFixture::new();
            let points = [
                WaitPoint::LookupSlot,
                WaitPoint::UnknownNameSlot,
                WaitPoint::WorkerSlot,
                WaitPoint::Hash,
            ];
            for point in points {
                let alone = format!("alone-{point:?}");
                fixture.create(&alone);
                let pause = fixture.pause(point).await;
                let mut cancelled = fixture.log_in(&alone, "old");
                fixture.reach(point, &alone, &mut cancelled).await;
                drop(cancelled);
                drop(pause);
                fixture.assert_idle().await;

                let login = format!("with-others-{point:?}");
                fixture.create(&login);
                let pause = fixture.pause(point).await;
                let mut cancelled = fixture.log_in(&login, "old");
                fixture.reach(point, &login, &mut cancelled).await;
                // One waits for the same credentials, the others for the connection's turn.
                let mut second = fixture.log_in(&login, "old");
                let mut other = fixture.log_in(&login, "other");
                let mut cancelled_other = fixture.log_in(&login, "another");
                for waiting in [&mut second, &mut other, &mut cancelled_other] {
                    assert!(waiting.now_or_never().is_none());
                }
                drop(cancelled_other);
                drop(cancelled);
                drop(pause);
                let (second, other) = futures_util::future::join(second, other).await;
                assert!(second.is_some() && other.is_none(), "{point:?}");
                fixture.assert_idle().await;
            }
        });
    }

    /// A lookup goes on after its caller left, and frees its slot at its end.
    #[test]
    fn cancelled_lookup_frees_its_slot() {
        block_on(async {
            let fixture = LoginFixture::new();
            fixture.create("ada");
            for _ in 0..2 * CONCURRENT_LOOKUPS_MAX {
                assert!(fixture.log_in("ada", "old").now_or_never().is_none());
            }
            fixture.assert_idle().await;
            assert!(fixture.log_in("ada", "old").await.is_some());
        });
    }

    /// Story: the record from before the hash decided, so a user who was disabled during the hash
    /// still logged in.
    #[test]
    fn login_follows_a_change_of_the_user_during_its_wait() {
        block_on(async {
            let fixture = LoginFixture::new();
            let entropy = Env::system().entropy;
            let new_hash = passwords::hash_password("new", &*entropy).unwrap();
            let set_password = |user: &mut User| user.password_hash.clone_from(&new_hash);
            let disable = |user: &mut User| user.is_disabled = true;
            let join_group = |user: &mut User| user.groups.push("readers".to_string());
            let cases: [(&str, Change<'_>, bool); 5] = [
                ("old", Some(&set_password), false),
                ("new", Some(&set_password), true),
                ("old", Some(&disable), false),
                ("old", Some(&join_group), true),
                ("old", None, false),
            ];
            for (number, (password, change, is_accepted)) in cases.into_iter().enumerate() {
                for point in [WaitPoint::WorkerSlot, WaitPoint::Hash] {
                    let login = format!("user-{number}-{point:?}");
                    fixture.create(&login);
                    let pause = fixture.pause(point).await;
                    let mut call = fixture.log_in(&login, password);
                    fixture.reach(point, &login, &mut call).await;
                    fixture.change(&login, change);
                    drop(pause);
                    let outcome = call.await;
                    assert_eq!(outcome.is_some(), is_accepted, "{login}");
                    let present = fixture.read(&login);
                    assert!(outcome.is_none_or(|user| user.value == present), "{login}");
                    let basic = BasicCredentials::new(&login, password);
                    let mark = fixture.authenticator.hash_credentials(&basic);
                    let is_new =
                        |it: Verification| it.user.value == present && it.is_correct == is_accepted;
                    assert!(fixture.authenticator.cached(&mark).is_none_or(is_new), "{login}");
                    let again = fixture.log_in(&login, password).await;
                    assert_eq!(again.is_some(), is_accepted, "{login}");
                }
            }
            fixture.assert_idle().await;
        });
    }

    /// Story: the read of a changed user waited for a slow disk while the login held the slots of a
    /// hash. Two such logins held all slots, and every other login waited for the disk.
    #[test]
    fn read_of_a_changed_user_holds_no_slot_of_a_hash() {
        block_on(async {
            let fixture = LoginFixture::new();
            let join_group = |user: &mut User| user.groups.push("readers".to_string());
            for point in [WaitPoint::WorkerSlot, WaitPoint::Hash] {
                let login = format!("user-{point:?}");
                fixture.create(&login);
                let pause = fixture.pause(point).await;
                let mut call = fixture.log_in(&login, "old");
                fixture.reach(point, &login, &mut call).await;
                fixture.change(&login, Some(&join_group));
                let lookups = fixture.pause(WaitPoint::LookupSlot).await;
                drop(pause);
                let slots = &fixture.authenticator;
                let are_free = || {
                    slots.worker_slots.available_permits() == CONCURRENT_HASHES_MAX
                        && slots.unknown_name_slot.available_permits() > 0
                };
                let is_read_due = async {
                    while !are_free() {
                        assert!(call.as_mut().now_or_never().is_none());
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                };
                let waited = tokio::time::timeout(TEST_TIMEOUT, is_read_due).await;
                waited.expect("the slots are free during the read");
                assert!(call.as_mut().now_or_never().is_none(), "it waits for the read");
                drop(lookups);
                assert!(call.await.is_some(), "{login}");
                fixture.assert_idle().await;
            }
        });
    }

    /// A clock that a test sets, in seconds.
    #[derive(Debug, Default)]
    struct FixedClock(AtomicU64);

    impl Clock for FixedClock {
        fn now(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::Relaxed))
        }

        fn wall_micros(&self) -> u64 {
            0
        }
    }

    /// Story: a user whose password was known for 300 s had to wait among guesses of passwords, and
    /// guesses evicted known passwords.
    #[test]
    fn known_credentials_stay_known_while_used_and_beside_wrong_ones() {
        let clock = Arc::new(FixedClock::default());
        let env = Env { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Env::system() };
        let threads = Arc::new(PasswordThreads::new(&env).unwrap());
        let authenticator = Authenticator::new(&env, threads).unwrap();
        let user = Arc::new(CacheEntry::fresh(Some(User::with_login("ada"))));
        let outcome = |is_correct, seconds| Verification {
            user: Arc::clone(&user),
            is_correct,
            expires_at: Duration::from_secs(seconds),
        };
        let time = CREDENTIALS_TIME.as_secs();
        authenticator.insert([1; 32], [1; 32], outcome(true, time));
        for number in 0..5 * CACHED_CREDENTIALS_MAX as u64 {
            let mut hash = [2; 32];
            hash[..8].copy_from_slice(&number.to_le_bytes());
            authenticator.insert(hash, hash, outcome(false, u64::MAX));
        }
        let is_known = |seconds| {
            clock.0.store(seconds, Ordering::Relaxed);
            authenticator.cached(&[1; 32]).is_some()
        };
        for uses in 1..=5 {
            assert!(is_known(uses * (time - 1)), "use {uses}");
        }
        assert!(authenticator.is_known_name(&[1; 32]) && !authenticator.is_known_name(&[2; 32]));
        assert!(!is_known(6 * time), "it was not used for too long");
    }
}
