//! Rules that cut prefixes: the prefixes, the names, the laws and rules that break them.

use proptest::prelude::*;
use umbel_filter::{
    KeyPrefix, MAX_EXTRACTOR_NAME_BYTES, PrefixExtractor, PrefixFilterBuilder, PrefixHasher,
    PrefixRuleError, check_laws,
};

fn rule(name: &str) -> KeyPrefix {
    name.parse().expect(name)
}

/// A rule's name, a key, its prefix, and the common prefix of all keys that begin with the key.
type Cut = (&'static str, &'static [u8], Option<&'static [u8]>, Option<&'static [u8]>);

#[test]
fn rules_cut_as_named() {
    let cases: [Cut; 16] = [
        ("fixed:3", b"abcd", Some(b"abc"), Some(b"abc")),
        ("fixed:3", b"abc", Some(b"abc"), Some(b"abc")),
        ("fixed:3", b"ab", None, None),
        ("fixed:1", b"", None, None),
        ("capped:3", b"abcd", Some(b"abc"), Some(b"abc")),
        ("capped:3", b"abc", Some(b"abc"), Some(b"abc")),
        ("capped:3", b"ab", Some(b"ab"), None),
        ("capped:3", b"", Some(b""), None),
        ("until:-", b"a-b-c", Some(b"a-"), Some(b"a-")),
        ("until:-", b"-", Some(b"-"), Some(b"-")),
        ("until:-", b"abc", None, None),
        ("until:/:2", b"a/b/c", Some(b"a/b/"), Some(b"a/b/")),
        ("until:/:2", b"//", Some(b"//"), Some(b"//")),
        ("until:/:2", b"a/b", None, None),
        ("until:0x00", b"a\0b", Some(b"a\0"), Some(b"a\0")),
        ("until:::3", b"a:b:c:d", Some(b"a:b:c:"), Some(b"a:b:c:")),
    ];
    for (name, key, prefix, shared) in cases {
        let rule = rule(name);
        assert_eq!(rule.prefix(key), prefix, "{name} of {key:?}");
        assert_eq!(rule.shared(key), shared, "{name} shared by {key:?}");
    }
}

/// FORMAT: filters contain these names.
#[test]
fn rule_names_round_trip() {
    for name in [
        "fixed:1",
        "fixed:65536",
        "capped:8",
        "until:-",
        "until:/:2",
        "until::",
        "until:::7",
        "until:0",
        "until:0:3",
        "until:0x00",
        "until:0xff:9",
        "until:0x20",
    ] {
        assert_eq!((rule(name).name(), rule(name).to_string().as_str()), (name, name));
    }
    for (other, name) in
        [("until:0x2F", "until:/"), ("until:/:1", "until:/"), ("fixed:007", "fixed:7")]
    {
        assert_eq!(rule(other).name(), name);
    }
    assert_eq!(KeyPrefix::until(b'/', 2), Ok(rule("until:/:2")));
    assert_eq!(KeyPrefix::fixed(8), Ok(rule("fixed:8")));
    assert_eq!(KeyPrefix::capped(8), Ok(rule("capped:8")));
    for wrong in [
        "",
        "fixed",
        "fixed:",
        "fixed:+1",
        "fixed:-1",
        "fixed: 1",
        "fixed:1:2",
        "capped:x",
        "none",
        "until:",
        "until: ",
        "until:/2",
        "until:/:",
        "until:/:a",
        "until:é",
        "until:0x1",
        "Fixed:1",
        "fixed:99999999999999999999999",
    ] {
        let error = wrong.parse::<KeyPrefix>().expect_err(wrong);
        assert_eq!(error, PrefixRuleError::Unknown { name: wrong.to_string() });
        assert!(error.to_string().contains("fixed:N, capped:N, until:C"), "{error}");
    }
    for number in [0, 65_537, usize::MAX] {
        let error = PrefixRuleError::NotInRange { number };
        assert_eq!(KeyPrefix::fixed(number), Err(error.clone()));
        assert_eq!(KeyPrefix::capped(number), Err(error.clone()));
        assert_eq!(KeyPrefix::until(b'-', number), Err(error.clone()));
        assert_eq!(format!("until:-:{number}").parse::<KeyPrefix>(), Err(error.clone()));
        assert!(error.to_string().contains("1 to 65536"));
    }
}

fn some_rule() -> impl Strategy<Value = KeyPrefix> {
    let separator = prop_oneof![Just(b'/'), Just(b':'), Just(b'0'), any::<u8>()];
    prop_oneof![
        (1usize..12).prop_map(KeyPrefix::fixed),
        (1usize..12).prop_map(KeyPrefix::capped),
        (separator, 1usize..4).prop_map(|(byte, number)| KeyPrefix::until(byte, number)),
    ]
    .prop_map(|rule| rule.expect("the numbers are in range"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn built_in_rules_keep_the_laws(
        rule in some_rule(),
        // Few letters, so that keys begin alike.
        keys in proptest::collection::vec("[ab/:0]{0,14}", 0..40),
    ) {
        let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        prop_assert_eq!(check_laws(&rule, &keys), Ok(()));
        let again: KeyPrefix = rule.name().parse().expect("it is its own name");
        prop_assert_eq!(again, rule);
    }
}

/// A rule made of functions, to break laws with.
struct Made {
    name: String,
    prefix: fn(&[u8]) -> Option<&[u8]>,
    shared: fn(&[u8]) -> Option<&[u8]>,
}

impl PrefixExtractor for Made {
    fn name(&self) -> &str {
        &self.name
    }

    fn prefix<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        (self.prefix)(key)
    }

    fn shared<'k>(&self, start: &'k [u8]) -> Option<&'k [u8]> {
        (self.shared)(start)
    }
}

fn first_three(key: &[u8]) -> Option<&[u8]> {
    Some(&key[..key.len().min(3)])
}

#[test]
fn every_broken_law_is_detected() {
    let keys: [&[u8]; 7] = [b"", b"a", b"ab", b"abc", b"abd", b"b", b"ba"];
    let made = |prefix, shared| Made { name: "made".to_string(), prefix, shared };
    let law = |made: &Made| check_laws(made, &keys).expect_err("a law is broken").law;
    // The end of a key is no beginning.
    assert_eq!(law(&made(|key| key.last_chunk::<1>().map(|byte| &byte[..]), |_| None)), 1);
    assert_eq!(law(&made(|_| Some(b"x"), |_| None)), 1);
    // Keys of even length have the empty prefix, the others between them none.
    let even = |key: &[u8]| if key.len().is_multiple_of(2) { Some(&b""[..]) } else { None };
    assert_eq!(law(&made(even, |_| None)), 2);
    // RocksDB's capped prefix would break the law: `ab` begins keys of other prefixes.
    let promises = made(first_three, first_three);
    let broken = check_laws(&promises, &keys).expect_err("a law is broken");
    assert_eq!(broken.law, 3);
    assert!(broken.to_string().contains("law 3"), "{broken}");
    for bytes in [0, MAX_EXTRACTOR_NAME_BYTES + 1] {
        let named = Made { name: "n".repeat(bytes), prefix: |_| None, shared: |_| None };
        assert_eq!(law(&named), 4);
        let hasher = PrefixHasher::new(umbel_filter::HashKind::Keyed, [0; 16]);
        let error = PrefixFilterBuilder::new(named, hasher.expect("it is always there"))
            .err()
            .expect("the name does not fit");
        assert_eq!(error, PrefixRuleError::Name { bytes });
        assert!(error.to_string().contains("1 to 255"));
    }
    assert_eq!(check_laws(&made(|_| None, |_| None), &keys), Ok(()));
}
