//! `umbel filter`: filters in files, without a store.

use std::fs;

use umbel_filter::{HEADER_BYTES, HashDomain, HashSecret, hash_key};

use super::test_binary::Fixture;

/// Lines `first 0`, `first 1` and so on.
fn lines(first: &str, count: usize) -> String {
    (0..count).map(|number| format!("{first} {number}\n")).collect()
}

fn build(fixture: &Fixture, flags: &[&str], input: &str) -> String {
    let output = fixture.path("filter").display().to_string();
    let mut arguments = vec!["filter", "build", "-o", &output];
    arguments.extend(flags);
    fixture.feed(&arguments, input.as_bytes()).succeeds();
    output
}

#[test]
fn filter_size_computes_third_quantity() {
    let fixture = Fixture::new();
    let size = |flags: &[&str]| fixture.bare(&[&["filter", "size"], flags].concat());
    let table = size(&["--keys=1M", "--fpp=0.01"]).succeeds().text();
    let row = |kind: &str| {
        let line = table.lines().find(|line| line.starts_with(kind)).unwrap();
        line.split_whitespace().map(str::to_string).collect::<Vec<_>>()
    };
    // m = 9,585,059 bits and 7 hashes, by the textbook.
    assert_eq!(row("bloom ")[1..3], ["1,000,000", "9.59"]);
    assert!(table.contains("9.59") && row("bloom ").contains(&"7".to_string()));
    let json = size(&["--keys=1M", "--bits-per-key=10", "--json"]).succeeds().json();
    let kinds = json["kinds"].as_array().unwrap();
    let blocked = kinds.iter().find(|row| row["kind"] == "blocked").unwrap();
    assert!((0.0096..0.0098).contains(&blocked["designed_rate"].as_f64().unwrap()), "{blocked}");
    let json = size(&["--fpp=0.01", "--bytes=1_198_197", "--json"]).succeeds().json();
    let bloom = &json["kinds"][0];
    assert!((999_000..1_001_000).contains(&bloom["keys"].as_u64().unwrap()), "{bloom}");
    size(&["--keys=5"]).fails(2, &["give two of"]);
    size(&["--keys=5", "--fpp=0.1", "--bytes=1MiB"]).fails(2, &["give two of them"]);
    size(&["--fpp=0.1", "--bits-per-key=9"]).fails(2, &["give two of"]);
    for wrong in ["0", "1", "-1", "nan", "inf"] {
        let flag = format!("--fpp={wrong}");
        size(&["--keys=5", &flag]).fails(2, &["--fpp", "more than 0 and less than 1"]);
    }
    size(&["--keys=5", "--bits-per-key=1001"]).fails(2, &["at most 1000"]);
    size(&["--keys=0", "--fpp=0.1"]).fails(2, &["--keys"]);
}

#[test]
fn filter_check_prints_matching_lines() {
    let fixture = Fixture::new();
    for kind in ["bloom", "blocked", "blocked256", "parquet", "fuse", "ribbon", "counting"] {
        let filter = build(&fixture, &["--kind", kind, "--fpp=0.001"], &lines("in", 2000));
        let text = lines("in", 50) + &lines("out", 1000) + "in 60";
        let check = |flags: &[&str]| {
            fixture.feed(&[&["filter", "check", &filter], flags].concat(), text.as_bytes())
        };
        let found = check(&[]).succeeds().text();
        assert!(found.starts_with(&lines("in", 50)), "{kind}");
        assert!(found.ends_with("in 60\n"), "{kind}: a last line without its end gets one");
        let passed = found.lines().count() - 51;
        assert!(passed < 10, "{kind}: {passed} of 1000 absent lines passed");
        let others = check(&["-v"]).succeeds().text();
        assert_eq!(others.lines().count(), 1000 - passed, "{kind}");
        assert!(others.lines().all(|line| line.starts_with("out ")), "{kind}");
        check(&["-c"]).writes(&format!("{}\n", 51 + passed));
        check(&["-vc"]).writes(&format!("{}\n", 1000 - passed));
        let none = fixture.feed(&["filter", "check", &filter, "-"], b"nowhere\n");
        assert_eq!((none.code, none.text().as_str(), none.stderr.as_str()), (1, "", ""));
    }
}

