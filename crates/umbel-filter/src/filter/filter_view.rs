//! A filter of any kind, asked where its encoded bytes lie.

use crate::ask::Ask;
use crate::blocked_256::Blocked256;
use crate::blocked_512::Blocked512;
use crate::counting::CountingView;
use crate::designed::designed_rate;
use crate::encoding::FilterError;
use crate::fuse::FuseView;
use crate::header::{FilterHeader, kind_of, parse};
use crate::kind::FilterKind;
use crate::layout::BlockView;
use crate::ribbon::RibbonView;
use crate::simd::Whole;
use crate::split_block::SplitBlock;
use crate::standard::{FarBloom, StandardView};

/// A filter of any kind in borrowed bytes.
///
/// Asking takes nothing but the 64-bit hash of a key; which hash it must be is
/// [`FilterView::hash_kind`], and with which seed it was made [`FilterView::seed_id`]. A hash that
/// was added is never answered with false, as long as it was made in the same way.
///
/// The bytes need not be aligned. Where they begin at a multiple of 64, a key of a blocked filter
/// takes one cache line, else up to two; [`crate::Filter`] keeps them so.
#[derive(Clone, Copy, Debug)]
pub struct FilterView<'a> {
    way: Way<'a>,
    view: View<'a>,
}

/// The shortest way to an answer.
#[derive(Clone, Copy, Debug)]
enum Way<'a> {
    /// One call through a pointer.
    Whole(Whole<'a>),
    /// No call at all.
    Far(FarBloom<'a>),
    /// A call, by the kind of view.
    View,
}

/// A view of each kind that can be asked.
#[derive(Clone, Copy, Debug)]
enum View<'a> {
    Maybe,
    Blocked512(BlockView<'a, Blocked512>),
    Blocked256(BlockView<'a, Blocked256>),
    Standard(StandardView<'a>),
    SplitBlock(BlockView<'a, SplitBlock>),
    Counting(CountingView<'a>),
    Fuse(FuseView<'a>),
    Ribbon(RibbonView<'a>),
}

/// Does the same with the view of every kind: the one list of them for asking.
macro_rules! of_every_kind {
    ($view:expr, $some:ident => $then:expr, $maybe:expr) => {
        match $view {
            View::Maybe => $maybe,
            View::Blocked512($some) => $then,
            View::Blocked256($some) => $then,
            View::Standard($some) => $then,
            View::SplitBlock($some) => $then,
            View::Counting($some) => $then,
            View::Fuse($some) => $then,
            View::Ribbon($some) => $then,
        }
    };
}

impl<'a> FilterView<'a> {
    /// A filter that answers "maybe" to every key.
    pub const MAYBE: FilterView<'static> = FilterView { way: Way::View, view: View::Maybe };

    /// Reads the header and checks everything that can be checked without the keys; takes no
    /// memory.
    ///
    /// No bytes at all, and a kind, a version, a hash or a way to probe that this version does not
    /// know, are a filter that answers "maybe" to every key: [`FilterView::kind`] is `None`.
    ///
    /// # Errors
    /// [`FilterError::Malformed`] where the bytes are damaged or no filter. To go on with
    /// [`FilterView::MAYBE`] is safe; to say nothing about it is not.
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
                return FuseView::parse(bytes).map(|view| FilterView::of(View::Fuse(view)));
            }
            FilterKind::Ribbon => {
                return RibbonView::parse(bytes).map(|view| FilterView::of(View::Ribbon(view)));
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
            FilterKind::Blocked512 => View::Blocked512(BlockView::new(header, payload)),
            FilterKind::Blocked256 => View::Blocked256(BlockView::new(header, payload)),
            FilterKind::Standard => View::Standard(StandardView::new(header, payload)?),
            FilterKind::SplitBlock => View::SplitBlock(BlockView::new(header, payload)),
            FilterKind::Counting => View::Counting(CountingView::new(header, payload)),
            FilterKind::BinaryFuse | FilterKind::Ribbon => View::Maybe,
        }))
    }

    fn of(view: View<'a>) -> FilterView<'a> {
        let whole = |whole: Option<Whole<'a>>| whole.map_or(Way::View, Way::Whole);
        let way = match &view {
            View::Blocked512(view) => whole(view.whole()),
            View::Blocked256(view) => whole(view.whole()),
            View::SplitBlock(view) => whole(view.whole()),
            View::Standard(view) => view.far().map_or(Way::Whole(view.whole()), Way::Far),
            View::Maybe | View::Counting(_) | View::Fuse(_) | View::Ribbon(_) => Way::View,
        };
        FilterView { way, view }
    }

    /// The same filter over `payload`, which must be the same bytes somewhere else, or none: then
    /// it is only good for being laid over bytes again.
    #[inline]
    pub(crate) fn over<'b>(&self, payload: &'b [u8]) -> FilterView<'b> {
        let way = match &self.way {
            Way::Whole(whole) => Way::Whole(whole.over(payload)),
            Way::Far(far) => Way::Far(far.over(payload)),
            Way::View => Way::View,
        };
        let view = match &self.view {
            View::Maybe => View::Maybe,
            View::Blocked512(view) => View::Blocked512(view.over(payload)),
            View::Blocked256(view) => View::Blocked256(view.over(payload)),
            View::Standard(view) => View::Standard(view.over(payload)),
            View::SplitBlock(view) => View::SplitBlock(view.over(payload)),
            View::Counting(view) => View::Counting(view.over(payload)),
            View::Fuse(view) => View::Fuse(view.over(payload)),
            View::Ribbon(view) => View::Ribbon(view.over(payload)),
        };
        FilterView { way, view }
    }

    /// As [`FilterView::contains`] of what [`FilterView::over`] gives.
    #[inline]
    pub(crate) fn contains_over(&self, payload: &[u8], hash: u64) -> bool {
        match &self.way {
            Way::Whole(whole) => whole.over(payload).contains(hash),
            Way::Far(far) => far.over(payload).contains(hash),
            Way::View => self.over(payload).contains_without(hash),
        }
    }

    /// Whether the key of `hash` may have been added: never false for one that was.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        match &self.way {
            Way::Whole(whole) => whole.contains(hash),
            Way::Far(far) => far.contains(hash),
            Way::View => self.contains_without(hash),
        }
    }

    /// The answer where there is no shorter way: a call, so that the shorter one stays short.
    #[inline(never)]
    fn contains_without(&self, hash: u64) -> bool {
        of_every_kind!(&self.view, view => Ask::contains(view, hash), true)
    }

    /// Asks for every hash at once: `found[n]` becomes the answer for `hashes[n]`. Faster than one
    /// by one, most of all where the filter is larger than the caches, for the misses overlap.
    ///
    /// The two should be of one length; where they are not, as many answers are given as there are
    /// both hashes and places, and what is left of `found` becomes true, "maybe".
    pub fn contains_batch(&self, hashes: &[u64], found: &mut [bool]) {
        let both = hashes.len().min(found.len());
        let (asked, rest) = found.split_at_mut(both);
        rest.fill(true);
        of_every_kind!(&self.view, view => view.contains_batch(&hashes[..both], asked), {
            asked.fill(true);
        });
    }

    /// The kind of filter; `None` where every key is answered with "maybe".
    pub fn kind(&self) -> Option<FilterKind> {
        self.header().map(|header| header.kind)
    }

    /// How many keys were added. Of a union at most as many, of an intersection as well.
    pub fn keys(&self) -> u64 {
        self.header().map_or(0, |header| header.keys)
    }

    /// How many bits each key sets; 0 where the kind has no such number.
    pub fn probes(&self) -> u32 {
        self.header().map_or(0, |header| header.probes.into())
    }

    /// How many units there are: lines of 512 bits, blocks of 256, bits or counters, as the kind
    /// has them; 0 where every key is answered with "maybe".
    pub fn units(&self) -> u64 {
        self.header().map_or(0, |header| header.units)
    }

    /// The number of the hash that keys must be asked with, as `docs/formats/filter.md` lists them;
    /// 0 where it does not matter.
    pub fn hash_kind(&self) -> u8 {
        self.header().map_or(0, |header| header.hash_kind)
    }

    /// Which of the store's seeds the hashes were made with; 0 where the builder was not told.
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
            Some((header, _)) => designed_rate(&header),
            None => of_every_kind!(&self.view, view => view.own_rate(), 1.0),
        }
    }

    /// How many different keys the bits that are set speak of: infinite where all are set. Reads
    /// the whole filter.
    pub fn estimated_keys(&self) -> f64 {
        of_every_kind!(&self.view, view => view.estimated_keys(), 0.0)
    }

    /// The share of absent keys that the bits that are set let through, whatever the header says of
    /// keys. Reads the whole filter.
    pub fn estimated_rate(&self) -> f64 {
        of_every_kind!(&self.view, view => view.estimated_rate(), 1.0)
    }

    /// What the filter says of itself; `None` where every key is answered with "maybe".
    fn header(&self) -> Option<FilterHeader> {
        of_every_kind!(&self.view, view => Some(view.header()), None)
    }

    /// Header and payload of the kinds that are joined and folded.
    pub(crate) fn parts(&self) -> Option<(FilterHeader, &[u8])> {
        let payload = of_every_kind!(&self.view, view => view.payload(), None);
        self.header().zip(payload)
    }
}
