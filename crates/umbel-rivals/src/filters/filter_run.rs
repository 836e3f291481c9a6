//! Builds, asks and measures, by turns.

use std::hint::black_box;

use umbel_lab::engine::{Result, Tally};
use umbel_lab::measure::measure;

use crate::filters::arguments::Arguments;
use crate::filters::contestant::{Built, Contestant, Items};
use crate::filters::keys::{Key, hashes, keys};
use crate::filters::list;
use crate::record::Spread;

/// Questions of a repetition to a filter that fits the caches: too many to be learned by heart, few
/// enough to lie in a cache themselves.
const SMALL_QUESTIONS: u64 = 1 << 16;
/// How often a small filter is asked the same questions in one repetition.
const SMALL_TIMES: u64 = 8;
/// How many absent keys the rate is measured with.
const RATE_QUESTIONS: u64 = 4_000_000;
/// Absent keys have numbers from here on.
const ABSENT: u64 = 1 << 40;

/// The ways of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Absent keys, one by one.
    Miss,
    /// Keys that are there, one by one.
    Hit,
    /// Absent keys, each known only after the answer before it.
    TurnMiss,
    /// Keys that are there, the same way.
    TurnHit,
    /// Absent keys, many at once.
    BatchMiss,
    /// Keys that are there, many at once.
    BatchHit,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 6] =
        [Way::Miss, Way::Hit, Way::TurnMiss, Way::TurnHit, Way::BatchMiss, Way::BatchHit];

    /// What the table calls it.
    pub fn name(self) -> &'static str {
        match self {
            Way::Miss => "miss",
            Way::Hit => "hit",
            Way::TurnMiss => "miss, in turn",
            Way::TurnHit => "hit, in turn",
            Way::BatchMiss => "miss, batch",
            Way::BatchHit => "hit, batch",
        }
    }
}

/// What was measured of one filter.
#[derive(Debug, Clone)]
pub struct Row {
    /// Which.
    pub contestant: Contestant,
    /// Bits for each key, where that can be learned.
    pub bits_per_key: Option<f64>,
    /// The share of absent keys that it let through.
    pub rate: Option<f64>,
    /// Nanoseconds of building for each key.
    pub build: Vec<f64>,
    /// Nanoseconds of each question, by way, in [`Way::ALL`]'s order.
    pub asked: [Vec<f64>; Way::ALL.len()],
    /// Why it could not be built, or what it did wrong.
    pub defect: Option<String>,
}

impl Row {
    /// What building took.
    pub fn build(&self) -> Option<Spread> {
        Spread::of(self.build.iter().copied())
    }

    /// What a question took.
    pub fn asked(&self, way: Way) -> Option<Spread> {
        Spread::of(self.asked[way as usize].iter().copied())
    }
}

/// What was measured with so many keys.
#[derive(Debug, Clone)]
pub struct Place {
    /// How many keys.
    pub num: u64,
    /// Whether filters were given keys, not hashes.
    pub of_keys: bool,
    /// The filters.
    pub rows: Vec<Row>,
}

/// All of it; `say` hears what is being done.
pub fn run(arguments: &Arguments, say: &mut dyn FnMut(&str)) -> Result<Vec<Place>> {
    let mut places = Vec::new();
    for num in [arguments.small, arguments.num] {
        if num == 0 {
            continue;
        }
        let is_small = num == arguments.small;
        let all = keys(0..num);
        for (of_keys, contestants) in [(false, list::of_hashes()), (true, list::of_keys())] {
            let contestants: Vec<Contestant> =
                contestants.into_iter().filter(|one| is_chosen(one, arguments)).collect();
            let hashed = if of_keys { Vec::new() } else { hashes(&all) };
            let items = if of_keys { Items::Keys(&all) } else { Items::Hashes(&hashed) };
            let builds = if is_small { arguments.build_rounds } else { arguments.build_large };
            say(&format!("building {} filters of {num} keys", contestants.len()));
            let (built, mut rows) = build_all(&contestants, items, builds, say)?;
            let questions = Questions::new(num, of_keys, arguments, is_small);
            for round in 0..arguments.rounds {
                say(&format!("asking, round {} of {}", round + 1, arguments.rounds));
                ask_all(&built, &mut rows, &questions, round as usize)?;
            }
            rates(&built, &mut rows, of_keys);
            places.push(Place { num, of_keys, rows });
        }
    }
    Ok(places)
}

fn is_chosen(contestant: &Contestant, arguments: &Arguments) -> bool {
    arguments.filters.is_empty()
        || arguments.filters.iter().any(|part| contestant.name.contains(part.as_str()))
}

type AllBuilt = Vec<Option<Box<dyn Built>>>;