#[test]
fn every_hash_builds_and_checks() {
    let fixture = Fixture::new();
    let hashes = [
        "keyed",
        "siphash-1-3",
        "xxh64",
        "xxh3",
        "murmur3-32",
        "murmur3-128",
        "seahash",
        "cityhash64",
        "metrohash64",
        "rustc-hash",
        "fxhash",
        "spooky",
        "leveldb",
    ];
    for hash in hashes {
        let filter = build(&fixture, &["--hash", hash], &lines("in", 100));
        let text = lines("in", 100);
        fixture.feed(&["filter", "check", &filter], text.as_bytes()).writes(&text);
        let facts = fixture.bare(&["filter", "inspect", &filter, "--json"]).succeeds().json();
        assert_eq!(facts["hash"], hash);
    }
    let output = fixture.path("filter").display().to_string();
    fixture
        .bare(&["filter", "build", "-o", &output, "--hash=md5"])
        .fails(2, &["no hash `md5`", "keyed", "leveldb"]);
}

#[test]
fn parquet_filter_file_matches_parquet_format() {
    let fixture = Fixture::new();
    let filter = build(&fixture, &["--kind=parquet", "--bits-per-key=16"], &lines("in", 1000));
    // Thrift's compact protocol: field 1 is a number of 32 bits, the bytes of the blocks, 2016.
    let bytes = fs::read(&filter).unwrap();
    assert_eq!(bytes[..3], [0x15, 0xc0, 0x1f]);
    let facts = fixture.bare(&["filter", "inspect", &filter, "--json"]).succeeds().json();
    assert_eq!((&facts["format"], &facts["hash"]), (&"parquet".into(), &"xxh64".into()));
    assert!((900.0..1100.0).contains(&facts["estimated_keys"].as_f64().unwrap()), "{facts}");
    let output = fixture.path("filter").display().to_string();
    let with =
        |flag: &str| fixture.bare(&["filter", "build", "-o", &output, "--kind=parquet", flag]);
    with("--hash=keyed").fails(2, &["xxh64 and no seed"]);
    with("--seed=00000000000000000000000000000000").fails(2, &["xxh64 and no seed"]);
    with("--fpp=0.5").fails(2, &["at least one key"]);
}

#[test]
fn same_seed_builds_identical_filter() {
    let fixture = Fixture::new();
    let seed = "--seed=000102030405060708090a0b0c0d0e0f";
    let first = fs::read(build(&fixture, &[seed], &lines("in", 100))).unwrap();
    let second = fs::read(build(&fixture, &[seed], &lines("in", 100))).unwrap();
    assert_eq!(first, second);
    let random = fs::read(build(&fixture, &[], &lines("in", 100))).unwrap();
    assert_ne!(first, random);
    let output = fixture.path("filter").display().to_string();
    let with = |seed: &str| fixture.bare(&["filter", "build", "-o", &output, "--seed", seed]);
    with("0011").fails(2, &["32 hex digits", "2 bytes"]);
    with("xy").fails(2, &["not hex"]);
}

#[test]
fn inspect_prints_filter_properties() {
    let fixture = Fixture::new();
    let filter = build(&fixture, &["--kind=bloom", "--bits-per-key=10"], &lines("in", 1000));
    let text = fixture.bare(&["filter", "inspect", &filter]).succeeds().text();
    for part in ["standard", "keyed", "1,000", "10.00", "estimated keys", "0.8", "▄"] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    let facts = fixture.bare(&["filter", "inspect", &filter, "--json"]).succeeds().json();
    assert_eq!(facts["keys"], 1000);
    assert!((900.0..1100.0).contains(&facts["estimated_keys"].as_f64().unwrap()), "{facts}");
    assert!((0.4..0.6).contains(&facts["fill"].as_f64().unwrap()), "{facts}");
}

#[test]
fn empty_filter_passes_every_line() {
    let fixture = Fixture::new();
    let filter = build(&fixture, &[], "");
    fixture.feed(&["filter", "check", &filter], b"any\n").writes("any\n");
    let text = fixture.bare(&["filter", "inspect", &filter]).succeeds().text();
    assert!(text.contains("no keys were added"), "{text}");
}

