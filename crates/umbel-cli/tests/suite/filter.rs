//! `umbel filter`: filters by themselves.

use std::fs;

use umbel_filter::{HEADER_BYTES, HashDomain, HashSecret, hash_key};

use super::harness::Ground;

/// Lines `first 0`, `first 1` and so on.
fn lines(first: &str, count: usize) -> String {
    (0..count).map(|number| format!("{first} {number}\n")).collect()
}

fn build(ground: &Ground, flags: &[&str], input: &str) -> String {
    let output = ground.path("filter").display().to_string();
    let mut arguments = vec!["filter", "build", "-o", &output];
    arguments.extend(flags);
    ground.feed(&arguments, input.as_bytes()).succeeds();
    output
}

#[test]
fn size_answers_the_third_of_two() {
    let ground = Ground::new();
    let size = |flags: &[&str]| ground.bare(&[&["filter", "size"], flags].concat());
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
fn check_prints_what_grep_would() {
    let ground = Ground::new();
    for kind in ["bloom", "blocked", "blocked256", "parquet", "fuse", "ribbon", "counting"] {
        let filter = build(&ground, &["--kind", kind, "--fpp=0.001"], &lines("in", 2000));
        let asked = lines("in", 50) + &lines("out", 1000) + "in 60";
        let check = |flags: &[&str]| {
            ground.feed(&[&["filter", "check", &filter], flags].concat(), asked.as_bytes())
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
        let none = ground.feed(&["filter", "check", &filter, "-"], b"nowhere\n");
        assert_eq!((none.code, none.text().as_str(), none.stderr.as_str()), (1, "", ""));
    }
}

#[test]
fn every_hash_builds_and_asks() {
    let ground = Ground::new();
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
        let filter = build(&ground, &["--hash", hash], &lines("in", 100));
        let asked = lines("in", 100);
        ground.feed(&["filter", "check", &filter], asked.as_bytes()).writes(&asked);
        let facts = ground.bare(&["filter", "inspect", &filter, "--json"]).succeeds().json();
        assert_eq!(facts["hash"], hash);
    }
    let output = ground.path("filter").display().to_string();
    ground
        .bare(&["filter", "build", "-o", &output, "--hash=md5"])
        .fails(2, &["no hash `md5`", "keyed", "leveldb"]);
}

#[test]
fn parquet_filters_are_those_of_parquet() {
    let ground = Ground::new();
    let filter = build(&ground, &["--kind=parquet", "--bits-per-key=16"], &lines("in", 1000));
    // Thrift's compact protocol: field 1 is a number of 32 bits, the bytes of the blocks, 2016.
    let bytes = fs::read(&filter).unwrap();
    assert_eq!(bytes[..3], [0x15, 0xc0, 0x1f]);
    let facts = ground.bare(&["filter", "inspect", &filter, "--json"]).succeeds().json();
    assert_eq!((&facts["format"], &facts["hash"]), (&"parquet".into(), &"xxh64".into()));
    assert!((900.0..1100.0).contains(&facts["estimated_keys"].as_f64().unwrap()), "{facts}");
    let output = ground.path("filter").display().to_string();
    let with =
        |flag: &str| ground.bare(&["filter", "build", "-o", &output, "--kind=parquet", flag]);
    with("--hash=keyed").fails(2, &["xxh64 and no seed"]);
    with("--seed=00000000000000000000000000000000").fails(2, &["xxh64 and no seed"]);
    with("--fpp=0.5").fails(2, &["no filter of no keys"]);
}

#[test]
fn a_given_seed_makes_the_same_bytes() {
    let ground = Ground::new();
    let seed = "--seed=000102030405060708090a0b0c0d0e0f";
    let first = fs::read(build(&ground, &[seed], &lines("in", 100))).unwrap();
    let second = fs::read(build(&ground, &[seed], &lines("in", 100))).unwrap();
    assert_eq!(first, second);
    let random = fs::read(build(&ground, &[], &lines("in", 100))).unwrap();
    assert_ne!(first, random);
    let output = ground.path("filter").display().to_string();
    let with = |seed: &str| ground.bare(&["filter", "build", "-o", &output, "--seed", seed]);
    with("0011").fails(2, &["32 hex digits", "2 bytes"]);
    with("xy").fails(2, &["not hex"]);
}

#[test]
fn inspect_says_what_is_in_the_file() {
    let ground = Ground::new();
    let filter = build(&ground, &["--kind=bloom", "--bits-per-key=10"], &lines("in", 1000));
    let text = ground.bare(&["filter", "inspect", &filter]).succeeds().text();
    for part in ["standard", "keyed", "1,000", "10.00", "estimated keys", "0.8", "▄"] {
        assert!(text.contains(part), "`{part}` is not in {text}");
    }
    let facts = ground.bare(&["filter", "inspect", &filter, "--json"]).succeeds().json();
    assert_eq!(facts["keys"], 1000);
    assert!((900.0..1100.0).contains(&facts["estimated_keys"].as_f64().unwrap()), "{facts}");
    assert!((0.4..0.6).contains(&facts["fill"].as_f64().unwrap()), "{facts}");
}

#[test]
fn no_lines_make_a_filter_that_lets_everything_through() {
    let ground = Ground::new();
    let filter = build(&ground, &[], "");
    ground.feed(&["filter", "check", &filter], b"any\n").writes("any\n");
    let text = ground.bare(&["filter", "inspect", &filter]).succeeds().text();
    assert!(text.contains("no keys were added"), "{text}");
}

#[test]
fn whatever_is_wrong_with_a_file_is_said() {
    let ground = Ground::new();
    let missing = ground.path("missing").display().to_string();
    ground.bare(&["filter", "check", &missing]).fails(4, &["could not read", "missing"]);
    let folder = ground.path("").display().to_string();
    ground.bare(&["filter", "inspect", &folder]).fails(2, &["is a folder"]);
    ground.bare(&["filter", "build", "-o", &folder]).fails(2, &["is a folder"]);
    ground.bare(&["filter", "build", "-o", &missing, &folder]).fails(2, &["is a folder"]);
    let nowhere = ground.path("no/folder").display().to_string();
    ground.bare(&["filter", "build", "-o", &nowhere]).fails(4, &["could not write"]);
    let text = ground.path("text").display().to_string();
    fs::write(&text, "a letter").unwrap();
    ground.bare(&["filter", "check", &text]).fails(2, &["neither a filter", "Parquet"]);
    let filter = build(&ground, &[], &lines("in", 100));
    let good = fs::read(&filter).unwrap();
    for at in [10, 30, 40, 100, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 4;
        fs::write(&filter, &bad).unwrap();
        ground.bare(&["filter", "check", &filter]).fails(3, &["is damaged", "build it anew"]);
    }
    fs::write(&filter, &good[..100]).unwrap();
    ground.bare(&["filter", "inspect", &filter]).fails(3, &["is damaged"]);
    for flags in [["--kind=cuckoo", "kind"], ["--bits-per-key=0", "more than 0"]] {
        let output = ["filter", "build", "-o", &missing, flags[0]];
        ground.bare(&output).fails(2, &[flags[1]]);
    }
    let both = ["filter", "build", "-o", &missing, "--fpp=0.1", "--bits-per-key=9"];
    ground.bare(&both).fails(2, &["do not go together"]);
    assert!(!ground.path("missing").exists(), "what was refused left no file");
}

#[test]
fn a_build_that_fails_leaves_the_old_file() {
    let ground = Ground::new();
    let filter = build(&ground, &[], &lines("in", 100));
    let good = fs::read(&filter).unwrap();
    let input = ground.path("lines");
    fs::write(&input, lines("other", 100_000)).unwrap();
    let input = input.display().to_string();
    let limited = ground.run_limited(8, &["filter", "build", "-o", &filter, &input]);
    limited.fails(4, &["could not write", "File too large"]);
    assert_eq!(fs::read(&filter).unwrap(), good);
    let names: Vec<_> = fs::read_dir(ground.path("")).unwrap().collect();
    assert_eq!(names.len(), 3, "no file is left beside it: {names:?}");
}

#[test]
fn bench_has_a_row_for_every_kind_asked_for() {
    let ground = Ground::new();
    let flags = ["filter", "bench", "--keys=2000", "--rounds=1", "--kind=bloom,blocked"];
    let text = ground.bare(&flags).succeeds().text();
    assert_eq!(text.lines().count(), 4, "{text}");
    let json = ground.bare(&[&flags[..], &["--json"]].concat()).succeeds().json();
    for row in json["kinds"].as_array().unwrap() {
        let [designed, measured] =
            ["designed_rate", "measured_rate"].map(|name| row[name].as_f64().unwrap());
        assert!(measured > designed / 2.0 && measured < designed * 2.0, "{row}");
    }
}

#[cfg(unix)]
#[test]
fn links_lead_on_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let ground = Ground::new();
    let filter = build(&ground, &[], &lines("in", 100));
    fs::set_permissions(&filter, fs::Permissions::from_mode(0o640)).unwrap();
    let link = ground.path("link");
    symlink(&filter, &link).unwrap();
    let through = link.display().to_string();
    let asked = lines("other", 100);
    ground.feed(&["filter", "build", "-o", &through], asked.as_bytes()).succeeds();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "the link is still one");
    assert_eq!(fs::metadata(&filter).unwrap().permissions().mode() & 0o777, 0o640);
    ground.feed(&["filter", "check", &filter], asked.as_bytes()).writes(&asked);
}

