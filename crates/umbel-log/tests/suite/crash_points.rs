//! Tests in which the power fails at every call of a script, and any part of the unsynced bytes
//! survives.

use std::path::Path;

use umbel_base::Result;
use umbel_env::{Access, Env};
use umbel_log::{ExpectedEnd, LogKind, LogOptions, LogWriter, Seal, write_recycled_header};
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

use super::memory_disk::{Entry, LOG_ID, read_env};

const FOLDER: &str = "/store";
const LOG: &str = "/store/000007.log";

/// Write mode of the log, and the failpoint in its caller.
#[derive(Debug, Clone, Copy, Default)]
struct Scenario {
    segment_bytes: u64,
    refuse_mapping: bool,
    /// Whether records are held in memory until they are synced.
    holds: bool,
    /// Whether the file held an earlier log.
    reuses: bool,
    /// Whether the writer marks each record as synced although it is not.
    lying_marks: bool,
}

/// Knowledge of the caller about the log at the crash.
#[derive(Debug, Default)]
struct UserState {
    /// Every record that the caller began to append.
    entries: Vec<Entry>,
    /// Number of records that a sync covered.
    synced: usize,
    /// Whether the log's name is durable.
    named: bool,
    /// Seal of the log, once it was synced.
    sealed: Option<Seal>,
}

const PLAIN: Scenario = Scenario {
    segment_bytes: 0,
    refuse_mapping: false,
    holds: false,
    reuses: false,
    lying_marks: false,
};
const SCENARIOS: [Scenario; 5] = [
    PLAIN,
    Scenario { segment_bytes: 96 << 10, ..PLAIN },
    Scenario { segment_bytes: 96 << 10, refuse_mapping: true, ..PLAIN },
    Scenario { segment_bytes: 96 << 10, reuses: true, ..PLAIN },
    Scenario { segment_bytes: 96 << 10, holds: true, ..PLAIN },
];

/// Lengths that share sectors, fill several, and (one of them) are stored in parts.
const LENGTHS: [usize; 9] = [20, 300, 0, 1500, 40, 70_000, 9, 3000, 100];

impl Scenario {
    fn sim(&self, seed: u64) -> Sim {
        let sim = Sim::new(seed);
        sim.allow_mapping(!self.refuse_mapping);
        sim
    }

    /// Runs the script until the log is sealed or a call fails.
    fn live(&self, env: &Env, life: &mut UserState) -> Result<()> {
        let folder = Path::new(FOLDER);
        env.files.create_dir_all(folder)?;
        env.files.sync_dir(Path::new("/"))?;
        let segment_bytes = self.segment_bytes;
        let options =
            LogOptions { kind: LogKind::WriteAhead, log_id: LOG_ID, salt: 0, segment_bytes };
        let mut writer = match (self.reuses, self.holds) {
            (true, _) => reuse(env, options)?,
            (false, false) => LogWriter::create(env, Path::new(LOG), options)?,
            (false, true) => LogWriter::create_deferred(env, Path::new(LOG), options)?,
        };
        env.files.sync_dir(folder)?;
        life.named = true;
        for (index, len) in LENGTHS.iter().enumerate() {
            let sequence = index as u64 * 3;
            let payload = vec![index as u8 + 1; *len];
            life.entries.push((sequence, payload.clone()));
            let (front, back) = payload.split_at(len / 2);
            let end = writer.append(sequence, &[front, back])?.end;
            if self.lying_marks {
                writer.set_durable(end);
            }
            if index % 3 != 1 {
                writer.progress().sync()?;
                life.synced = life.entries.len();
            } else {
                // So that not all that one sync covers is one write.
                writer.progress().write_pending()?;
            }
        }
        let sealed = writer.seal()?;
        writer.progress().sync()?;
        life.synced = life.entries.len();
        life.sealed = Some(sealed);
        Ok(())
    }
}

