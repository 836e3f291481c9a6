//! Which filters of those that tables have are kept, for as few false reads as the memory allows.
//!
//! Each level offers up to three: nothing, its tables' plain filters, their second ones. A filter
//! that saves less than a read in a thousand gets is left out, whatever the memory. The other
//! levels begin with the smaller of their filters, which fit as all plain ones do; then the step to
//! the better one that saves most reads for a byte comes first: the optimum but for the last step
//! that does not fit (Dantzig, 1957). Where that saves little against all plain filters, or against
//! what is kept now, these stay.

use crate::evidence::Asked;
use crate::filter_choice::Choice;

/// Nothing is decided on fewer gets than this.
pub const GETS_LEAST: f64 = 8192.0;
/// Where the tables of a level are asked less often for keys that they do not have, their filters
/// are left out; the share of all gets.
const LEFT_OUT_BELOW: f64 = 0.001;
/// Where they are asked more often, they are kept again. Between the two it stays as it is, so that
/// nothing goes to and fro.
const KEPT_ABOVE: f64 = 0.003;
/// Other filters have to be so much better than those that are kept to be read from the disk.
const BETTER: f64 = 0.95;

/// So many false reads in so many gets are no sign that a filter was left out wrongly.
pub fn left_out(gets: f64) -> f64 {
    64.0 + 2.0 * KEPT_ABOVE * gets
}

/// So few questions for absent keys among so many gets are as good as none.
pub fn next_to_none(gets: f64) -> f64 {
    LEFT_OUT_BELOW * gets
}

/// What the tables of a level offer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Offer {
    /// Bytes of their plain filters, and the share of absent keys that these let through.
    pub plain: (u64, f64),
    /// As much with second filters where tables have them; `None` where few do.
    pub second: Option<(u64, f64)>,
    /// What asking a second filter takes more than asking a plain one, in searches in vain.
    pub second_cost: f64,
    /// What they were asked of late, and of how many gets.
    pub asked: Asked,
    /// Gets of late, of all levels.
    pub gets: f64,
    /// What is kept now.
    pub now: Choice,
    /// Whether too little is known of it to decide anything.
    pub is_new: bool,
}

impl Offer {
    fn get(&self, choice: Choice) -> (u64, f64) {
        match choice {
            Choice::Nothing => (0, 1.0),
            Choice::Plain => self.plain,
            Choice::Second => self.second.unwrap_or(self.plain),
        }
    }

    /// False reads of late, had this been kept.
    pub fn false_reads(&self, choice: Choice) -> f64 {
        self.asked.absent * self.get(choice).1
    }

    /// Bytes of it.
    pub fn bytes(&self, choice: Choice) -> u64 {
        self.get(choice).0
    }

    /// Whether a filter pays.
    fn pays(&self) -> bool {
        let share = self.asked.absent / self.gets;
        let least = if self.now == Choice::Nothing { KEPT_ABOVE } else { LEFT_OUT_BELOW };
        share >= least
    }

    /// What is lost with this: searches in vain, and what asking takes longer.
    fn loss(&self, choice: Choice) -> f64 {
        let cost = if choice == Choice::Second { self.second_cost } else { 0.0 };
        self.asked.absent * (self.get(choice).1 + cost)
    }

    /// The smaller of its filters, and the step to the other where that is better: what it saves
    /// for a byte.
    fn step(&self) -> (Choice, Option<(f64, Choice)>) {
        if self.second.is_none() {
            return (Choice::Plain, None);
        }
        let (mut small, mut large) = (Choice::Plain, Choice::Second);
        if self.bytes(large) < self.bytes(small) {
            (small, large) = (large, small);
        }
        if self.loss(large) >= self.loss(small) * BETTER {
            return (small, None);
        }
        let saves = self.loss(small) - self.loss(large);
        let bytes = (self.bytes(large) - self.bytes(small)).max(1);
        (small, Some((saves / bytes as f64, large)))
    }
}

/// Whether so many gets are too few to decide on.
pub fn too_few(gets: f64) -> bool {
    gets < GETS_LEAST
}