#[test]
fn no_build_replaces_what_it_reads() {
    let ground = Ground::new();
    let log = ground.path("log");
    fs::write(&log, lines("in", 100)).unwrap();
    let name = log.display().to_string();
    let refused = ground.bare(&["filter", "build", "-o", &name, &name]);
    refused.fails(2, &["is read and would be replaced"]);
    assert_eq!(fs::read_to_string(&log).unwrap(), lines("in", 100));
}

#[cfg(unix)]
#[test]
fn a_filter_into_a_pipe_is_the_filter_alone() {
    let ground = Ground::new();
    let seed = "--seed=000102030405060708090a0b0c0d0e0f";
    let file = fs::read(build(&ground, &[seed], &lines("in", 100))).unwrap();
    let asked = lines("in", 100);
    let piped =
        ground.feed(&["filter", "build", seed, "-o", "/dev/stdout"], asked.as_bytes()).succeeds();
    assert_eq!(piped.stdout, file);
    assert!(piped.stderr.contains("100 lines"), "{}", piped.stderr);
}

#[test]
fn hashes_of_32_bits_do_not_promise_more() {
    let ground = Ground::new();
    for kind in ["fuse", "ribbon"] {
        let flags = ["--hash=murmur3-32", "--kind", kind, "--fpp=0.0001", "--json"];
        let output = ground.path("filter").display().to_string();
        let build = [&["filter", "build", "-o", &output][..], &flags].concat();
        let facts = ground.feed(&build, lines("in", 200_000).as_bytes()).succeeds().json();
        // 200,000 / 2^32 comes on top.
        assert!(facts["designed_rate"].as_f64().unwrap() > 1e-4 / 2.0 + 4e-5, "{facts}");
    }
}

