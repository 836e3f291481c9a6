//! `umbel bench`: the lines that scripts parse, and the directories that it may and may not change.

use std::process::Stdio;

use super::test_binary::{Fixture, Run, wait_until};

fn bench(fixture: &Fixture, flags: &[&str]) -> Run {
    let mut arguments = vec!["bench"];
    arguments.extend(flags);
    fixture.bare(&arguments)
}

/// Returns the number before `unit` in the result line of a benchmark.
fn number(text: &str, name: &str, unit: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(&format!("{name:<12} : ")));
    let line = line.unwrap_or_else(|| panic!("{name} has no line in:\n{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| word.trim_end_matches(';') == unit);
    words[at.unwrap_or_else(|| panic!("{unit}: {line}")) - 1].parse().unwrap()
}

#[test]
fn every_benchmark_runs_and_has_its_line() {
    let fixture = Fixture::new();
    let names = "fillseq,fillbatch,fillsync,fill100K,queue,filluniquerandom,fillrandom,overwrite,\
        readrandom,readmissing,readhot,readseq,readreverse,seekrandom,multireadrandom,\
        readwhilewriting,readwhilescanning,readrandomwriterandom,updaterandom,flush,deleteseq,\
        deleterandom,deleterange,deleterangenested,open,compact,verify";
    let flag = format!("--benchmarks={names},waitforcompaction,stats,levelstats");
    let run = bench(&fixture, &[&flag, "--num=2000", "--seed=1", "--seek_nexts=5"]).succeeds();
    let text = run.text();
    for name in names.split(',') {
        assert!(number(&text, name, "micros/op") > 0.0);
        assert!(number(&text, name, "ops/sec") > 0.0);
    }
    for (name, operations) in [("fillseq", 2000.0), ("fillsync", 2.0), ("fill100K", 2.0)] {
        assert_eq!(number(&text, name, "operations"), operations, "{name}");
    }
    for part in [
        "Keys:       16 bytes each (+ 0 bytes user-defined timestamp)\n",
        "Entries:    2000\n",
        "waitforcompaction(",
        "\n** Compaction Stats [default] **\n",
        "Level Files Size(MB)\n--------------------\n",
        "(0 of 2000 found)\n",
        "Filters by level",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(run.stderr.contains("CPU:"), "{}", run.stderr);
    assert_eq!(fixture.temporary(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn found_counts_match_present_keys() {
    let fixture = Fixture::new();
    let flags = ["--benchmarks=filluniquerandom,readrandom,readmissing,multireadrandom,readseq"];
    let text = bench(&fixture, &[flags[0], "--num=3k", "--reads=960"]).succeeds().text();
    assert!(text.contains("MB/s (960 of 960 found)\n\n"), "{text}");
    assert!(text.contains("operations; (0 of 960 found)\n\n"), "{text}");
    assert!(text.contains("(960 of 960 found)\nDB path: ["), "{text}");
    assert_eq!(number(&text, "readseq", "operations"), 960.0);
}

#[test]
fn leveldb_lines_and_keys() {
    let fixture = Fixture::new();
    let flags = [
        "--benchmarks=fillseq,readrandom,readmissing,readhot,stats",
        "--num=1000",
        "--format=leveldb",
        "--key_format=leveldb",
        "--histogram=1",
    ];
    let text = bench(&fixture, &flags).succeeds().text();
    assert!(text.starts_with("Keys:       16 bytes each\n"), "{text}");
    assert!(text.contains("micros/op; ") && !text.contains("ops/sec"), "{text}");
    let line = text.lines().find(|line| line.starts_with("readrandom ")).unwrap();
    assert!(line.ends_with(" micros/op; (1000 of 1000 found)"), "{line}");
    for silent in ["readmissing ", "readhot "] {
        let line = text.lines().find(|line| line.starts_with(silent)).unwrap();
        assert!(line.ends_with(" micros/op;"), "{line}");
    }
    assert_eq!(text.matches("Microseconds per op:\nCount: 1000  Average: ").count(), 4, "{text}");
    assert!(text.contains("Level  Files Size(MB) Time(sec) Read(MB) Write(MB)\n"), "{text}");
}

#[test]
fn histograms_have_rocksdb_s_percentile_line() {
    let fixture = Fixture::new();
    let flags = ["--benchmarks=fillrandom,readrandom", "--num=500", "--histogram"];
    let text = bench(&fixture, &flags).succeeds().text();
    for kind in ["write", "read"] {
        let start = format!("Microseconds per {kind}:\nCount: 500 Average: ");
        assert!(text.contains(&start), "{text}");
    }
    assert_eq!(text.matches("\nPercentiles: P50: ").count(), 2, "{text}");
}

#[test]
fn threads_batches_and_repeats_count_as_in_db_bench() {
    let fixture = Fixture::new();
    let names = "--benchmarks=fillrandom,readrandom[X3-W1]";
    let flags = [names, "--num", "1_000", "--threads=2", "--batch-size", "300"];
    let text = bench(&fixture, &flags).succeeds().text();
    assert_eq!(number(&text, "fillrandom", "operations"), 2000.0);
    assert_eq!(text.lines().filter(|line| line.starts_with("readrandom   : ")).count(), 3);
    assert!(text.contains("readrandom [AVG 3 runs] : "), "{text}");
    assert!(text.contains("readrandom [MEDIAN 3 runs] : "), "{text}");
}

#[test]
fn filter_summary_counts_saved_reads() {
    let fixture = Fixture::new();
    let flags = [
        "--benchmarks=filluniquerandom,flush,readmissing",
        "--num=20k",
        "--bloom-bits=10",
        "--json",
        "--seed=7",
    ];
    let run = bench(&fixture, &flags).succeeds();
    let results = run.json();
    assert_eq!(results["results"][2]["name"], "readmissing");
    assert_eq!(results["results"][2]["found"], 0);
    let total = &results["filters"]["total"];
    // A key behind the last one needs no filter: no table reaches so far.
    let probes = total["probes"].as_u64().unwrap();
    assert!((19_900..=20_000).contains(&probes), "{total}");
    let measured = total["measured_rate"].as_f64().unwrap();
    assert!(measured > 0.0 && measured < 0.03, "{total}");
    assert!(run.stderr.contains(" filter probes, "), "{}", run.stderr);
    let text = bench(
        &fixture,
        &["--benchmarks=fillseq,flush,readmissing", "--num=5000", "--bloom_bits=-1"],
    );
    assert!(text.succeeds().text().contains("No table has a filter"));
}

#[test]
fn db_directory_is_kept_and_existing_store_is_used() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let store = store.to_str().unwrap();
    bench(&fixture, &["--benchmarks=fillseq", "--num=1000", "--db", store]).succeeds();
    let flags = ["--benchmarks=fillrandom,readrandom", "--num=1000", "--use_existing_db=1"];
    let text = bench(&fixture, &[&flags[..], &["--db", store]].concat()).succeeds().text();
    assert!(text.contains("fillrandom   : skipped (--use_existing_db is true)\n"), "{text}");
    assert!(text.contains("(1000 of 1000 found)"), "{text}");
    let text = bench(&fixture, &["--benchmarks=readrandom", "--num=1000", "--db", store]);
    assert!(text.succeeds().text().contains("(0 of 1000 found)"), "the store is replaced");
    bench(&fixture, &["--use_existing_db", "--benchmarks=readseq"]).fails(2, &["--db DIR"]);
    bench(&fixture, &["--benchmarks=filluniquerandom", "--num=2G"]).fails(2, &["take fillrandom"]);
}

#[test]
fn bench_never_replaces_foreign_data() {
    let fixture = Fixture::with(&[("precious", "1")]);
    fixture
        .run(&["bench", "--benchmarks=fillseq", "--num=10"])
        .code_and_error(2, "was not created by `umbel bench` and would be replaced");
    fixture.run(&["get", "precious"]).writes("1\n");
    let directory = fixture.path("notes");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("notes.txt"), "mine").unwrap();
    let flags = ["--benchmarks=fillseq", "--num=10", "--db", directory.to_str().unwrap()];
    bench(&fixture, &flags).code_and_error(2, "notes");
    assert_eq!(std::fs::read(directory.join("notes.txt")).unwrap(), b"mine");
}

#[test]
fn invalid_names_and_numbers_are_rejected_before_start() {
    let fixture = Fixture::new();
    let cases: [(&[&str], &[&str]); 16] = [
        (&["--benchmarks=fillseq,readrandum"], &["`readrandum`", "did you mean `readrandom`?"]),
        (&["--blom_bits=10"], &["'--blom_bits'", "a similar argument exists: '--bloom_bits'"]),
        (&["--bloom_bits=1001"], &["--bloom_bits is 1001, but must be -1 to 1000"]),
        (&["--num=12x"], &["--num", "`x` in `12x` is not a suffix"]),
        (&["--num=0"], &["--num is 0"]),
        (&["--num", "-5"], &["--num is -5, but must be 1 to 281474976710656"]),
        (&["--threads=-1"], &["--threads is -1, but must be 1 to 1024"]),
        (&["--num=99999999999999999999"], &["but must be 1 to 281474976710656"]),
        (&["--write-buffer-size=1"], &["--write-buffer-size is 1, but must be 4096 to"]),
        (&["--write_buffer_size=1"], &["--write_buffer_size is 1, but must be 4096 to"]),
        (&["--target-file-size-base", "1"], &["--target-file-size-base is 1, but must be 4096"]),
        (&["--db-write-buffer-size=1"], &["--db-write-buffer-size is 1, but must be 16384 to"]),
        (&["--benchmarks=fillseq,snappycomp"], &["`snappycomp`", "Umbel does not have; run"]),
        (&["--benchmarks=snappyuncomp"], &["`snappyuncomp`", "--compression=lz4"]),
        (&["--db="], &["--db is empty"]),
        (&["--format=rocks"], &["'rocks'", "rocksdb, leveldb"]),
    ];
    for (flags, parts) in cases {
        let run = bench(&fixture, flags).fails(2, parts);
        assert_eq!(run.stdout, b"", "{flags:?}");
    }
    let flags = ["--benchmarks=fillseq", "--num=10", "--cache_numshardbits=6", "--memtablerep=x"];
    let run = bench(&fixture, &flags).succeeds();
    assert!(run.stderr.contains("--cache_numshardbits has no effect on"), "{}", run.stderr);
}

#[test]
fn interrupted_bench_removes_its_directory() {
    let fixture = Fixture::new();
    let mut command = fixture.command();
    command.args(["bench", "--benchmarks=fillrandom", "--num=1G"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_until("the directory exists", || !fixture.temporary().is_empty());
    // Killing gives the process no chance at all, which an interrupt would.
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the directory is removed", || fixture.temporary().is_empty());
}

#[test]
fn cleanup_process_removes_only_its_directory() {
    let fixture = Fixture::new();
    std::fs::create_dir(fixture.path("tmp/precious")).unwrap();
    for name in ["precious", "../tmp/precious", "umbel-bench-", "umbel-bench-../precious"] {
        fixture.bare(&["remove-bench-folder", name]).fails(2, &["not a temporary directory"]);
    }
    assert!(fixture.path("tmp/precious").exists());
}

#[test]
fn duration_ends_random_benchmark_and_report_file_is_written() {
    let fixture = Fixture::new();
    let report = fixture.path("report.csv");
    let file = format!("--report_file={}", report.display());
    let flags = [
        "--benchmarks=fillrandom",
        "--num=1000",
        "--duration=2",
        "--report_interval_seconds=1",
        "--stats_interval=100k",
        &file,
    ];
    let run = bench(&fixture, &flags).succeeds();
    let seconds = number(&run.text(), "fillrandom", "seconds");
    assert!((1.9..4.0).contains(&seconds), "{}", run.text());
    assert!(number(&run.text(), "fillrandom", "operations") > 1000.0);
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.starts_with("secs_elapsed,interval_qps\n1,"), "{report}");
}

#[test]
fn crc32c_names_the_measured_checksum() {
    let fixture = Fixture::new();
    for format in ["--format=leveldb", "--format=rocksdb"] {
        let run = bench(&fixture, &["--benchmarks=crc32c", "--num=10", format]).succeeds();
        let text = run.text();
        let line = text.lines().find(|line| line.starts_with("crc32c       : ")).unwrap();
        assert!(line.ends_with(" MB/s (4K per op)"), "{line}");
        assert!(run.stderr.contains("crc32c measures XXH3-64"), "{}", run.stderr);
    }
}

#[test]
fn concurrent_reads_and_seeks_print_db_bench_lines() {
    let fixture = Fixture::new();
    let flags = ["--benchmarks=fillseq,readwhilewriting,seekrandom", "--num=1000", "--threads=2"];
    let text = bench(&fixture, &flags).succeeds().text();
    let line = |text: &str, name: &str| {
        text.lines().find(|line| line.starts_with(name)).unwrap().to_string()
    };
    let read = line(&text, "readwhilewriting : ");
    assert!(read.contains(" seconds 2000 operations; "), "the writer counts for nothing: {read}");
    assert!(read.ends_with(" MB/s (1000 of 1000 found)"), "{read}");
    let seek = line(&text, "seekrandom   : ");
    assert!(seek.ends_with(" seconds 2000 operations; (1000 of 1000 found)"), "{seek}");
    let text = bench(&fixture, &[&flags[..], &["--format=leveldb"]].concat()).succeeds().text();
    for name in ["readwhilewriting : ", "seekrandom   : "] {
        let line = line(&text, name);
        assert!(line.ends_with(" micros/op; (1000 of 1000 found)"), "{line}");
    }
}

#[test]
fn closed_output_pipe_ends_bench_without_error() {
    let fixture = Fixture::new();
    let mut command = fixture.command();
    command.args(["bench", "--benchmarks=fillseq,readseq", "--num=1000"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!error.contains("umbel:"), "{error}");
    assert!(fixture.temporary().is_empty());
}

impl Run {
    /// Asserts an exit code and a part of the last line of standard error.
    fn code_and_error(self, code: i32, part: &str) {
        assert_eq!(self.code, code, "{self:?}");
        let last = self.stderr.lines().last().unwrap_or_default();
        assert!(last.starts_with("umbel: ") && last.contains(part), "{}", self.stderr);
    }
}
