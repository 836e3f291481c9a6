//! Filters of `umbel-filter` other than the blocked Bloom filters.

use umbel_filter::{
    Filter, FilterBuilder, FilterKind, FilterOptions, FilterSize, FilterView, FuseBuilder,
    FuseView, RibbonBuilder, RibbonView, hash_key,
};
use umbel_lab::engine::Result;

use crate::filters::candidate_filter::HashFilter;
use crate::filters::umbel_blocked::{BITS_PER_KEY, SECRET};

/// False-positive rate that is requested of ribbon filters: the rate of a blocked filter with 10
/// bits for a key.
const RIBBON_RATE: f64 = 0.01;
/// Bits of a fuse filter's fingerprints.
const FUSE_BITS: u32 = 8;

fn build(kind: FilterKind, hashes: &[u64]) -> Result<Filter> {
    let size = FilterSize::BitsPerKey(BITS_PER_KEY as f64);
    let mut builder = FilterBuilder::new(FilterOptions { kind, size, ..FilterOptions::default() })?;
    hashes.iter().for_each(|hash| builder.add(*hash));
    Ok(Filter::decode(&builder.finish()?)?)
}

/// Implements a kind that `FilterBuilder` makes, owned.
macro_rules! of_builder {
    ($name:ident, $kind:ident, $text:literal) => {
        #[doc = $text]
        pub struct $name(Filter);

        impl HashFilter for $name {
            const NAME: &'static str = concat!("umbel-filter ", $text);
            const PACKAGE: &'static str = "umbel-filter";
            const HASH: &'static str = "keyed";

            type Probe<'a> = FilterView<'a>;

            fn build(hashes: &[u64]) -> Result<$name> {
                build(FilterKind::$kind, hashes).map($name)
            }

            fn bits(&self) -> Option<u64> {
                Some(self.0.bytes().len() as u64 * 8)
            }

            fn probe(&self) -> FilterView<'_> {
                self.0.view()
            }

            #[inline(always)]
            fn contains(probe: &FilterView<'_>, hash: u64) -> bool {
                probe.contains(hash)
            }

            fn batch(&self, hashes: &[u64], found: &mut [bool]) -> bool {
                self.0.view().contains_batch(hashes, found);
                true
            }

            #[inline(always)]
            fn hash(key: &[u8]) -> u64 {
                hash_key(&SECRET, key)
            }
        }
    };
}

of_builder!(Blocked512, Blocked512, "blocked 512");
of_builder!(Blocked256, Blocked256, "blocked 256");
of_builder!(Standard, Standard, "standard");
of_builder!(SplitBlock, SplitBlock, "split block");
of_builder!(Counting, Counting, "counting");

/// Implements a kind that has its own builder, and its own view over bytes.
macro_rules! of_bytes {
    ($name:ident, $view:ident, $text:literal, $build:expr) => {
        #[doc = $text]
        pub struct $name(Vec<u8>);

        impl HashFilter for $name {
            const NAME: &'static str = concat!("umbel-filter ", $text);
            const PACKAGE: &'static str = "umbel-filter";
            const HASH: &'static str = "keyed";

            type Probe<'a> = Option<$view<'a>>;

            fn build(hashes: &[u64]) -> Result<$name> {
                let build: fn(Vec<u64>) -> Result<Vec<u8>> = $build;
                build(hashes.to_vec()).map($name)
            }

            fn bits(&self) -> Option<u64> {
                Some(self.0.len() as u64 * 8)
            }

            fn probe(&self) -> Option<$view<'_>> {
                $view::parse(&self.0).ok()
            }

            #[inline(always)]
            fn contains(probe: &Option<$view<'_>>, hash: u64) -> bool {
                probe.as_ref().is_none_or(|view| view.contains(hash))
            }

            fn batch(&self, hashes: &[u64], found: &mut [bool]) -> bool {
                $view::parse(&self.0).map(|view| view.contains_batch(hashes, found)).is_ok()
            }

            #[inline(always)]
            fn hash(key: &[u8]) -> u64 {
                hash_key(&SECRET, key)
            }
        }
    };
}

of_bytes!(Fuse, FuseView, "fuse, 8 bits", |hashes| {
    let built = FuseBuilder::from_hashes(FUSE_BITS, hashes).finish();
    built.map_err(|_| "the fuse filter could not be built".into())
});
of_bytes!(Ribbon, RibbonView, "ribbon", |hashes| {
    Ok(RibbonBuilder::from_hashes(RIBBON_RATE, hashes).finish())
});
