//! A filter of any kind over encoded bytes, which are not copied.

use crate::bloom_variants::block_layout::BlockedFilterView;
use crate::bloom_variants::blocked_256::Blocked256;
use crate::bloom_variants::blocked_512::Blocked512;
use crate::bloom_variants::counting::CountingView;
use crate::bloom_variants::kind_view_trait::KindView;
use crate::bloom_variants::split_block::SplitBlock;
use crate::bloom_variants::standard::{StandardView, UncachedBloom};
use crate::bloom_variants::theoretical_rate::theoretical_rate;
use crate::format::bloom_header::FilterError;
use crate::format::filter_header::{FilterHeader, kind_of, parse};
use crate::format::filter_kind::FilterKind;
use crate::fuse::FuseView;
use crate::ribbon::RibbonView;
use crate::simd::VectorizedFilter;

/// A filter of any kind in borrowed bytes.
///
/// A probe takes only the 64-bit hash of a key. [`FilterView::hash_kind`] names the hash function,
/// and [`FilterView::seed_id`] its seed. If caller and builder use the same function and seed, the
/// answer for an added key is always true.
///
/// The bytes need not be aligned. If they begin at a multiple of 64, a probe of a blocked filter
/// reads one cache line, else up to two; [`crate::Filter`] aligns its bytes.
#[derive(Clone, Copy, Debug)]
pub struct FilterView<'a> {
    fast_path: FastPath<'a>,
    view: AnyKindView<'a>,
}

