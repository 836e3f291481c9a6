//! Shows that programs written to parse db_bench's lines can parse the lines of `umbel bench`
//! unchanged.
//!
//! The regular expressions are copied from published scripts for LevelDB's and RocksDB's db_bench,
//! each with its expected result.

use regex::Regex;

use super::test_binary::Fixture;

const BENCHMARKS: [&str; 6] =
    ["fillseq", "fillrandom", "readrandom", "readmissing", "seekrandom", "readwhilewriting"];

fn run(format: &str) -> String {
    let fixture = Fixture::new();
    let names = format!("--benchmarks={}", BENCHMARKS.join(","));
    fixture.bare(&["bench", &names, "--num=3000", "--seed=1", format]).succeeds().text()
}

fn all<'a>(expression: &str, text: &'a str) -> Vec<regex::Captures<'a>> {
    let regex = Regex::new(expression).expect("an expression");
    text.lines().filter_map(|line| regex.captures(line)).collect()
}

#[test]
fn leveldb_parsers_find_every_line() {
    let text = run("--format=leveldb");
    // Of a script that compares file systems by LevelDB's benchmarks: name and microseconds.
    let found = all(r"^(\w+)\s+:\s+(\S+)\s+micros\/op\;", &text);
    let names: Vec<&str> = found.iter().map(|one| one.get(1).unwrap().as_str()).collect();
    assert_eq!(names, BENCHMARKS, "{text}");
    assert!(found.iter().all(|one| one[2].parse::<f64>().is_ok_and(|micros| micros > 0.0)));
    // Of one that measures storage: microseconds and bandwidth, where there is one.
    let found =
        all(r"(?i)^(\w+)\s*:\s*(\d*[.]?\d*)\s*micros\/op.*;\s*(\d*[.]?\d*)\s*MB\/s.*$", &text);
    let names: Vec<&str> = found.iter().map(|one| one.get(1).unwrap().as_str()).collect();
    assert_eq!(names, ["fillseq", "fillrandom"], "{text}");
    assert!(found.iter().all(|one| one[3].parse::<f64>().is_ok_and(|rate| rate > 0.0)));
}

#[test]
fn rocksdb_parsers_find_every_line() {
    let text = run("--format=rocksdb");
    // Of a script that measures energy: operations a second, and how many there were.
    let rates = concat!(
        r"micros\/op.*?(?P<ops_sec>\d+(\.\d+)?).*?ops\/sec.*?\d+(\.\d+)?.*?seconds.*?",
        r"(?P<ops_total>\d+).*?operations"
    );
    let found = all(rates, &text);
    assert_eq!(found.len(), BENCHMARKS.len(), "{text}");
    for one in &found {
        assert!(one["ops_sec"].parse::<f64>().is_ok_and(|rate| rate > 0.0), "{text}");
        assert_eq!(&one["ops_total"], "3000", "{text}");
    }
    // Of one that lets a model choose options: the number of entries.
    assert_eq!(&all(r"Entries:\s+(\d+)", &text)[0][1], "3000");
    // The third and the fifth word, as shell scripts take them with awk.
    for line in text.lines().filter(|line| line.contains("micros/op") && line.contains("ops/sec")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(words[2].parse::<f64>().is_ok() && words[4].parse::<u64>().is_ok(), "{line}");
    }
}