/// Writes an obsolete log, whose records are at the offsets of the next log's records, and creates
/// the next log in its file.
fn reuse(env: &Env, options: LogOptions) -> Result<LogWriter> {
    let earlier = Path::new("/store/000006.log");
    let before = LogOptions { log_id: options.log_id - 1, ..options };
    let mut writer = LogWriter::create(env, earlier, before)?;
    for (index, len) in LENGTHS.iter().enumerate() {
        writer.append(index as u64 * 3, &[&vec![index as u8 + 1; *len]])?;
        writer.set_durable(writer.end());
    }
    writer.seal()?;
    writer.file().sync()?;
    drop(writer);
    let file = env.files.open(earlier, Access::ReadWrite)?;
    write_recycled_header(&*file, options)?;
    file.sync()?;
    env.files.rename(earlier, Path::new(LOG))?;
    env.files.sync_dir(Path::new(FOLDER))?;
    LogWriter::reuse(env, Path::new(LOG), options)
}

/// Recovers the log, and returns how the result violates the promises.
fn judge(sim: &Sim, life: &UserState) -> std::result::Result<(), String> {
    let env = sim.env();
    let expectation = life.sealed.map_or(ExpectedEnd::Open, ExpectedEnd::Sealed);
    let (records, end) = read_env(&env, Path::new(LOG), expectation);
    match end {
        Err(error) if error.is_missing_file() && !life.named => return Ok(()),
        Err(error) => return Err(error.to_string()),
        Ok(outcome) if life.sealed.is_some() && !outcome.sealed => {
            return Err("the end record is gone".into());
        }
        Ok(_) => {}
    }
    if !life.entries.starts_with(&records) {
        return Err("a record that was never written".into());
    }
    if records.len() < life.synced {
        return Err(format!("{} of {} synced records", records.len(), life.synced));
    }
    Ok(())
}

fn policies(sim: &Sim) -> Vec<Survival> {
    use Survival::*;
    let mut policies = vec![None, All, NamesOnly, DataOnly, NewestOnly, Random(0.5), Garbage(0.7)];
    // Of pages that are written whole only a torn one lacks an older record and has a newer one.
    policies.extend([Random(0.7); 8]);
    let units = sim.pending_units();
    policies.extend((0..4).map(|seed| Survival::any(seed + units * 5, units)));
    policies
}

/// Crashes at every call. Returns the first violation in a recovery, and the number of
/// checked images.
fn crash_everywhere(scenario: Scenario, ignore: Option<&str>) -> (u64, Option<String>) {
    let original = scenario.sim(1);
    scenario.live(&original.env(), &mut UserState::default()).expect("nothing fails yet");
    let mut images = 0;
    for call in original.changing_calls() {
        for when in [CrashSide::Before, CrashSide::After] {
            let sim = scenario.sim(1);
            ignore.iter().for_each(|pattern| sim.ignore_calls(pattern));
            sim.crash_at(call, when);
            let mut life = UserState::default();
            scenario.live(&sim.env(), &mut life).expect_err("the power fails");
            let mut looked_at: Vec<_> = policies(&sim)
                .iter()
                .enumerate()
                .map(|(seed, policy)| sim.crash_image(policy, seed as u64))
                .collect();
            looked_at.extend(sim.crash_images_exhaustive(64));
            looked_at.push(sim.kill_image());
            for image in looked_at {
                images += 1;
                if let Err(reason) = judge(&image, &life) {
                    return (images, Some(format!("{scenario:?} call {call} {when:?}: {reason}")));
                }
            }
        }
    }
    (images, None)
}

#[test]
fn a_crash_at_any_call_keeps_what_was_synced() {
    for scenario in SCENARIOS {
        let (images, wrong) = crash_everywhere(scenario, None);
        assert_eq!(wrong, None);
        assert!(images > 500, "only {images} images");
    }
}

#[test]
fn sealed_log_survives_power_loss() {
    for scenario in SCENARIOS {
        let sim = scenario.sim(2);
        let mut life = UserState::default();
        scenario.live(&sim.env(), &mut life).unwrap();
        assert!(life.sealed.is_some());
        for (seed, policy) in policies(&sim).iter().enumerate() {
            judge(&sim.crash_image(policy, seed as u64), &life).unwrap();
        }
    }
}

