//! What a filter is opened with.

use umbel_base::{Error, Result};

use crate::line::LINE_BYTES;
use crate::page::PAGE_BYTES;
use crate::shape::{LINES_MAX, Shape};

/// How large a filter is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Size {
    /// No filter: every answer is "maybe", nothing is written, files of an earlier one go.
    #[default]
    Off,
    /// As many bytes as said, rounded down to whole pages, in memory and on disk. Made for eight
    /// bits a key; with more keys it is wrong more often and never wrong about what was inserted.
    Fixed {
        /// 4,096 to 2^40.
        bytes: u64,
    },
    /// Made for so many keys at first, and as large again each time it is full. Ten bits a key when
    /// it is full.
    Growing {
        /// At least 1.
        first_keys: u64,
    },
}

/// What a filter is opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExistenceOptions {
    /// How large it is. A filter of another size than the one on disk is made anew from the source,
    /// while the old one answers.
    pub size: Size,
    /// What the hashes are made with: a number that changes whenever the hash function or its
    /// secret does. A filter made with another one is made anew.
    pub hash: u64,
    /// Whose filter it is. One of another store is made anew.
    pub store: u64,
    /// A filter on disk that covers less than this position is made anew: the user's log does not
    /// reach back far enough to insert what it lacks.
    pub covered_min: u64,
    /// A filter on disk that covers more than this position is made anew: it is of another log, or
    /// of one that lost its end.
    pub covered_max: u64,
    /// How many bytes one [`step`](crate::ExistenceFilter::step) reads or writes at most, and 64
    /// times how many hashes it takes from the source. 4,096 to 2^30.
    pub step_bytes: usize,
}

impl Default for ExistenceOptions {
    fn default() -> ExistenceOptions {
        ExistenceOptions {
            size: Size::Growing { first_keys: 1 << 20 },
            hash: 0,
            store: 0,
            covered_min: 0,
            covered_max: u64::MAX,
            step_bytes: 4 << 20,
        }
    }
}

impl ExistenceOptions {
    /// The size of an empty filter. `None`: there is none.
    pub(crate) fn shape(&self) -> Option<Shape> {
        match self.size {
            Size::Off => None,
            Size::Fixed { bytes } => Some(Shape::fixed(bytes)),
            Size::Growing { first_keys } => Some(Shape::growing(first_keys)),
        }
    }

    /// Whether it grows.
    pub(crate) fn grows(&self) -> bool {
        matches!(self.size, Size::Growing { .. })
    }

    /// Pages that a step reads or writes.
    pub(crate) fn step_pages(&self) -> u64 {
        (self.step_bytes / PAGE_BYTES) as u64
    }

    /// Hashes that a step takes from the source.
    pub(crate) fn step_hashes(&self) -> usize {
        self.step_bytes / LINE_BYTES
    }

    /// Why a filter on disk that covers `position` is not to be believed.
    pub(crate) fn refusal(&self, position: u64) -> Option<String> {
        let (least, most) = (self.covered_min, self.covered_max);
        let fits = (least..=most).contains(&position);
        (!fits).then(|| {
            format!(
                "it covers the log up to {position}, and not up to somewhere in {least}..={most}"
            )
        })
    }

    /// Whether the numbers are in their ranges.
    ///
    /// # Errors
    /// [`Error::Invalid`] says which one is not, and what it may be.
    pub fn check(&self) -> Result<()> {
        let most = LINES_MAX * LINE_BYTES as u64;
        let problem = match self.size {
            Size::Fixed { bytes } if !(PAGE_BYTES as u64..=most).contains(&bytes) => format!(
                "the filter's size is {bytes} bytes, but must be {PAGE_BYTES} to {most}; \
                 Size::Off turns it off"
            ),
            Size::Growing { first_keys: 0 } => {
                "the filter is made for 0 keys at first, but must be for 1 at least; Size::Off \
                 turns it off"
                    .to_owned()
            }
            Size::Growing { first_keys } if Shape::growing(first_keys).bytes() >= most => {
                format!("the filter is made for {first_keys} keys at first, which are too many")
            }
            _ if !(PAGE_BYTES..=1 << 30).contains(&self.step_bytes) => {
                format!("step_bytes is {}, but must be {PAGE_BYTES} to 2^30", self.step_bytes)
            }
            _ => return Ok(()),
        };
        Err(Error::invalid(problem))
    }
}
