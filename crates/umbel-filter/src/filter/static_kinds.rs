//! The kinds that are built once from all their keys, asked as the others are.

use crate::ask::Ask;
use crate::fuse::FuseView;
use crate::header::FilterHeader;
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

            fn header(&self) -> FilterHeader {
                FilterHeader {
                    kind: FilterKind::$kind,
                    hash_kind: self.hash_kind(),
                    probes: 0,
                    keys: self.keys(),
                    units: self.slots(),
                    seed_id: self.seed_id(),
                    detail: 0,
                }
            }

            fn own_rate(&self) -> f64 {
                $view::designed_rate(self)
            }
        }
    };
}

ask_static!(FuseView, BinaryFuse);
ask_static!(RibbonView, Ribbon);
