//! Builds, probes and measures the filters, in turns.

use std::hint::black_box;

use umbel_lab::engine::{ReadDigest, Result};
use umbel_lab::measure::measure;

use crate::filters::candidate_filter::{BuiltFilter, Candidate, FilterItems};
use crate::filters::candidate_list;
use crate::filters::filter_arguments::FilterArguments;
use crate::filters::filter_keys::{Key, hashes, keys};
use crate::kv::kv_results::Spread;

/// Number of probes of a filter that fits the caches: too many for the branch predictor to learn,
/// few enough that the probes fit a cache.
const SMALL_PROBES: u64 = 1 << 16;
/// Number of passes over the same probes in one repetition with a small filter.
const SMALL_PASSES: u64 = 8;
/// Number of absent keys with which the false-positive rate is measured.
const RATE_PROBES: u64 = 4_000_000;
/// First number of the absent keys.
const ABSENT: u64 = 1 << 40;

/// Kind of probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeMode {
    /// Absent keys, one at a time.
    Miss,
    /// Present keys, one at a time.
    Hit,
    /// Absent keys, each of which depends on the answer to the probe before it.
    DependentMiss,
    /// Present keys, each of which depends on the answer to the probe before it.
    DependentHit,
    /// Absent keys, many at once.
    BatchMiss,
    /// Present keys, many at once.
    BatchHit,
}

impl ProbeMode {
    /// All kinds, in the order of the table.
    pub const ALL: [ProbeMode; 6] = [
        ProbeMode::Miss,
        ProbeMode::Hit,
        ProbeMode::DependentMiss,
        ProbeMode::DependentHit,
        ProbeMode::BatchMiss,
        ProbeMode::BatchHit,
    ];

    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            ProbeMode::Miss => "miss",
            ProbeMode::Hit => "hit",
            ProbeMode::DependentMiss => "miss, in turn",
            ProbeMode::DependentHit => "hit, in turn",
            ProbeMode::BatchMiss => "miss, batch",
            ProbeMode::BatchHit => "hit, batch",
        }
    }
}

/// Measurements of one filter.
#[derive(Debug, Clone)]
pub struct FilterRow {
    /// The filter that is measured.
    pub candidate: Candidate,
    /// Bits for each key, if known.
    pub bits_per_key: Option<f64>,
    /// False-positive rate.
    pub rate: Option<f64>,
    /// Build time for each key and round, in nanoseconds.
    pub build: Vec<f64>,
    /// Nanoseconds of each probe, by kind in the order of [`ProbeMode::ALL`].
    pub probe_ns: [Vec<f64>; ProbeMode::ALL.len()],
    /// Reason why the filter could not be built, or the wrong answer that it gave.
    pub defect: Option<String>,
}

impl FilterRow {
    /// Build time for each key.
    pub fn build(&self) -> Option<Spread> {
        Spread::of(self.build.iter().copied())
    }

    /// Time of a probe of one kind.
    pub fn probe_time(&self, mode: ProbeMode) -> Option<Spread> {
        Spread::of(self.probe_ns[mode as usize].iter().copied())
    }
}

/// Measurements with one number of keys.
#[derive(Debug, Clone)]
pub struct SizeResults {
    /// Number of keys.
    pub num: u64,
    /// Whether filters were given keys, not hashes.
    pub of_keys: bool,
    /// The filters.
    pub rows: Vec<FilterRow>,
}

/// Runs all measurements; `say` gets the progress.
pub fn run(arguments: &FilterArguments, say: &mut dyn FnMut(&str)) -> Result<Vec<SizeResults>> {
    let mut places = Vec::new();
    for num in [arguments.small, arguments.num] {
        if num == 0 {
            continue;
        }
        let is_small = num == arguments.small;
        let all = keys(0..num);
        for (of_keys, candidates) in
            [(false, candidate_list::hash_filters()), (true, candidate_list::key_filters())]
        {
            let candidates: Vec<Candidate> =
                candidates.into_iter().filter(|one| is_chosen(one, arguments)).collect();
            let hashed = if of_keys { Vec::new() } else { hashes(&all) };
            let items =
                if of_keys { FilterItems::Keys(&all) } else { FilterItems::Hashes(&hashed) };
            let builds = if is_small { arguments.build_rounds } else { arguments.build_large };
            say(&format!("building {} filters of {num} keys", candidates.len()));
            let (built, mut rows) = build_all(&candidates, items, builds, say)?;
            let probe_sets = ProbeSets::new(num, of_keys, arguments, is_small);
            for round in 0..arguments.rounds {
                say(&format!("probing, round {} of {}", round + 1, arguments.rounds));
                probe_all(&built, &mut rows, &probe_sets, round as usize)?;
            }
            rates(&built, &mut rows, of_keys);
            places.push(SizeResults { num, of_keys, rows });
        }
    }
    Ok(places)
}

fn is_chosen(candidate: &Candidate, arguments: &FilterArguments) -> bool {
    arguments.filters.is_empty()
        || arguments.filters.iter().any(|part| candidate.name.contains(part.as_str()))
}

type AllBuilt = Vec<Option<Box<dyn BuiltFilter>>>;

