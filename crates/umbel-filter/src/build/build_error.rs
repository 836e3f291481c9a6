//! Errors of building a filter.

use crate::format::filter_kind::FilterKind;
use std::fmt;

/// Error of building a filter: an invalid option, with the permitted values, or too little memory.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum BuildError {
    /// Bits per key that are not a number, not above 0, or above 1000.
    BitsPerKey {
        /// Requested value.
        given: f64,
    },
    /// A false-positive rate that is not between 0 and 1, both excluded.
    Rate {
        /// Requested value.
        given: f64,
    },
    /// A false-positive rate too low for 1000 bits per key or for the width of the hash.
    RateOutOfReach {
        /// Requested value.
        given: f64,
        /// Lowest rate that these keys can reach.
        lowest: f64,
    },
    /// A number of probes that the kind of filter does not allow.
    Probes {
        /// Requested value.
        given: u32,
        /// The kind of filter.
        kind: FilterKind,
        /// The fewest probes of the kind.
        least: u32,
        /// The most probes of the kind.
        most: u32,
    },
    /// An unknown number of a hash.
    HashKind {
        /// Requested value.
        given: u8,
    },
    /// A probing for a kind of filter with only one.
    Probing {
        /// The kind of filter.
        kind: FilterKind,
    },
    /// A kind of filter that another builder builds.
    Kind {
        /// The kind of filter.
        kind: FilterKind,
    },
    /// A number of probes for a kind of filter without probes.
    NoProbes {
        /// The kind of filter.
        kind: FilterKind,
    },
    /// More bits than a filter can have.
    TooLarge {
        /// Number of bits that the keys would need, saturated at the maximum.
        bits: u64,
    },
    /// Memory for the filter could not be allocated.
    NoMemory {
        /// Number of bytes that the allocation requested.
        bytes: u64,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::BitsPerKey { given } => {
                write!(formatter, "{given} bits per key, but must be above 0 and at most 1000")
            }
            BuildError::Rate { given } => write!(
                formatter,
                "a false positive rate of {given}, but must be above 0 and below 1"
            ),
            BuildError::RateOutOfReach { given, lowest } => write!(
                formatter,
                "a false positive rate of {given}, but the lowest that these keys reach is {lowest}"
            ),
            BuildError::Probes { given, kind, least, most } => {
                write!(formatter, "{given} probes, but a {kind} filter has {least} to {most}")
            }
            BuildError::HashKind { given } => {
                write!(formatter, "the hash number {given}, but must be 1 to 13")
            }
            BuildError::Probing { kind } => write!(
                formatter,
                "a {kind} filter has a fixed probing: only that of a standard filter can be chosen"
            ),
            BuildError::Kind { kind } => {
                write!(
                    formatter,
                    "a {kind} filter cannot be built here: it has a builder of its own"
                )
            }
            BuildError::NoProbes { kind } => {
                write!(formatter, "a {kind} filter has no number of probes: leave the option out")
            }
            BuildError::TooLarge { bits } => {
                write!(formatter, "the keys need {bits} bits, but a filter has at most 2^40")
            }
            BuildError::NoMemory { bytes } => {
                write!(formatter, "there is no memory for a filter of {bytes} bytes")
            }
        }
    }
}

impl std::error::Error for BuildError {}
