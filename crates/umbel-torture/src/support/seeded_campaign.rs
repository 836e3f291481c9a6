//! Campaigns with one script for each seed, and the faults that each campaign must detect.

use std::sync::mpsc;
use std::time::Duration;

use umbel_env::Env;

use crate::support::active_failpoint::{self, ActiveFailpoint};
use crate::support::campaign_tally::CampaignTally;
use crate::support::derived_seed::derive_seed;
use crate::support::failpoint_list::Failpoint;

/// Default number of seeds.
pub const SEEDS: u64 = 1000;
pub const SEEDS_SMALL: u64 = 30;
/// Limit of seeds in the hunt for a planted fault. One fault, about the records after a gap that a
/// power cut left in the log, shows only in one of about 600 seeds.
pub const SEEDS_PLANTED: u64 = 10_000;
/// Number of further tries of a script in a replay.
const REPLAY_TRIES: usize = 20;
/// Time limit of a script, which takes a tenth of a second. A longer script has a thread that waits
/// or retries for ever.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(180);

/// A campaign with one script for each seed.
pub struct SeededCampaign {
    /// Name of the campaign, for replays.
    pub campaign: &'static str,
    /// Subject of the campaign, in words.
    pub subject: &'static str,
    /// Runs the script of a seed, and omits the calls whose site matches the pattern.
    pub script: fn(u64, Option<&str>, &CampaignTally) -> Result<(), String>,
    /// Calls that an implementation might forget; scripts must detect each omission.
    pub omitted_calls: &'static [&'static str],
    /// Failpoints of the product; scripts must detect each of them.
    pub failpoints: &'static [Failpoint],
}

impl SeededCampaign {
    /// Runs scripts of the given number of seeds.
    pub fn run(&self, seed: u64, seeds: u64) -> CampaignTally {
        let tally = CampaignTally::new(self.campaign);
        for number in 0..seeds {
            let own = derive_seed(seed, number);
            let held = self.run_script(own, None, &tally);
            if let Err(text) = &held {
                let replay = format!("{} {own}", self.campaign);
                tally.violation(format!("seed {own}: {text:.2000}"), replay);
            }
            tally.scenario(held.is_ok());
        }
        tally
    }

    /// Runs one script. Ends the program if the script does not end: its threads cannot be stopped.
    fn run_script(
        &self,
        seed: u64,
        left_out: Option<&str>,
        tally: &CampaignTally,
    ) -> Result<(), String> {
        let (ends, ended) = mpsc::channel::<()>();
        let campaign = self.campaign;
        let watch = move || {
            if ended.recv_timeout(SCRIPT_TIMEOUT) == Err(mpsc::RecvTimeoutError::Timeout) {
                let waited = SCRIPT_TIMEOUT.as_secs();
                eprintln!(
                    "{campaign}: seed {seed} has not ended after {waited} s; --replay \"{campaign} \
                     {seed}\" replays it"
                );
                std::process::exit(1);
            }
        };
        let watcher = Env::system().threads.spawn("watch", Box::new(watch));
        let held = (self.script)(seed, left_out, tally);
        drop(ends);
        let _ = watcher.map(|watcher| watcher.join());
        held
    }

    /// Replays one script. The order of threads varies, so a violation may need several tries to
    /// occur again.
    pub fn replay(&self, seed: u64) -> Result<(), String> {
        let tally = CampaignTally::new(self.campaign);
        (0..REPLAY_TRIES).try_for_each(|_| self.run_script(seed, None, &tally))
    }

    /// Hunts each planted fault within the limit of seeds.
    pub fn hunt_faults(&self, seed: u64, seeds: u64) -> CampaignTally {
        let tally = CampaignTally::new(&format!("{}-planted", self.campaign));
        let hunt = |fault: &str, left_out: Option<&str>| {
            let quiet = CampaignTally::new(fault);
            let noticed = (0..seeds).find_map(|number| {
                Some((number, self.run_script(derive_seed(seed, number), left_out, &quiet).err()?))
            });
            match &noticed {
                Some((after, text)) => {
                    tally.note(format!("{fault}: noticed by seed {after}: {text:.300}"));
                }
                None => {
                    let replay = format!("{} {seed}", self.campaign);
                    tally.violation(format!("{fault}: not noticed in {seeds} seeds"), replay);
                }
            }
            tally.scenario(noticed.is_some());
        };
        for pattern in self.omitted_calls {
            hunt(&format!("'{pattern}' left out"), Some(pattern));
        }
        if !active_failpoint::AVAILABLE {
            let about = self.subject;
            tally.skip(format!("faults inside {about}: they need the feature failpoints"));
            return tally;
        }
        for Failpoint { name, fault } in self.failpoints {
            let _active = ActiveFailpoint::activate(name);
            hunt(&format!("{name} ({fault})"), None);
        }
        tally
    }
}
