//! The probe: right stores pass, and each wrong store is refused by the name of its fault.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use umbel_env::{
    Answer, Creation, CreationRequest, Env, ObjectError, ObjectErrorKind, ObjectName, ObjectResult,
    Objects,
};
use umbel_objects::{Check, CheckOutcome, DirectoryObjects, Probe, ProbeReport, ProbeVerdict};
use umbel_sim::{ConditionMode, FaultRates, ObjectFault, ObjectSim, ObjectStoreMode};

const SEEDS: u64 = 100;

fn probe(sim: &ObjectSim) -> ProbeReport {
    let (env, client) = (sim.env(), sim.client(1));
    Probe::new(&env, &*client).unwrap().run()
}

fn usual() -> ObjectStoreMode {
    ObjectStoreMode::default()
}

/// Probes a hundred stores of this mode, each of which must break `check`.
fn expect_refused(mode: &ObjectStoreMode, check: Check, words: &str) {
    for seed in 0..SEEDS {
        let sim = ObjectSim::new(seed);
        sim.set_mode(mode.clone());
        let report = probe(&sim);
        assert_eq!(report.verdict(), ProbeVerdict::Refused, "{mode:?}: {report:?}");
        let reason = report.broken().find(|(broken, _)| *broken == check);
        let (_, reason) = reason.unwrap_or_else(|| panic!("{check} is not broken: {report:?}"));
        assert!(reason.contains(words), "{reason}");
    }
}

fn with_conditions(conditions: ConditionMode) -> ObjectStoreMode {
    ObjectStoreMode { conditions, ..usual() }
}

#[test]
fn right_store_passes() {
    for seed in 0..SEEDS {
        let sim = ObjectSim::new(seed);
        let report = probe(&sim);
        assert_eq!(report.verdict(), ProbeVerdict::Suitable, "{report:?}");
        assert_eq!(report.checks.len(), Check::ALL.len());
        assert!(report.clock_difference_micros.unwrap().abs() < 1_000_000);
        assert_eq!(report.leftover_prefix, None);
        sim.settle();
        assert!(sim.objects().is_empty(), "the probe cleans up");
        let requests: u64 = sim.request_counts().values().sum();
        assert!(requests < 350, "{requests}");
    }
}

/// Lost answers, late landings, duplicates and errors of a right store do not look like a broken
/// guarantee.
#[test]
fn right_store_behind_a_bad_network_is_never_refused() {
    let (mut suitable, mut injected) = (0, BTreeSet::new());
    for seed in 0..SEEDS {
        let sim = ObjectSim::new(seed);
        sim.set_rates(FaultRates::transient(15));
        let report = probe(&sim);
        assert_ne!(report.verdict(), ProbeVerdict::Refused, "seed {seed}: {report:?}");
        suitable += u64::from(report.verdict() == ProbeVerdict::Suitable);
        injected.extend(sim.injected().into_keys());
    }
    let transient = ObjectFault::ALL.into_iter().filter(|fault| fault.is_transient());
    assert!(transient.eq(injected), "every fault occurred");
    assert!(suitable >= 95, "{suitable} of {SEEDS}");
}

#[test]
fn store_that_ignores_conditions_is_refused() {
    let mode = with_conditions(ConditionMode::Ignored);
    expect_refused(&mode, Check::CreateIfAbsent, "ignores the condition");
}

/// A store that confirms creations which it refused.
#[derive(Debug)]
struct ConfirmingStore(Arc<dyn Objects>);

impl Objects for ConfirmingStore {
    umbel_env::delegate_object_calls!(0: location create_concurrently put read list delete);

    fn create(&self, name: &ObjectName, bytes: &[u8]) -> ObjectResult<Creation> {
        let answer = self.0.create(name, bytes)?;
        let value = match answer.value {
            Creation::Exists => Creation::Created,
            other => other,
        };
        Ok(Answer { value, ..answer })
    }
}

#[test]
fn store_that_confirms_refused_creations_is_refused() {
    let sim = ObjectSim::new(4);
    let (env, store) = (sim.env(), ConfirmingStore(sim.client(1)));
    let report = Probe::new(&env, &store).unwrap().run();
    let broken: Vec<_> = report.broken().map(|(check, _)| check).collect();
    assert_eq!(broken, [Check::CreateIfAbsent], "{report:?}");
}

#[test]
fn store_that_judges_conditions_at_the_start_is_refused() {
    let mode = with_conditions(ConditionMode::JudgedAtStart);
    expect_refused(&mode, Check::SlowCreate, "judges the condition before");
}

#[test]
fn store_that_races_is_refused() {
    let mode = with_conditions(ConditionMode::Racing(Duration::from_millis(5)));
    expect_refused(&mode, Check::ConcurrentCreates, "at the same time were confirmed");
}

/// Number of races of a probe, and of those at the same time.
const RACES: usize = 24;
const RACES_AT_ONCE: usize = 8;

/// Fault in the answers of a race.
#[derive(Debug, Clone, Copy)]
enum RaceFault {
    TwoCreations,
    NoAnswers,
    DeniedRight,
}

