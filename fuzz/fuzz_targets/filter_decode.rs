//! Filter blocks: the owned and the borrowed reader must agree on every input and every hash.
#![no_main]

use libfuzzer_sys::fuzz_target;
use umbel_filter::{Bloom, BloomView, Parsed};

const HASHES: [u64; 6] = [0, 1, u64::MAX, 1 << 63, 0x9e37_79b9_7f4a_7c15, 0x0123_4567_89ab_cdef];

fuzz_target!(|input: &[u8]| {
    let owned = Bloom::decode(input);
    match (BloomView::parse(input), owned) {
        (Parsed::Bloom(view), Ok(bloom)) => {
            for hash in HASHES {
                assert_eq!(view.may_contain(hash), bloom.may_contain(hash), "hash {hash:#x}");
            }
            assert_eq!(view.keys(), bloom.keys());
            assert_eq!(view.probes(), bloom.probes());
        }
        (Parsed::Bloom(_), Err(error)) => panic!("only the borrowed reader takes it: {error}"),
        (_, Ok(bloom)) => panic!("only the owned reader takes it: {} keys", bloom.keys()),
        (Parsed::Maybe | Parsed::Malformed(_), Err(_)) => {}
    }
});