#[test]
fn invalid_filter_files_are_reported() {
    let fixture = Fixture::new();
    let missing = fixture.path("missing").display().to_string();
    fixture.bare(&["filter", "check", &missing]).fails(4, &["could not read", "missing"]);
    let directory = fixture.path("").display().to_string();
    fixture.bare(&["filter", "inspect", &directory]).fails(2, &["is a directory"]);
    fixture.bare(&["filter", "build", "-o", &directory]).fails(2, &["is a directory"]);
    fixture.bare(&["filter", "build", "-o", &missing, &directory]).fails(2, &["is a directory"]);
    let nowhere = fixture.path("no/folder").display().to_string();
    fixture.bare(&["filter", "build", "-o", &nowhere]).fails(4, &["could not write"]);
    let text = fixture.path("text").display().to_string();
    fs::write(&text, "a letter").unwrap();
    fixture.bare(&["filter", "check", &text]).fails(2, &["neither a filter", "Parquet"]);
    let filter = build(&fixture, &[], &lines("in", 100));
    let good = fs::read(&filter).unwrap();
    for at in [10, 30, 40, 100, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        fs::write(&filter, &bad).unwrap();
        fixture
            .bare(&["filter", "check", &filter])
            .fails(3, &["is damaged", "build the filter again"]);
    }
    fs::write(&filter, &good[..100]).unwrap();
    fixture.bare(&["filter", "inspect", &filter]).fails(3, &["is damaged"]);
    for flags in [["--kind=cuckoo", "kind"], ["--bits-per-key=0", "more than 0"]] {
        let output = ["filter", "build", "-o", &missing, flags[0]];
        fixture.bare(&output).fails(2, &[flags[1]]);
    }
    let both = ["filter", "build", "-o", &missing, "--fpp=0.1", "--bits-per-key=9"];
    fixture.bare(&both).fails(2, &["cannot be used with"]);
    assert!(!fixture.path("missing").exists(), "a rejected build leaves no file");
}

#[test]
fn failed_build_keeps_existing_file() {
    let fixture = Fixture::new();
    let filter = build(&fixture, &[], &lines("in", 100));
    let good = fs::read(&filter).unwrap();
    let input = fixture.path("lines");
    fs::write(&input, lines("other", 100_000)).unwrap();
    let input = input.display().to_string();
    let limited = fixture.run_limited(8, &["filter", "build", "-o", &filter, &input]);
    limited.fails(4, &["could not write", "File too large"]);
    assert_eq!(fs::read(&filter).unwrap(), good);
    let names: Vec<_> = fs::read_dir(fixture.path("")).unwrap().collect();
    assert_eq!(names.len(), 3, "no file is left beside it: {names:?}");
}

#[test]
fn filter_bench_has_a_row_for_each_requested_kind() {
    let fixture = Fixture::new();
    let flags = ["filter", "bench", "--keys=2000", "--rounds=1", "--kind=bloom,blocked"];
    let text = fixture.bare(&flags).succeeds().text();
    assert_eq!(text.lines().count(), 4, "{text}");
    let json = fixture.bare(&[&flags[..], &["--json"]].concat()).succeeds().json();
    for row in json["kinds"].as_array().unwrap() {
        let [designed, measured] =
            ["designed_rate", "measured_rate"].map(|name| row[name].as_f64().unwrap());
        assert!(measured > designed / 2.0 && measured < designed * 2.0, "{row}");
    }
}

#[cfg(unix)]
#[test]
fn build_follows_symlinks_and_keeps_permissions() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let fixture = Fixture::new();
    let filter = build(&fixture, &[], &lines("in", 100));
    fs::set_permissions(&filter, fs::Permissions::from_mode(0o640)).unwrap();
    let link = fixture.path("link");
    symlink(&filter, &link).unwrap();
    let through = link.display().to_string();
    let text = lines("other", 100);
    fixture.feed(&["filter", "build", "-o", &through], text.as_bytes()).succeeds();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "the link is still one");
    assert_eq!(fs::metadata(&filter).unwrap().permissions().mode() & 0o777, 0o640);
    fixture.feed(&["filter", "check", &filter], text.as_bytes()).writes(&text);
}

#[test]
fn filter_build_rejects_its_input_as_output() {
    let fixture = Fixture::new();
    let log = fixture.path("log");
    fs::write(&log, lines("in", 100)).unwrap();
    let name = log.display().to_string();
    let refused = fixture.bare(&["filter", "build", "-o", &name, &name]);
    refused.fails(2, &["is the input and would be replaced"]);
    assert_eq!(fs::read_to_string(&log).unwrap(), lines("in", 100));
}