/// What to keep of each level, in at most so many bytes, which is no less than the plain filters of
/// all take; as now where too little is known.
pub fn choose(offers: &[Offer], most_bytes: u64) -> Vec<Choice> {
    let plain: Vec<Choice> = offers
        .iter()
        .map(|offer| match offer {
            offer if offer.is_new => offer.now,
            offer if offer.pays() => Choice::Plain,
            _ => Choice::Nothing,
        })
        .collect();
    let mut chosen = plain.clone();
    let mut steps: Vec<(f64, usize, Choice)> = Vec::new();
    for (level, offer) in offers.iter().enumerate() {
        if !offer.is_new && chosen[level] != Choice::Nothing {
            let (small, step) = offer.step();
            chosen[level] = small;
            steps.extend(step.map(|(worth, choice)| (worth, level, choice)));
        }
    }
    let bytes = |chosen: &[Choice]| -> u64 {
        offers.iter().zip(chosen).map(|(offer, choice)| offer.bytes(*choice)).sum()
    };
    let mut left = most_bytes.saturating_sub(bytes(&chosen));
    steps.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, level, choice) in steps {
        let more = offers[level].bytes(choice) - offers[level].bytes(chosen[level]);
        if more <= left {
            left -= more;
            chosen[level] = choice;
        }
    }
    let loss = |chosen: &[Choice]| -> f64 {
        offers.iter().zip(chosen).map(|(offer, choice)| offer.loss(*choice)).sum()
    };
    // What was read once is not read again for little.
    let mut now: Vec<Choice> = offers.iter().map(|offer| offer.now).collect();
    for (now, plain) in now.iter_mut().zip(&plain) {
        if *plain == Choice::Nothing || *now == Choice::Nothing {
            *now = *plain;
        }
    }
    let mut best = &plain;
    for other in [&now, &chosen] {
        if bytes(other) <= most_bytes && loss(other) < loss(best) * BETTER {
            best = other;
        }
    }
    best.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(entries: u64, absent: f64, present: f64) -> Offer {
        let asked = Asked { absent, present, false_reads: 0.0 };
        let plain = (entries * 10 / 8, 0.0096);
        Offer { plain, asked, gets: 90_000.0, ..Offer::default() }
    }

    #[test]
    fn little_evidence_changes_nothing() {
        let now = Offer { now: Choice::Nothing, is_new: true, ..offer(1000, 5.0, 0.0) };
        let other = Offer { now: Choice::Plain, is_new: true, ..offer(9, 0.0, 1.0) };
        assert_eq!(choose(&[now, other], 0), [Choice::Nothing, Choice::Plain]);
        assert!(too_few(8000.0) && !too_few(9000.0));
    }

    #[test]
    fn a_level_that_is_asked_only_for_what_it_has_needs_no_filter() {
        let offers = [offer(1000, 90_000.0, 500.0), offer(100_000, 20.0, 89_000.0)];
        assert_eq!(choose(&offers, u64::MAX), [Choice::Plain, Choice::Nothing]);
        let mut turned = offers;
        turned[1].now = Choice::Nothing;
        turned[1].asked.absent = 200.0;
        assert_eq!(choose(&turned, u64::MAX)[1], Choice::Nothing, "not to and fro");
        turned[1].asked.absent = 300.0;
        assert_eq!(choose(&turned, u64::MAX)[1], Choice::Plain);
    }

    #[test]
    fn memory_goes_where_it_saves_most() {
        let mut offers = [offer(1000, 50_000.0, 0.0), offer(100_000, 50_000.0, 0.0)];
        offers[0].second = Some((2500, 0.0001));
        offers[1].second = Some((113_000, 0.004));
        // Both second filters fit into what the plain ones took.
        assert_eq!(choose(&offers, 126_250), [Choice::Second; 2]);
        offers[1].second = Some((150_000, 0.0001));
        assert_eq!(choose(&offers, 126_250)[1], Choice::Plain, "it does not fit");
        offers[1].second = Some((125_000, 0.0095));
        assert_eq!(choose(&offers, 128_000)[1], Choice::Plain, "it is no better");
        offers[0].second = None;
        offers[1].second = Some((113_000, 0.004));
        offers[1].second_cost = 0.007;
        assert_eq!(choose(&offers, 128_000)[1], Choice::Plain, "it takes longer to ask");
    }

    /// The small levels' second filters leave no room for the last level's plain one: it must not
    /// be left out for that.
    #[test]
    fn the_last_level_is_never_without_a_filter_that_pays() {
        let mut offers: Vec<Offer> =
            [1000, 10_000, 100_000, 1_000_000].map(|keys| offer(keys, 90_000.0, 0.0)).to_vec();
        let plain: u64 = offers.iter().map(|offer| offer.bytes(Choice::Plain)).sum();
        for (level, bits) in [(0, 24), (1, 20), (2, 15)] {
            let bytes = offers[level].plain.0 * bits / 10;
            offers[level].second = Some((bytes, 0.0001));
        }
        let chosen = choose(&offers, plain);
        assert_eq!(chosen, [Choice::Plain; 4], "nothing else fits");
        // With a smaller one in the last level there is room for all.
        offers[3].second = Some((offers[3].plain.0 * 9 / 10, 0.013));
        assert_eq!(choose(&offers, plain), [Choice::Second; 4]);
        let taken = |chosen: &[Choice]| -> u64 {
            offers.iter().zip(chosen).map(|(offer, choice)| offer.bytes(*choice)).sum()
        };
        assert!(taken(&choose(&offers, plain)) <= plain);
    }

    #[test]
    fn near_ties_do_not_go_to_and_fro() {
        let mut offers = [offer(1000, 50_000.0, 0.0), offer(10_000, 50_000.0, 0.0)];
        offers[1].second = Some((12_000, 0.0093));
        assert_eq!(choose(&offers, 20_000)[1], Choice::Plain);
        offers[1].now = Choice::Second;
        offers[1].second = Some((12_000, 0.0098));
        assert_eq!(choose(&offers, 20_000)[1], Choice::Plain, "all plain ones are as good");
        offers[1].second = Some((12_000, 0.0060));
        assert_eq!(choose(&offers, 20_000)[1], Choice::Second);
    }
}
