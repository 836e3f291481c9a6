//! The kinds that are built once from all their keys, asked as the others are.

use crate::ask::Ask;
use crate::fuse::FuseView;
use crate::kind::FilterKind;
use crate::ribbon::RibbonView;

macro_rules! ask_static {
    ($view:ident, $kind:ident) => {
        impl Ask for $view<'_> {
            #[inline]
            fn contains(&self, hash: u64) -> bool {
                $view::contains(self, hash)
            }

            fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
                $view::contains_batch(self, hashes, found);
            }

            fn kind(&self) -> FilterKind {
                FilterKind::$kind
            }

            fn keys(&self) -> u64 {
                $view::keys(self)
            }

            fn units(&self) -> u64 {
                $view::slots(self)
            }

            fn hash_kind(&self) -> u8 {
                $view::hash_kind(self)
            }

            fn seed_id(&self) -> u32 {
                $view::seed_id(self)
            }

            fn probes(&self) -> u32 {
                0
            }

            fn own_rate(&self) -> f64 {
                $view::designed_rate(self)
            }
        }
    };
}

ask_static!(FuseView, BinaryFuse);
ask_static!(RibbonView, Ribbon);
