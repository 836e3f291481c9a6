//! Prefix filters: any bytes are read and probed. Prefix rules of any name obey the laws of such
//! rules, and a filter made with a rule excludes none of its keys.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::{
    HashKind, KeyPrefix, ParsedPrefixFilter, PrefixExtractor, PrefixFilterBuilder,
    PrefixFilterView, PrefixHasher, check_laws,
};
use umbel_fuzz::structured_input::Parts;

/// Maximum number and length of keys; with more, checking the laws takes too long.
const MOST: usize = 40;

fuzz_target!(|input: &[u8]| {
    let hasher = PrefixHasher::new(HashKind::Keyed, [7; 16]).expect("it is always there");
    match input.split_first() {
        Some((b'?', rest)) => build(Parts::new(rest), hasher),
        _ => read(input, &hasher),
    }
});

/// Also probes with the filter's own prefix rule, if its name is that of a built-in rule.
fn read(input: &[u8], hasher: &PrefixHasher) {
    let ParsedPrefixFilter::Filter(view) = PrefixFilterView::parse(input) else {
        return;
    };
    assert!(input.ends_with(view.inner()) && !view.extractor_name().is_empty());
    for name in [view.extractor_name(), "fixed:3"] {
        let Ok(rule) = name.parse::<KeyPrefix>() else {
            continue;
        };
        for start in [&b""[..], b"a", b"a/b/c", &[0; 300], input] {
            let maybe = view.may_contain_start(&rule, hasher, start);
            let other = rule.name() != view.extractor_name();
            assert!(maybe || !other, "another rule got the answer no");
            assert!(maybe || rule.shared(start).is_some(), "nothing was shared");
            view.may_contain_key(&rule, hasher, start);
        }
    }
}

fn build(mut parts: Parts<'_>, hasher: PrefixHasher) {
    let name = String::from_utf8_lossy(parts.part());
    let Ok(rule) = name.parse::<KeyPrefix>() else {
        return;
    };
    assert_eq!(rule.name().parse::<KeyPrefix>().as_ref(), Ok(&rule), "a name is its own");
    let mut keys = Vec::new();
    while !parts.is_empty() && keys.len() < MOST {
        let key = parts.part();
        keys.push(&key[..key.len().min(MOST)]);
    }
    if let Err(broken) = check_laws(&rule, &keys) {
        panic!("{rule}: {broken}");
    }
    let mut builder = PrefixFilterBuilder::new(rule.clone(), hasher).expect("its name fits");
    keys.iter().for_each(|key| builder.add(key));
    let bytes = builder.finish(10, 1);
    let ParsedPrefixFilter::Filter(view) = PrefixFilterView::parse(&bytes) else {
        assert!(keys.iter().all(|key| rule.prefix(key).is_none()), "there should be a filter");
        return;
    };
    for key in keys {
        assert!(view.may_contain_key(&rule, &hasher, key));
        for end in 0..=key.len() {
            assert!(view.may_contain_start(&rule, &hasher, &key[..end]));
        }
    }
}