/// A store with faults of single races, by the number of the race. It counts its calls of creations
/// at the same time.
#[derive(Debug)]
struct RaceStore {
    inner: Arc<dyn Objects>,
    faults: BTreeMap<usize, RaceFault>,
    calls: AtomicUsize,
    races: AtomicUsize,
}

impl RaceStore {
    fn new(inner: Arc<dyn Objects>, faults: &[(usize, RaceFault)]) -> RaceStore {
        let (calls, races) = (AtomicUsize::new(0), AtomicUsize::new(0));
        RaceStore { inner, faults: faults.iter().copied().collect(), calls, races }
    }

    /// Changes the answers of a race.
    fn falsify(&self, answers: &mut [ObjectResult<Creation>]) {
        let error = |kind| ObjectError::new(kind, "create", "an object", "planned");
        let answer = |value| Ok(Answer { value, store_micros: None });
        match self.faults.get(&self.races.fetch_add(1, Ordering::Relaxed)) {
            Some(RaceFault::TwoCreations) => answers[..2].fill(answer(Creation::Created)),
            Some(RaceFault::NoAnswers) => {
                let unknown = Creation::Unknown(error(ObjectErrorKind::Unavailable));
                answers.fill(answer(unknown));
            }
            Some(RaceFault::DeniedRight) => answers[0] = Err(error(ObjectErrorKind::Denied)),
            None => {}
        }
    }
}

impl Objects for RaceStore {
    umbel_env::delegate_object_calls!(inner: location create put read list delete);

    fn create_concurrently(&self, requests: &[CreationRequest]) -> Vec<ObjectResult<Creation>> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut outcomes = self.inner.create_concurrently(requests);
        let mut rest = outcomes.as_mut_slice();
        for race in requests.chunk_by(|a, b| a.name == b.name) {
            let (of_race, later) = rest.split_at_mut(race.len());
            rest = later;
            if race[0].name.as_str().contains("-race-") {
                self.falsify(of_race);
            }
        }
        outcomes
    }
}

/// Probes a right store with faults of single races. Returns the report, the calls and the races.
fn probe_races(faults: &[(usize, RaceFault)]) -> (ProbeReport, usize, usize) {
    let sim = ObjectSim::new(6);
    let (env, store) = (sim.env(), RaceStore::new(sim.client(1), faults));
    let report = Probe::new(&env, &store).unwrap().run();
    (report, store.calls.into_inner(), store.races.into_inner())
}

/// A race took up to 4 s in a store whose creations of one name wait for each other. 16 of them,
/// one after the other, took a quarter of the first backup of 10 GB.
#[test]
fn races_run_at_the_same_time() {
    let (report, calls, races) = probe_races(&[]);
    assert_eq!(report.verdict(), ProbeVerdict::Suitable);
    // One call is that of the slow creation.
    assert_eq!((calls, races), (RACES / RACES_AT_ONCE + 1, RACES));
}

/// The probe looks at each race, whichever others it runs beside.
#[test]
fn one_lost_race_is_refused() {
    for race in 0..RACES {
        let (report, ..) = probe_races(&[(race, RaceFault::TwoCreations)]);
        let broken: Vec<_> = report.broken().map(|(check, _)| check).collect();
        assert_eq!(broken, [Check::ConcurrentCreates], "race {race}: {report:?}");
    }
}

#[test]
fn race_without_answers_is_repeated() {
    for race in 0..RACES {
        let lost = (race, RaceFault::NoAnswers);
        let (report, calls, races) = probe_races(&[lost]);
        assert_eq!(report.verdict(), ProbeVerdict::Suitable, "race {race}: {report:?}");
        assert_eq!((calls, races), (RACES / RACES_AT_ONCE + 2, RACES + 1), "race {race}");
        // The repetition follows the races that ran beside the first attempt.
        let repetition = (race / RACES_AT_ONCE + 1) * RACES_AT_ONCE;
        let (report, ..) = probe_races(&[lost, (repetition, RaceFault::TwoCreations)]);
        assert_eq!(report.verdict(), ProbeVerdict::Refused, "race {race}: {report:?}");
    }
}

/// A right that one race lacks does not hide that another race had two creations.
#[test]
fn denied_right_hides_no_lost_race() {
    let faults = [(0, RaceFault::DeniedRight), (3, RaceFault::TwoCreations)];
    assert_eq!(probe_races(&faults[..1]).0.verdict(), ProbeVerdict::Unfinished);
    assert_eq!(probe_races(&faults).0.verdict(), ProbeVerdict::Refused);
}

#[test]
fn store_without_this_condition_is_refused() {
    let mode = with_conditions(ConditionMode::OnlyIfMatch);
    expect_refused(&mode, Check::Create, "does not know this condition");
}

#[test]
fn stale_stores_are_refused() {
    let lag = Duration::from_millis(500);
    let mode = ObjectStoreMode { read_lag: lag, ..usual() };
    expect_refused(&mode, Check::ReadAfterWrite, "not a cache or a replica");
    let mode = ObjectStoreMode { list_lag: lag, ..usual() };
    expect_refused(&mode, Check::ListAfterWrite, "lacks");
}