/// What was found was appended to what was still to be read, without an end.
#[test]
fn check_does_not_read_what_it_writes() {
    let ground = Ground::new();
    let filter = build(&ground, &[], &lines("in", 10));
    let (path, text) = (ground.path("lines"), lines("in", 5));
    fs::write(&path, &text).unwrap();
    let check = |flags: &[&str]| {
        let output = fs::OpenOptions::new().append(true).open(&path).unwrap();
        let mut command = ground.command();
        command.args(["filter", "check", &filter]).arg(&path).args(flags);
        command.stdout(output).output().unwrap()
    };
    let refused = check(&[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is the output as well"));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    assert!(check(&["-c"]).status.success());
    assert_eq!(fs::read_to_string(&path).unwrap(), text + "5\n");
}

/// Arguments that were swapped had a whole log read before its first bytes were looked at, and
/// `/dev/zero` had no end.
#[test]
fn what_is_no_filter_is_not_read_to_its_end() {
    let ground = Ground::new();
    let refuses = |name: &str| {
        ground.bare(&["filter", "inspect", name]).fails(2, &["neither a filter that"]);
    };
    refuses("/dev/zero");
    let path = ground.path("log");
    fs::write(&path, lines("GET /", 100)).unwrap();
    refuses(&path.display().to_string());
    // A hole of a terabyte.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    refuses(&path.display().to_string());
}

/// A file of a later release was called damaged, and its owner told to build it anew.
#[test]
fn a_filter_of_a_later_release_is_not_called_damaged() {
    let ground = Ground::new();
    let path = build(&ground, &[], &lines("in", 10));
    let mut file = fs::read(&path).unwrap();
    // The version of the filter in the file, and the checksum that belongs to it.
    file[HEADER_BYTES + 5] = 2;
    let seed: [u8; 16] = file[8..24].try_into().unwrap();
    let secret = HashSecret::from_seed(HashDomain::Other(1).seed(seed));
    let of_filter = hash_key(&secret, &file[HEADER_BYTES..]).rotate_left(1);
    let checksum = hash_key(&secret, &file[..32]) ^ of_filter;
    file[32..40].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, file).unwrap();
    ground.bare(&["filter", "inspect", &path]).fails(2, &["a newer umbel may read it"]);
}

#[test]
fn a_dash_is_no_name_for_a_filter() {
    let ground = Ground::new();
    ground.feed(&["filter", "build", "-o", "-"], b"in\n").fails(2, &["/dev/stdout"]);
}

#[test]
fn too_many_keys_for_any_filter_are_said_to_be_that() {
    let ground = Ground::new();
    let text = ground.bare(&["filter", "size", "--keys=1T", "--fpp=0.01"]).succeeds().text();
    assert!(!text.contains("but the lowest that these keys reach"), "{text}");
}
