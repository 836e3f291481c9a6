//! Options of an existence filter.

use umbel_base::{Error, Result};

use crate::layout::cache_line::LINE_BYTES;
use crate::layout::filter_page::PAGE_BYTES;
use crate::layout::filter_sizing::{FilterDimensions, LINES_MAX};

/// Size of a filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ExistenceSize {
    /// No filter: every answer is "maybe", no file is written, and files of an earlier filter are
    /// removed.
    #[default]
    Off,
    /// A fixed number of bytes, rounded down to whole pages, in memory and on disk. The filter is
    /// designed for eight bits a key. With more keys the false-positive rate is higher, but there
    /// are no false negatives.
    Fixed {
        /// 4,096 to 2^40.
        bytes: u64,
    },
    /// A filter made for `first_keys` keys at first, which doubles its size each time it is full. A
    /// full filter has ten bits a key.
    Growing {
        /// At least 1.
        first_keys: u64,
    },
}

/// Options of an existence filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExistenceOptions {
    /// Size of the filter. If the filter on disk has another size, it is rebuilt from the source.
    /// Meanwhile the old filter answers.
    pub size: ExistenceSize,
    /// Identifier of the hash: a number that changes whenever the hash function or its secret
    /// changes. A filter on disk with another identifier is rebuilt.
    pub hash: u64,
    /// Id of the store. A filter on disk of another store is rebuilt.
    pub store: u64,
    /// A filter on disk that covers less than this position is rebuilt, because the user's log no
    /// longer has the missing keys.
    pub covered_min: u64,
    /// A filter on disk that covers more than this position is rebuilt: it belongs to another log,
    /// or the log lost its end.
    pub covered_max: u64,
    /// Largest number of bytes that one [`step`](crate::ExistenceFilter::step) reads or writes,
    /// 4,096 to 2^30. A step takes at most a 64th as many hashes from the source.
    pub step_bytes: usize,
}

impl Default for ExistenceOptions {
    fn default() -> ExistenceOptions {
        ExistenceOptions {
            size: ExistenceSize::Growing { first_keys: 1 << 20 },
            hash: 0,
            store: 0,
            covered_min: 0,
            covered_max: u64::MAX,
            step_bytes: 4 << 20,
        }
    }
}

impl ExistenceOptions {
    /// The size of a new filter. `None` if the filter is off.
    pub(crate) fn dimensions(&self) -> Option<FilterDimensions> {
        match self.size {
            ExistenceSize::Off => None,
            ExistenceSize::Fixed { bytes } => Some(FilterDimensions::fixed(bytes)),
            ExistenceSize::Growing { first_keys } => Some(FilterDimensions::growing(first_keys)),
        }
    }

    /// Whether the filter grows.
    pub(crate) fn grows(&self) -> bool {
        matches!(self.size, ExistenceSize::Growing { .. })
    }

    /// Pages that a step reads or writes.
    pub(crate) fn step_pages(&self) -> u64 {
        (self.step_bytes / PAGE_BYTES) as u64
    }

    /// Hashes that a step takes from the source.
    pub(crate) fn step_hashes(&self) -> usize {
        self.step_bytes / LINE_BYTES
    }

    /// Returns the reason to reject a filter on disk that covers `position`, if any.
    pub(crate) fn rejection_reason(&self, position: u64) -> Option<String> {
        let (least, most) = (self.covered_min, self.covered_max);
        let fits = (least..=most).contains(&position);
        (!fits).then(|| {
            format!("it covers the log up to {position}, which is not between {least} and {most}")
        })
    }

    /// Checks that all options are in their ranges.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the option and its permitted values.
    pub fn check(&self) -> Result<()> {
        let bytes_max = LINES_MAX * LINE_BYTES as u64;
        let problem = match self.size {
            ExistenceSize::Fixed { bytes } if !(PAGE_BYTES as u64..=bytes_max).contains(&bytes) => {
                format!(
                    "the existence filter's size is {bytes} bytes, but must be {PAGE_BYTES} to \
                     {bytes_max}; ExistenceSize::Off turns the filter off"
                )
            }
            ExistenceSize::Growing { first_keys: 0 } => {
                "the existence filter's first size is for 0 keys, but must be for 1 at least; \
                 ExistenceSize::Off turns the filter off"
                    .to_owned()
            }
            ExistenceSize::Growing { first_keys }
                if FilterDimensions::growing(first_keys).bytes() >= bytes_max =>
            {
                format!(
                    "the existence filter's first size is for {first_keys} keys, which need more \
                     than {bytes_max} bytes; choose fewer keys"
                )
            }
            _ if !(PAGE_BYTES..=1 << 30).contains(&self.step_bytes) => {
                format!("step_bytes is {}, but must be {PAGE_BYTES} to 2^30", self.step_bytes)
            }
            _ => return Ok(()),
        };
        Err(Error::invalid(problem))
    }
}