#[cfg(unix)]
#[test]
fn filter_written_to_a_pipe_has_no_other_output() {
    let fixture = Fixture::new();
    let seed = "--seed=000102030405060708090a0b0c0d0e0f";
    let file = fs::read(build(&fixture, &[seed], &lines("in", 100))).unwrap();
    let text = lines("in", 100);
    let piped =
        fixture.feed(&["filter", "build", seed, "-o", "/dev/stdout"], text.as_bytes()).succeeds();
    assert_eq!(piped.stdout, file);
    assert!(piped.stderr.contains("100 lines"), "{}", piped.stderr);
}

#[test]
fn hash_of_32_bits_limits_designed_rate() {
    let fixture = Fixture::new();
    for kind in ["fuse", "ribbon"] {
        let flags = ["--hash=murmur3-32", "--kind", kind, "--fpp=0.0001", "--json"];
        let output = fixture.path("filter").display().to_string();
        let build = [&["filter", "build", "-o", &output][..], &flags].concat();
        let facts = fixture.feed(&build, lines("in", 200_000).as_bytes()).succeeds().json();
        // 200,000 / 2^32 comes on top.
        assert!(facts["designed_rate"].as_f64().unwrap() > 1e-4 / 2.0 + 4e-5, "{facts}");
    }
}

/// Regression: matching lines were appended to the input, without end.
#[test]
fn filter_check_rejects_its_output_as_input() {
    let fixture = Fixture::new();
    let filter = build(&fixture, &[], &lines("in", 10));
    let (path, text) = (fixture.path("lines"), lines("in", 5));
    fs::write(&path, &text).unwrap();
    let check = |flags: &[&str]| {
        let output = fs::OpenOptions::new().append(true).open(&path).unwrap();
        let mut command = fixture.command();
        command.args(["filter", "check", &filter]).arg(&path).args(flags);
        command.stdout(output).output().unwrap()
    };
    let refused = check(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is both input and output"));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert!(check(&["-c"]).status.success());
    assert_eq!(fs::read_to_string(&path).unwrap(), text + "5\n");
}

/// Regression: with swapped arguments a whole log was read before its magic was checked, and
/// `/dev/zero` was read without end.
#[test]
fn non_filter_input_is_not_read_to_its_end() {
    let fixture = Fixture::new();
    let refuses = |name: &str| {
        fixture.bare(&["filter", "inspect", name]).fails(2, &["neither a filter file of"]);
    };
    refuses("/dev/zero");
    let path = fixture.path("log");
    fs::write(&path, lines("GET /", 100)).unwrap();
    refuses(&path.display().to_string());
    // A hole of a terabyte.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    refuses(&path.display().to_string());
}

/// Regression: a file of a newer version was reported as damaged.
#[test]
fn filter_of_newer_format_is_not_reported_as_damage() {
    let fixture = Fixture::new();
    let path = build(&fixture, &[], &lines("in", 10));
    let mut file = fs::read(&path).unwrap();
    // The version of the filter in the file, and the checksum that belongs to it.
    file[HEADER_BYTES + 5] = 2;
    let seed: [u8; 16] = file[8..24].try_into().unwrap();
    let secret = HashSecret::from_seed(HashDomain::Other(1).seed(seed));
    let of_filter = hash_key(&secret, &file[HEADER_BYTES..]).rotate_left(1);
    let checksum = hash_key(&secret, &file[..32]) ^ of_filter;
    file[32..40].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, file).unwrap();
    fixture.bare(&["filter", "inspect", &path]).fails(2, &["a newer version of umbel may read it"]);
}

#[test]
fn dash_as_filter_output_is_rejected() {
    let fixture = Fixture::new();
    fixture.feed(&["filter", "build", "-o", "-"], b"in\n").fails(2, &["/dev/stdout"]);
}

#[test]
fn filter_size_handles_too_many_keys() {
    let fixture = Fixture::new();
    let text = fixture.bare(&["filter", "size", "--keys=1T", "--fpp=0.01"]).succeeds().text();
    assert!(!text.contains("but the lowest that these keys reach"), "{text}");
}
