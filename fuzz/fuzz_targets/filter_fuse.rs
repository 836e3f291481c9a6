//! Fuse filters. The input's first byte says whether the remaining bytes are an encoded filter or
//! hashes for a build. A built filter must pass all of its hashes. Single and batch probes of a
//! parsed filter must give the same answers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::{FuseArity, FuseBuilder, FuseView};

const HASHES: [u64; 6] = [0, 1, u64::MAX, 1 << 63, 0x9e37_79b9_7f4a_7c15, 0x0123_4567_89ab_cdef];

fn check(bytes: &[u8], hashes: &[u64]) -> Option<Vec<bool>> {
    let view = FuseView::parse(bytes).ok()?;
    let mut found = vec![false; hashes.len()];
    view.contains_batch(hashes, &mut found);
    for (hash, found) in hashes.iter().zip(&found) {
        assert_eq!(view.contains(*hash), *found, "hash {hash:#x}");
    }
    assert!((0.0..=1.0).contains(&view.designed_rate()));
    Some(found)
}

fuzz_target!(|input: &[u8]| {
    let Some((&mode, rest)) = input.split_first() else { return };
    if mode == 0 {
        check(rest, &HASHES);
        return;
    }
    let (hashes, _) = rest.as_chunks::<8>();
    let hashes: Vec<u64> = hashes.iter().map(|hash| u64::from_le_bytes(*hash)).collect();
    let arity = if mode % 2 == 0 { FuseArity::Four } else { FuseArity::Three };
    let builder = FuseBuilder::from_hashes(u32::from(mode / 8), hashes.clone()).with_arity(arity);
    // Hashes that no seed takes apart may exist; they must come back.
    match builder.finish() {
        Ok(bytes) => {
            let found = check(&bytes, &hashes).expect("what was built is a filter");
            assert!(found.into_iter().all(|found| found), "a false negative");
        }
        Err(error) => assert!(error.into_hashes().len() <= hashes.len()),
    }
});
