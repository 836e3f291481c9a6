//! Campaigns of histories, one history for each seed, and the bugs that they must notice.

use std::sync::mpsc;
use std::time::Duration;

#[cfg(feature = "canary")]
use umbel_base::canary::{self, Switch};
use umbel_env::Env;

use crate::random::join;
use crate::report::Tally;

/// How many seeds a campaign takes, and its small part.
pub const SEEDS: u64 = 1000;
pub const SEEDS_SMALL: u64 = 30;
/// The longest hunt for a planted bug; one, of what comes behind a gap that a power cut left in the
/// log, shows in one of 600 or so.
pub const SEEDS_PLANTED: u64 = 10_000;
/// How often a history is tried again.
const TRIES: usize = 20;
/// A history takes a tenth of a second. One that takes this long has somebody in it who waits for
/// ever, or tries for ever.
const PATIENCE: Duration = Duration::from_secs(180);

/// A campaign of histories.
pub struct Histories {
    /// Its name, with which a history is replayed.
    pub campaign: &'static str,
    /// Whom it is about, in words.
    pub about: &'static str,
    /// One history of a seed; calls whose site fits the pattern are not made.
    pub history: fn(u64, Option<&str>, &Tally) -> Result<(), String>,
    /// Calls that somebody might forget; histories must notice each.
    pub left_out: &'static [&'static str],
    /// Bugs inside; histories must notice each.
    #[cfg(feature = "canary")]
    pub inside: &'static [Switch],
}

impl Histories {
    /// Histories of so many seeds.
    pub fn run(&self, seed: u64, seeds: u64) -> Tally {
        let tally = Tally::new(self.campaign);
        for number in 0..seeds {
            let own = join(seed, number);
            let held = self.one(own, None, &tally);
            if let Err(text) = &held {
                let replay = format!("{} {own}", self.campaign);
                tally.violation(format!("seed {own}: {text:.2000}"), replay);
            }
            tally.scenario(held.is_ok());
        }
        tally
    }

    /// One history. Ends the program where that does not end: its threads cannot be taken away.
    fn one(&self, seed: u64, left_out: Option<&str>, tally: &Tally) -> Result<(), String> {
        let (ends, ended) = mpsc::channel::<()>();
        let campaign = self.campaign;
        let watch = move || {
            if ended.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let waited = PATIENCE.as_secs();
                eprintln!(
                    "{campaign}: seed {seed} has not ended after {waited} s; --replay \"{campaign} \
                     {seed}\" does it once more"
                );
                std::process::exit(1);
            }
        };
        let watcher = Env::system().threads.spawn("watch", Box::new(watch));
        let held = (self.history)(seed, left_out, tally);
        drop(ends);
        let _ = watcher.map(|watcher| watcher.join());
        held
    }

    /// One history once more. Threads take their turns as they like, so it may take some times to
    /// see again what was seen once.
    pub fn again(&self, seed: u64) -> Result<(), String> {
        let tally = Tally::new(self.campaign);
        (0..TRIES).try_for_each(|_| self.one(seed, None, &tally))
    }

    /// Whether each of the planted bugs is noticed within so many seeds.
    pub fn planted(&self, seed: u64, seeds: u64) -> Tally {
        let tally = Tally::new(&format!("{}-planted", self.campaign));
        let hunt = |bug: &str, left_out: Option<&str>| {
            let quiet = Tally::new(bug);
            let noticed = (0..seeds).find_map(|number| {
                Some((number, self.one(join(seed, number), left_out, &quiet).err()?))
            });
            match &noticed {
                Some((after, text)) => {
                    tally.note(format!("{bug}: noticed by seed {after}: {text:.300}"));
                }
                None => {
                    let replay = format!("{} {seed}", self.campaign);
                    tally.violation(format!("{bug}: nobody noticed in {seeds} seeds"), replay);
                }
            }
            tally.scenario(noticed.is_some());
        };
        for pattern in self.left_out {
            hunt(&format!("'{pattern}' left out"), Some(pattern));
        }
        #[cfg(feature = "canary")]
        for bug in self.inside {
            bug.turn_on();
            hunt(&format!("{bug:?}"), None);
            canary::turn_all_off();
        }
        if cfg!(not(feature = "canary")) {
            let about = self.about;
            tally.skip(format!("bugs inside {about}: they are built in with the feature canary"));
        }
        tally
    }
}
