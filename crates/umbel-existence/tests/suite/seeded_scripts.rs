//! Runs some hundred seeded scripts; more with `UMBEL_EXISTENCE_SEEDS=count` or
//! `UMBEL_EXISTENCE_SEEDS=first..end`.

use std::ops::Range;

use umbel_testing::existence_script::{ScriptResult, run};

fn seeds() -> Range<u64> {
    let text = std::env::var("UMBEL_EXISTENCE_SEEDS").unwrap_or_else(|_| "300".to_owned());
    let number = |text: &str| text.trim().parse::<u64>().expect("a number of seeds");
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&text),
    }
}

#[test]
fn no_script_ends_with_a_false_negative() {
    let (mut sum, mut count) = (ScriptResult::default(), 0u64);
    for seed in seeds() {
        let done = run(seed, |_| ()).unwrap_or_else(|problem| panic!("{problem}"));
        count += 1;
        sum.opens += done.opens;
        sum.crashes += done.crashes;
        sum.faults += done.faults;
        sum.rotten += done.rotten;
        sum.growths += done.growths;
        sum.rebuilds += done.rebuilds;
        sum.healed += done.healed;
        sum.checks += done.checks;
    }
    println!("{count} histories: {sum:?}");
    // Faults that never happen prove nothing.
    let rare = [sum.opens, sum.crashes, sum.faults, sum.rotten, sum.growths, sum.rebuilds];
    assert!(count < 100 || rare.iter().all(|times| *times > count / 10), "{sum:?}");
    assert!(count < 100 || sum.healed > 0, "{sum:?}");
}

#[test]
fn script_is_a_function_of_its_seed() {
    for seed in 0..10 {
        let once = format!("{:?}", run(seed, |_| ()));
        assert_eq!(once, format!("{:?}", run(seed, |_| ())));
    }
}