/// The fastest code that probes a filter.
#[derive(Clone, Copy, Debug)]
enum FastPath<'a> {
    /// A call through a pointer to a vector function.
    Vectorized(VectorizedFilter<'a>),
    /// Inlined code for an uncached filter.
    Uncached(UncachedBloom<'a>),
    /// A call that distinguishes the kind of view.
    ByKind,
}

/// A view of each kind that can be probed.
#[derive(Clone, Copy, Debug)]
enum AnyKindView<'a> {
    Maybe,
    Blocked512(BlockedFilterView<'a, Blocked512>),
    Blocked256(BlockedFilterView<'a, Blocked256>),
    Standard(StandardView<'a>),
    SplitBlock(BlockedFilterView<'a, SplitBlock>),
    Counting(CountingView<'a>),
    Fuse(FuseView<'a>),
    Ribbon(RibbonView<'a>),
}

/// Runs the same code for the view of any kind: the only list of kinds for probing.
macro_rules! of_every_kind {
    ($view:expr, $some:ident => $then:expr, $maybe:expr) => {
        match $view {
            AnyKindView::Maybe => $maybe,
            AnyKindView::Blocked512($some) => $then,
            AnyKindView::Blocked256($some) => $then,
            AnyKindView::Standard($some) => $then,
            AnyKindView::SplitBlock($some) => $then,
            AnyKindView::Counting($some) => $then,
            AnyKindView::Fuse($some) => $then,
            AnyKindView::Ribbon($some) => $then,
        }
    };
}

impl<'a> FilterView<'a> {
    /// A filter that answers "maybe" to every key.
    pub const MAYBE: FilterView<'static> =
        FilterView { fast_path: FastPath::ByKind, view: AnyKindView::Maybe };

    /// Reads the header, and checks all that can be checked without the keys. Allocates no memory.
    ///
    /// Empty bytes are a filter that answers "maybe" to every key: [`FilterView::kind`] is `None`.
    /// A filter of a kind, version, hash or probing that this build does not know also answers
    /// "maybe" to every key.
    ///
    /// # Errors
    /// [`FilterError::Malformed`] if the bytes are damaged or not a filter. A caller can safely
    /// continue with [`FilterView::MAYBE`], but should report the damage.
    pub fn parse(bytes: &'a [u8]) -> Result<FilterView<'a>, FilterError> {
        match FilterView::parse_known(bytes) {
            Err(error) if error.means_maybe() => Ok(FilterView::MAYBE),
            other => other,
        }
    }

    /// Parses as [`FilterView::parse`] does, but fails if the filter would answer "maybe" to every
    /// key.
    ///
    /// # Errors
    /// Besides [`FilterError::Malformed`]: [`FilterError::Empty`] and [`FilterError::Unknown`].
    pub fn parse_known(bytes: &'a [u8]) -> Result<FilterView<'a>, FilterError> {
        // Kinds with headers of their own are read here.
        match kind_of(bytes)? {
            FilterKind::BinaryFuse => {
                return FuseView::parse(bytes).map(|view| FilterView::of(AnyKindView::Fuse(view)));
            }
            FilterKind::Ribbon => {
                return RibbonView::parse(bytes)
                    .map(|view| FilterView::of(AnyKindView::Ribbon(view)));
            }
            _ => {}
        }
        let (header, payload) = parse(bytes)?;
        FilterView::from_parts(header, payload)
    }

    /// REQUIRES: the payload has the length in the header.
    pub(crate) fn from_parts(
        header: FilterHeader,
        payload: &'a [u8],
    ) -> Result<FilterView<'a>, FilterError> {
        Ok(FilterView::of(match header.kind {
            FilterKind::Blocked512 => {
                AnyKindView::Blocked512(BlockedFilterView::new(header, payload))
            }
            FilterKind::Blocked256 => {
                AnyKindView::Blocked256(BlockedFilterView::new(header, payload))
            }
            FilterKind::Standard => AnyKindView::Standard(StandardView::new(header, payload)?),
            FilterKind::SplitBlock => {
                AnyKindView::SplitBlock(BlockedFilterView::new(header, payload))
            }
            FilterKind::Counting => AnyKindView::Counting(CountingView::new(header, payload)),
            FilterKind::BinaryFuse | FilterKind::Ribbon => AnyKindView::Maybe,
        }))
    }

    fn of(view: AnyKindView<'a>) -> FilterView<'a> {
        let whole = |whole: Option<VectorizedFilter<'a>>| {
            whole.map_or(FastPath::ByKind, FastPath::Vectorized)
        };
        let way = match &view {
            AnyKindView::Blocked512(view) => whole(view.whole()),
            AnyKindView::Blocked256(view) => whole(view.whole()),
            AnyKindView::SplitBlock(view) => whole(view.whole()),
            AnyKindView::Standard(view) => {
                view.uncached().map_or(FastPath::Vectorized(view.vectorized()), FastPath::Uncached)
            }
            AnyKindView::Maybe
            | AnyKindView::Counting(_)
            | AnyKindView::Fuse(_)
            | AnyKindView::Ribbon(_) => FastPath::ByKind,
        };
        FilterView { fast_path: way, view }
    }

    /// Returns the same filter over `payload`. `payload` must be the same bytes at another address,
    /// or empty; an empty view must get its bytes by another call before it is probed.
    #[inline]
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> FilterView<'b> {
        let way = match &self.fast_path {
            FastPath::Vectorized(whole) => FastPath::Vectorized(whole.over(payload)),
            FastPath::Uncached(far) => FastPath::Uncached(far.over(payload)),
            FastPath::ByKind => FastPath::ByKind,
        };
        let view = match &self.view {
            AnyKindView::Maybe => AnyKindView::Maybe,
            AnyKindView::Blocked512(view) => AnyKindView::Blocked512(view.over(payload)),
            AnyKindView::Blocked256(view) => AnyKindView::Blocked256(view.over(payload)),
            AnyKindView::Standard(view) => AnyKindView::Standard(view.over(payload)),
            AnyKindView::SplitBlock(view) => AnyKindView::SplitBlock(view.over(payload)),
            AnyKindView::Counting(view) => AnyKindView::Counting(view.over(payload)),
            AnyKindView::Fuse(view) => AnyKindView::Fuse(view.over(payload)),
            AnyKindView::Ribbon(view) => AnyKindView::Ribbon(view.over(payload)),
        };
        FilterView { fast_path: way, view }
    }

    /// Calls [`FilterView::contains`] of the result of [`FilterView::over`].
    #[inline]
    pub(crate) fn contains_over(&self, payload: &[u8], hash: u64) -> bool {
        match &self.fast_path {
            FastPath::Vectorized(whole) => whole.over(payload).contains(hash),
            FastPath::Uncached(far) => far.over(payload).contains(hash),
            FastPath::ByKind => self.over(payload).contains_by_kind(hash),
        }
    }

    /// Whether the key of `hash` may have been added; never false for an added key.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        match &self.fast_path {
            FastPath::Vectorized(whole) => whole.contains(hash),
            FastPath::Uncached(far) => far.contains(hash),
            FastPath::ByKind => self.contains_by_kind(hash),
        }
    }

    /// Probes by kind, for filters without faster code. A separate function, so that the inlined
    /// fast code stays short.
    #[inline(never)]
    fn contains_by_kind(&self, hash: u64) -> bool {
        of_every_kind!(&self.view, view => KindView::contains(view, hash), true)
    }

    /// Probes all hashes together: `found[n]` becomes the answer for `hashes[n]`. Faster than
    /// single probes, most of all if the filter is larger than the caches, because cache misses
    /// overlap.
    ///
    /// Both slices should have the same length. Otherwise the shorter slice determines the number
    /// of probes, and all further elements of `found` become true ("maybe").
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let both = hashes.len().min(found.len());
        let (probed, rest) = found.split_at_mut(both);
        rest.fill(true);
        of_every_kind!(&self.view, view => view.contains_batch(&hashes[..both], probed), {
            probed.fill(true);
        });
    }

    /// The kind of filter; `None` if the filter answers "maybe" to every key.
    pub fn kind(&self) -> Option<FilterKind> {
        self.header().map(|header| header.kind)
    }

    /// Number of keys added; an upper bound for a union or an intersection.
    pub fn keys(&self) -> u64 {
        self.header().map_or(0, |header| header.keys)
    }

    /// Number of bits that each key sets; 0 for kinds without such a number.
    pub fn probes(&self) -> u32 {
        self.header().map_or(0, |header| header.probes.into())
    }

    /// Number of units: lines of 512 bits, blocks of 256, bits or counters, depending on the kind;
    /// 0 if the filter answers "maybe" to every key.
    pub fn units(&self) -> u64 {
        self.header().map_or(0, |header| header.units)
    }

    /// The number of the hash by which keys must be probed, as listed in `docs/formats/filter.md`;
    /// 0 if the filter answers "maybe" to every key.
    pub fn hash_kind(&self) -> u8 {
        self.header().map_or(0, |header| header.hash_kind)
    }

    /// Id of the store's seed of the hashes; 0 if the builder got no id.
    pub fn seed_id(&self) -> u32 {
        self.header().map_or(0, |header| header.seed_id)
    }

    /// Theoretical false-positive rate for the filter's number of keys; 1.0 if the filter answers
    /// "maybe" to every key. Takes microseconds, up to a millisecond for a few dozen keys.
    ///
    /// For LevelDB's probing the result is a lower bound, see [`crate::Probing::LevelDb`].
    pub fn designed_rate(&self) -> f64 {
        match self.parts() {
            Some((header, _)) => theoretical_rate(&header),
            None => of_every_kind!(&self.view, view => view.theoretical_rate(), 1.0),
        }
    }

    /// Number of distinct keys, estimated from the set bits; infinite if all bits are set. Reads
    /// the whole filter.
    pub fn estimated_keys(&self) -> f64 {
        of_every_kind!(&self.view, view => view.estimated_keys(), 0.0)
    }

    /// False-positive rate computed from the set bits, not from the header's number of keys. Reads
    /// the whole filter.
    pub fn estimated_rate(&self) -> f64 {
        of_every_kind!(&self.view, view => view.estimated_rate(), 1.0)
    }

    /// Header of the filter; `None` if the filter answers "maybe" to every key.
    fn header(&self) -> Option<FilterHeader> {
        of_every_kind!(&self.view, view => Some(view.header()), None)
    }

    /// Header and payload, for kinds that can be joined and folded.
    pub(crate) fn parts(&self) -> Option<(FilterHeader, &[u8])> {
        let payload = of_every_kind!(&self.view, view => view.payload(), None);
        self.header().zip(payload)
    }
}
