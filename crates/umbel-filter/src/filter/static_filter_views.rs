//! Views of static filters, with the common interface of all kinds.

use crate::bloom_variants::kind_view_trait::KindView;
use crate::format::filter_header::FilterHeader;
use crate::format::filter_kind::FilterKind;
use crate::fuse::FuseView;
use crate::ribbon::RibbonView;

macro_rules! static_view {
    ($view:ident, $kind:ident) => {
        impl KindView for $view<'_> {
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

            fn theoretical_rate(&self) -> f64 {
                $view::designed_rate(self)
            }
        }
    };
}

static_view!(FuseView, BinaryFuse);
static_view!(RibbonView, Ribbon);