fn build_all(
    candidates: &[Candidate],
    items: FilterItems<'_>,
    builds: u64,
    say: &mut dyn FnMut(&str),
) -> Result<(AllBuilt, Vec<FilterRow>)> {
    let mut built: AllBuilt = candidates.iter().map(|_| None).collect();
    let mut rows: Vec<FilterRow> = candidates.iter().map(|one| empty(*one)).collect();
    for _ in 0..builds {
        for (at, row) in rows.iter_mut().enumerate() {
            if row.defect.is_some() {
                continue;
            }
            say(&format!("  {}", row.candidate.name));
            // The previous filter is freed first: its memory, already mapped, would help the next
            // build.
            built[at] = None;
            let mut made = None;
            let sample = measure(items.len() as u64, || {
                made = Some((row.candidate.build)(items));
                Ok(ReadDigest::default())
            })?;
            match made {
                Some(Ok(filter)) => {
                    row.build.push(sample.thread());
                    row.bits_per_key = filter.bits().map(|bits| bits as f64 / items.len() as f64);
                    built[at] = Some(filter);
                }
                Some(Err(error)) => row.defect = Some(error.to_string()),
                None => {}
            }
        }
    }
    Ok((built, rows))
}

fn empty(candidate: Candidate) -> FilterRow {
    let probe_ns = [const { Vec::new() }; ProbeMode::ALL.len()];
    FilterRow {
        candidate,
        bits_per_key: None,
        rate: None,
        build: Vec::new(),
        probe_ns,
        defect: None,
    }
}

/// Keys and hashes that are probed in every repetition.
struct ProbeSets {
    present: Vec<Key>,
    absent: Vec<Key>,
    present_hashes: Vec<u64>,
    absent_hashes: Vec<u64>,
    of_keys: bool,
    times: u64,
}

impl ProbeSets {
    fn new(num: u64, of_keys: bool, arguments: &FilterArguments, is_small: bool) -> ProbeSets {
        let (count, times) =
            if is_small { (SMALL_PROBES, SMALL_PASSES) } else { (arguments.questions, 1) };
        // Present keys in random order, by a stride that reaches each.
        let stride = (0..).map(|more| num / 2 + num / 8 + more).find(|n| coprime(*n, num));
        let stride = stride.unwrap_or(1);
        let present = keys((0..count).map(|at| at.wrapping_mul(stride) % num));
        let absent = keys(ABSENT..ABSENT + count);
        let (present_hashes, absent_hashes) = (hashes(&present), hashes(&absent));
        ProbeSets { present, absent, present_hashes, absent_hashes, of_keys, times }
    }

    fn items(&self, mode: ProbeMode) -> FilterItems<'_> {
        match (mode, self.of_keys) {
            (ProbeMode::Miss | ProbeMode::DependentMiss | ProbeMode::BatchMiss, true) => {
                FilterItems::Keys(&self.absent)
            }
            (ProbeMode::Hit | ProbeMode::DependentHit | ProbeMode::BatchHit, true) => {
                FilterItems::Keys(&self.present)
            }
            (ProbeMode::Miss | ProbeMode::DependentMiss | ProbeMode::BatchMiss, false) => {
                FilterItems::Hashes(&self.absent_hashes)
            }
            (ProbeMode::Hit | ProbeMode::DependentHit | ProbeMode::BatchHit, false) => {
                FilterItems::Hashes(&self.present_hashes)
            }
        }
    }
}

fn coprime(mut one: u64, mut other: u64) -> bool {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one == 1
}

/// Probes every filter in every kind once. Each round begins with another filter.
fn probe_all(
    built: &AllBuilt,
    rows: &mut [FilterRow],
    probe_sets: &ProbeSets,
    round: usize,
) -> Result<()> {
    let mut found = vec![false; probe_sets.items(ProbeMode::Miss).len()];
    for step in 0..rows.len() {
        let at = (step + round) % rows.len();
        let (Some(filter), row) = (&built[at], &mut rows[at]) else { continue };
        for mode in ProbeMode::ALL {
            let items = probe_sets.items(mode);
            let mut probe = || match mode {
                ProbeMode::Miss | ProbeMode::Hit => Some(filter.count(items)),
                ProbeMode::DependentMiss | ProbeMode::DependentHit => {
                    Some(filter.count_dependent(items))
                }
                ProbeMode::BatchMiss | ProbeMode::BatchHit => filter.batch(items, &mut found),
            };
            // The first pass is not measured: it removes what the previous filter left in the
            // caches.
            let Some(first) = probe() else { continue };
            if matches!(mode, ProbeMode::Hit | ProbeMode::DependentHit | ProbeMode::BatchHit)
                && first != items.len() as u64
            {
                let missed = items.len() as u64 - first;
                row.defect = Some(format!("{missed} present keys did not pass"));
            }
            if mode == ProbeMode::BatchMiss && first != filter.count(items) {
                row.defect = Some("a batch passes other keys than single probes".to_string());
            }
            let mut all = 0;
            let sample = measure(items.len() as u64 * probe_sets.times, || {
                for _ in 0..probe_sets.times {
                    all += probe().unwrap_or_default();
                }
                Ok(ReadDigest::default())
            })?;
            black_box(all);
            row.probe_ns[mode as usize].push(sample.thread());
        }
    }
    Ok(())
}

/// Measures the false-positive rates, with many more absent keys than are timed.
fn rates(built: &AllBuilt, rows: &mut [FilterRow], of_keys: bool) {
    const PART: u64 = 1 << 18;
    let mut passed = vec![0; rows.len()];
    let first = ABSENT << 1;
    let mut probed = 0;
    while probed < RATE_PROBES {
        let keys = keys(first + probed..first + probed + PART);
        let hashed = hashes(&keys);
        let items = if of_keys { FilterItems::Keys(&keys) } else { FilterItems::Hashes(&hashed) };
        for (filter, passed) in built.iter().zip(&mut passed) {
            *passed += filter.as_ref().map_or(0, |filter| filter.count(items));
        }
        probed += PART;
    }
    for ((filter, row), passed) in built.iter().zip(rows).zip(passed) {
        row.rate = filter.as_ref().map(|_| passed as f64 / probed as f64);
    }
}