#[test]
fn a_killed_process_loses_nothing_it_appended() {
    for scenario in SCENARIOS.into_iter().filter(|scenario| !scenario.holds) {
        let original = scenario.sim(3);
        scenario.live(&original.env(), &mut UserState::default()).unwrap();
        for call in original.changing_calls() {
            let sim = scenario.sim(3);
            sim.crash_at(call, CrashSide::Before);
            let mut life = UserState::default();
            scenario.live(&sim.env(), &mut life).unwrap_err();
            // All but the record whose append was interrupted were acknowledged.
            life.synced = life.synced.max(life.entries.len().saturating_sub(1));
            judge(&sim.kill_image(), &life).unwrap();
        }
    }
}

#[test]
fn a_failing_call_loses_nothing_that_was_acknowledged() {
    for scenario in SCENARIOS {
        let original = scenario.sim(4);
        scenario.live(&original.env(), &mut UserState::default()).unwrap();
        let mut fired = 0;
        for call in 1..=original.calls() {
            for kind in [FaultKind::Eio, FaultKind::Enospc] {
                let sim = scenario.sim(4);
                sim.fail_at(call, Fault { kind, sticky: false });
                let mut life = UserState::default();
                let end = scenario.live(&sim.env(), &mut life);
                assert_eq!(end.is_err(), sim.faults_fired() > 0, "an error is never swallowed");
                fired += sim.faults_fired();
                sim.heal();
                judge(&sim.kill_image(), &life).unwrap();
                for (seed, policy) in policies(&sim).iter().enumerate() {
                    judge(&sim.crash_image(policy, seed as u64), &life).unwrap();
                }
            }
        }
        assert!(fired > 10);
    }
}

#[test]
fn full_disk_is_met_at_segment_creation() {
    let scenario = SCENARIOS[1];
    let sim = scenario.sim(5);
    sim.set_capacity(64 << 10);
    let error = scenario.live(&sim.env(), &mut UserState::default()).unwrap_err();
    assert!(matches!(error, umbel_base::Error::DiskFull { .. }), "{error}");
    assert!(!sim.env().files.exists(Path::new(LOG)).unwrap());
    // With just enough room for the segment, nothing fails until the log is sealed.
    let sim = scenario.sim(5);
    sim.set_capacity(96 << 10);
    scenario.live(&sim.env(), &mut UserState::default()).unwrap();
}

#[test]
fn a_read_that_fails_is_not_the_end_of_the_log() {
    let scenario = SCENARIOS[0];
    let sim = scenario.sim(6);
    scenario.live(&sim.env(), &mut UserState::default()).unwrap();
    let image = sim.kill_image();
    let path = Path::new(LOG);
    assert_eq!(read_env(&image.env(), path, ExpectedEnd::Open).0.len(), LENGTHS.len());
    let calls = image.calls();
    for call in 1..=calls {
        let image = sim.kill_image();
        image.fail_at(call, Fault { kind: FaultKind::Eio, sticky: false });
        let (_, end) = read_env(&image.env(), path, ExpectedEnd::Open);
        assert!(matches!(end, Err(umbel_base::Error::Io { .. })), "call {call} of {calls}");
    }
}

/// The other tests can fail: they detect callers with planted bugs.
#[test]
fn planted_faults_are_detected() {
    for scenario in SCENARIOS {
        for pattern in ["sync *.log", "sync_dir"] {
            let (images, wrong) = crash_everywhere(scenario, Some(pattern));
            assert!(wrong.is_some(), "{scenario:?} without {pattern}: {images} images");
        }
        let (images, wrong) = crash_everywhere(Scenario { lying_marks: true, ..scenario }, None);
        assert!(wrong.is_some(), "{scenario:?} with lying marks: {images} images");
    }
}
