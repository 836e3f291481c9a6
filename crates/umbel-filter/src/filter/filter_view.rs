//! A filter of any kind, probed where its encoded bytes lie.

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
/// and [`FilterView::seed_id`] its seed. An added hash is always answered with true, if the probe
/// uses the same function and seed.
///
/// The bytes need not be aligned. Where they begin at a multiple of 64, a key of a blocked filter
/// takes one cache line, else up to two; [`crate::Filter`] aligns them.
#[derive(Clone, Copy, Debug)]
pub struct FilterView<'a> {
    fast_path: FastPath<'a>,
    view: AnyKindView<'a>,
}

/// The shortest way to an answer.
#[derive(Clone, Copy, Debug)]
enum FastPath<'a> {
    /// One call through a pointer.
    Vectorized(VectorizedFilter<'a>),
    /// No call at all.
    Uncached(UncachedBloom<'a>),
    /// A call, by the kind of view.
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

/// Does the same with the view of every kind: the one list of them for probing.
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

    /// Reads the header and checks everything that can be checked without the keys; takes no
    /// memory.
    ///
    /// Empty bytes are a filter that answers "maybe" to every key: [`FilterView::kind`] is `None`.
    /// So is a kind, version, hash or probing that this version does not know.
    ///
    /// # Errors
    /// [`FilterError::Malformed`] where the bytes are damaged or not a filter. To continue with
    /// [`FilterView::MAYBE`] is safe, but report the damage.
    pub fn parse(bytes: &'a [u8]) -> Result<FilterView<'a>, FilterError> {
        match FilterView::parse_known(bytes) {
            Err(error) if error.means_maybe() => Ok(FilterView::MAYBE),
            other => other,
        }
    }

    /// As [`FilterView::parse`], with an error where every key would be answered with "maybe".
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

    /// REQUIRES: the payload has the length that the header says.
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

    /// The same filter over `payload`, which must be the same bytes at another address, or none:
    /// then it can only be laid over bytes again.
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

    /// As [`FilterView::contains`] of the result of [`FilterView::over`].
    #[inline]
    pub(crate) fn contains_over(&self, payload: &[u8], hash: u64) -> bool {
        match &self.fast_path {
            FastPath::Vectorized(whole) => whole.over(payload).contains(hash),
            FastPath::Uncached(far) => far.over(payload).contains(hash),
            FastPath::ByKind => self.over(payload).contains_by_kind(hash),
        }
    }

    /// Whether the key of `hash` may have been added: never false for one that was.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        match &self.fast_path {
            FastPath::Vectorized(whole) => whole.contains(hash),
            FastPath::Uncached(far) => far.contains(hash),
            FastPath::ByKind => self.contains_by_kind(hash),
        }
    }

    /// The answer where there is no shorter way: a call, so that the shorter one stays short.
    #[inline(never)]
    fn contains_by_kind(&self, hash: u64) -> bool {
        of_every_kind!(&self.view, view => KindView::contains(view, hash), true)
    }

    /// Probes every hash at once: `found[n]` becomes the answer for `hashes[n]`. Faster than one
    /// by one, most of all where the filter is larger than the caches, for the misses overlap.
    ///
    /// Both slices should have the same length. Otherwise the shorter one determines the number of
    /// answers, and the rest of `found` becomes true, "maybe".
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let both = hashes.len().min(found.len());
        let (probed, rest) = found.split_at_mut(both);
        rest.fill(true);
        of_every_kind!(&self.view, view => view.contains_batch(&hashes[..both], probed), {
            probed.fill(true);
        });
    }

    /// The kind of filter; `None` where every key is answered with "maybe".
    pub fn kind(&self) -> Option<FilterKind> {
        self.header().map(|header| header.kind)
    }

    /// Number of keys added. Of a union at most as many, of an intersection as well.
    pub fn keys(&self) -> u64 {
        self.header().map_or(0, |header| header.keys)
    }

    /// Number of bits each key sets; 0 where the kind has no such number.
    pub fn probes(&self) -> u32 {
        self.header().map_or(0, |header| header.probes.into())
    }

    /// Number of units: lines of 512 bits, blocks of 256, bits or counters, depending on the kind;
    /// 0 where every key is answered with "maybe".
    pub fn units(&self) -> u64 {
        self.header().map_or(0, |header| header.units)
    }

    /// The number of the hash that keys must be probed with, as `docs/formats/filter.md` lists
    /// them; 0 where it does not matter.
    pub fn hash_kind(&self) -> u8 {
        self.header().map_or(0, |header| header.hash_kind)
    }

    /// Id of the store's seed of the hashes; 0 where the builder got none.
    pub fn seed_id(&self) -> u32 {
        self.header().map_or(0, |header| header.seed_id)
    }

    /// The share of absent keys that theory lets through, from the number of keys. Takes
    /// microseconds, up to a millisecond for a few dozen keys. 1.0 where every key is answered with
    /// "maybe".
    ///
    /// For LevelDB's probing it is a lower bound, see [`crate::Probing::LevelDb`].
    pub fn designed_rate(&self) -> f64 {
        match self.parts() {
            Some((header, _)) => theoretical_rate(&header),
            None => of_every_kind!(&self.view, view => view.theoretical_rate(), 1.0),
        }
    }

    /// Number of distinct keys, estimated from the set bits: infinite where all are set. Reads
    /// the whole filter.
    pub fn estimated_keys(&self) -> f64 {
        of_every_kind!(&self.view, view => view.estimated_keys(), 0.0)
    }

    /// The share of absent keys that the bits that are set let through, whatever the header says of
    /// keys. Reads the whole filter.
    pub fn estimated_rate(&self) -> f64 {
        of_every_kind!(&self.view, view => view.estimated_rate(), 1.0)
    }

    /// Header of the filter; `None` where every key is answered with "maybe".
    fn header(&self) -> Option<FilterHeader> {
        of_every_kind!(&self.view, view => Some(view.header()), None)
    }

    /// Header and payload of the kinds that are joined and folded.
    pub(crate) fn parts(&self) -> Option<(FilterHeader, &[u8])> {
        let payload = of_every_kind!(&self.view, view => view.payload(), None);
        self.header().zip(payload)
    }
}