fn build_all(
    contestants: &[Contestant],
    items: Items<'_>,
    builds: u64,
    say: &mut dyn FnMut(&str),
) -> Result<(AllBuilt, Vec<Row>)> {
    let mut built: AllBuilt = contestants.iter().map(|_| None).collect();
    let mut rows: Vec<Row> = contestants.iter().map(|one| empty(*one)).collect();
    for _ in 0..builds {
        for (at, row) in rows.iter_mut().enumerate() {
            if row.defect.is_some() {
                continue;
            }
            say(&format!("  {}", row.contestant.name));
            // The one before is given back first: memory that is there already would help it.
            built[at] = None;
            let mut made = None;
            let sample = measure(items.len() as u64, || {
                made = Some((row.contestant.build)(items));
                Ok(Tally::default())
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

fn empty(contestant: Contestant) -> Row {
    let asked = [const { Vec::new() }; Way::ALL.len()];
    Row { contestant, bits_per_key: None, rate: None, build: Vec::new(), asked, defect: None }
}

/// What is asked in every repetition.
struct Questions {
    present: Vec<Key>,
    absent: Vec<Key>,
    present_hashes: Vec<u64>,
    absent_hashes: Vec<u64>,
    of_keys: bool,
    times: u64,
}

impl Questions {
    fn new(num: u64, of_keys: bool, arguments: &Arguments, is_small: bool) -> Questions {
        let (count, times) =
            if is_small { (SMALL_QUESTIONS, SMALL_TIMES) } else { (arguments.questions, 1) };
        // Keys that are there in an order without order, by a stride that meets each.
        let stride = (0..).map(|more| num / 2 + num / 8 + more).find(|n| coprime(*n, num));
        let stride = stride.unwrap_or(1);
        let present = keys((0..count).map(|at| at.wrapping_mul(stride) % num));
        let absent = keys(ABSENT..ABSENT + count);
        let (present_hashes, absent_hashes) = (hashes(&present), hashes(&absent));
        Questions { present, absent, present_hashes, absent_hashes, of_keys, times }
    }

    fn of(&self, way: Way) -> Items<'_> {
        match (way, self.of_keys) {
            (Way::Miss | Way::TurnMiss | Way::BatchMiss, true) => Items::Keys(&self.absent),
            (Way::Hit | Way::TurnHit | Way::BatchHit, true) => Items::Keys(&self.present),
            (Way::Miss | Way::TurnMiss | Way::BatchMiss, false) => {
                Items::Hashes(&self.absent_hashes)
            }
            (Way::Hit | Way::TurnHit | Way::BatchHit, false) => Items::Hashes(&self.present_hashes),
        }
    }
}

fn coprime(mut one: u64, mut other: u64) -> bool {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one == 1
}

/// Asks every filter in every way once, beginning with another one in each round.
fn ask_all(built: &AllBuilt, rows: &mut [Row], questions: &Questions, round: usize) -> Result<()> {
    let mut found = vec![false; questions.of(Way::Miss).len()];
    for step in 0..rows.len() {
        let at = (step + round) % rows.len();
        let (Some(filter), row) = (&built[at], &mut rows[at]) else { continue };
        for way in Way::ALL {
            let items = questions.of(way);
            let mut ask = || match way {
                Way::Miss | Way::Hit => Some(filter.count(items)),
                Way::TurnMiss | Way::TurnHit => Some(filter.count_in_turn(items)),
                Way::BatchMiss | Way::BatchHit => filter.batch(items, &mut found),
            };
            // Once for nothing: what the last one left in the caches is not this one's business.
            let Some(first) = ask() else { continue };
            if matches!(way, Way::Hit | Way::TurnHit | Way::BatchHit) && first != items.len() as u64
            {
                let missed = items.len() as u64 - first;
                row.defect = Some(format!("{missed} keys that are there were denied"));
            }
            if way == Way::BatchMiss && first != filter.count(items) {
                row.defect = Some("a batch says other things than one by one".to_string());
            }
            let mut all = 0;
            let sample = measure(items.len() as u64 * questions.times, || {
                for _ in 0..questions.times {
                    all += ask().unwrap_or_default();
                }
                Ok(Tally::default())
            })?;
            black_box(all);
            row.asked[way as usize].push(sample.thread());
        }
    }
    Ok(())
}

/// Measures what each lets through, with many more absent keys than the questions have.
fn rates(built: &AllBuilt, rows: &mut [Row], of_keys: bool) {
    const PART: u64 = 1 << 18;
    let mut passed = vec![0; rows.len()];
    let first = ABSENT << 1;
    let mut asked = 0;
    while asked < RATE_QUESTIONS {
        let keys = keys(first + asked..first + asked + PART);
        let hashed = hashes(&keys);
        let items = if of_keys { Items::Keys(&keys) } else { Items::Hashes(&hashed) };
        for (filter, passed) in built.iter().zip(&mut passed) {
            *passed += filter.as_ref().map_or(0, |filter| filter.count(items));
        }
        asked += PART;
    }
    for ((filter, row), passed) in built.iter().zip(rows).zip(passed) {
        row.rate = filter.as_ref().map(|_| passed as f64 / asked as f64);
    }
}