#[test]
fn stores_that_change_or_hide_objects_are_refused() {
    let mode = ObjectStoreMode { recodes: true, ..usual() };
    expect_refused(&mode, Check::WholeBytes, "were written");
    let mode = ObjectStoreMode { ignores_ranges: true, ..usual() };
    expect_refused(&mode, Check::Ranges, "ignores ranges");
    let mode = ObjectStoreMode { hides_absence: true, ..usual() };
    expect_refused(&mode, Check::Absence, "grant the right to list");
    let mode = ObjectStoreMode { ignores_prefix: true, ..usual() };
    expect_refused(&mode, Check::ListAfterWrite, "of another prefix");
    let mode = ObjectStoreMode { keeps_deleted: true, ..usual() };
    expect_refused(&mode, Check::Delete, "object lock");
    let mode = ObjectStoreMode { reports_time: false, ..usual() };
    expect_refused(&mode, Check::StoreTime, "has no time of the store");
}

#[test]
fn store_whose_clock_goes_back_is_refused_and_a_wrong_clock_is_reported() {
    let sim = ObjectSim::new(1);
    sim.shift_store_clock(90_000_000);
    let report = probe(&sim);
    assert_eq!(report.verdict(), ProbeVerdict::Suitable);
    assert!(report.clock_difference_micros.unwrap() > 89_000_000);
    let env = sim.env();
    let client = sim.client(1);
    let probe = Probe::new(&env, &*client).unwrap();
    assert_eq!(probe.run().verdict(), ProbeVerdict::Suitable);
    sim.shift_store_clock(-60_000_000);
    let report = probe.run();
    let broken: Vec<_> = report.broken().map(|(check, _)| check).collect();
    assert_eq!(broken, [Check::StoreTime], "{report:?}");
}

/// A wrong store behind a bad network is refused, too.
#[test]
fn bad_network_hides_no_broken_guarantee() {
    for seed in 0..SEEDS {
        let sim = ObjectSim::new(seed);
        sim.set_mode(with_conditions(ConditionMode::Ignored));
        sim.set_rates(FaultRates::transient(15));
        assert_eq!(probe(&sim).verdict(), ProbeVerdict::Refused, "seed {seed}");
    }
}

#[test]
fn store_that_serves_nothing_is_not_judged() {
    for fault in [ObjectFault::LostRequest, ObjectFault::SlowDown { commits: false }] {
        let sim = ObjectSim::new(2);
        sim.set_rates(FaultRates::none().with(fault, 1000));
        let report = probe(&sim);
        assert_eq!(report.verdict(), ProbeVerdict::Unfinished);
        let CheckOutcome::Unfinished(kind, reason) = &report.checks[0].1 else {
            panic!("{report:?}")
        };
        assert_eq!(*kind, ObjectErrorKind::Unavailable);
        assert!(reason.contains("8 attempts"), "{reason}");
        assert_eq!(report.checks[1].1, CheckOutcome::NotTried);
        assert!(report.leftover_prefix.is_some());
    }
    let sim = ObjectSim::new(3);
    sim.expire_credentials(true);
    let report = probe(&sim);
    assert_eq!(report.verdict(), ProbeVerdict::Unfinished);
    assert!(
        matches!(&report.checks[0].1, CheckOutcome::Unfinished(ObjectErrorKind::Denied, reason)
        if reason.contains("renew them")),
        "{report:?}"
    );
}

#[test]
fn directory_passes() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::system();
    let store = DirectoryObjects::open(&env, directory.path()).unwrap();
    let report = Probe::new(&env, &store).unwrap().run();
    assert_eq!(report.verdict(), ProbeVerdict::Suitable, "{report:?}");
    assert_eq!(report.leftover_prefix, None);
    assert!(report.clock_difference_micros.unwrap().abs() < 60_000_000);
    assert_eq!(Probe::new(&env, &store).unwrap().run().verdict(), ProbeVerdict::Suitable);
    let names = |at: &str| {
        let entries = env.files.read_dir(&directory.path().join(at)).unwrap();
        entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    assert_eq!(names(""), [".temporary", "probe"]);
    assert!(names("probe").is_empty() && names(".temporary").is_empty());
}

#[test]
fn directory_without_links_is_refused() {
    let sim = umbel_sim::Sim::new(1);
    let env = sim.env();
    env.files.create_dir_all(std::path::Path::new("/objects")).unwrap();
    sim.allow_links(false);
    let store = DirectoryObjects::open(&env, std::path::Path::new("/objects")).unwrap();
    let report = Probe::new(&env, &store).unwrap().run();
    assert_eq!(report.leftover_prefix, None, "nothing was created");
    let broken: Vec<_> = report.broken().collect();
    assert_eq!(broken.len(), 1);
    assert!(broken[0].0 == Check::Create && broken[0].1.contains("has no hard links"));
}
