//! `event_store.client`: messages that several services share.

use prost::bytes::Bytes;

use crate::generated::event_store::client as package;

pub use package::{
    AllStreamPosition, BadRequest, MaximumAppendSizeExceeded, StreamDeleted, StreamIdentifier,
    Uuid, WrongExpectedVersion,
};

/// Parts of [`Uuid`].
pub mod uuid {
    pub use super::package::uuid::{Structured, Value};

    impl From<u128> for Structured {
        fn from(bits: u128) -> Structured {
            Structured {
                most_significant_bits: (bits >> 64) as i64,
                least_significant_bits: bits as i64,
            }
        }
    }

    impl From<Structured> for u128 {
        fn from(halves: Structured) -> u128 {
            let most = u128::from(halves.most_significant_bits as u64);
            most << 64 | u128::from(halves.least_significant_bits as u64)
        }
    }
}

/// Parts of [`WrongExpectedVersion`].
pub mod wrong_expected_version {
    pub use super::package::wrong_expected_version::{
        CurrentStreamRevisionOption as Current, ExpectedStreamPositionOption as Expected,
    };
}

impl From<&str> for StreamIdentifier {
    fn from(name: &str) -> StreamIdentifier {
        StreamIdentifier { stream_name: Bytes::copy_from_slice(name.as_bytes()) }
    }
}
