//! `event_store.client`: what several services share.

use prost::bytes::Bytes;

/// A universally unique identifier in one of two forms.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Uuid {
    /// Which form, with the value.
    #[prost(oneof = "uuid::Value", tags = "1, 2")]
    pub value: Option<uuid::Value>,
}

/// The parts of [`Uuid`].
pub mod uuid {
    /// The two forms.
    #[derive(Clone, PartialEq, Eq, Hash, prost::Oneof)]
    pub enum Value {
        /// As two integers.
        #[prost(message, tag = "1")]
        Structured(Structured),
        /// As text with hyphens.
        #[prost(string, tag = "2")]
        String(String),
    }

    /// The 16 bytes as two big-endian integers.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
    pub struct Structured {
        /// The first eight bytes.
        #[prost(int64, tag = "1")]
        pub most_significant_bits: i64,
        /// The last eight bytes.
        #[prost(int64, tag = "2")]
        pub least_significant_bits: i64,
    }

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

/// The name of a stream.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct StreamIdentifier {
    /// The name in UTF-8.
    #[prost(bytes = "bytes", tag = "3")]
    pub stream_name: Bytes,
}

impl From<&str> for StreamIdentifier {
    fn from(name: &str) -> StreamIdentifier {
        StreamIdentifier { stream_name: Bytes::copy_from_slice(name.as_bytes()) }
    }
}

/// A place in the log of all events.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AllStreamPosition {
    /// Where the write was committed.
    #[prost(uint64, tag = "1")]
    pub commit_position: u64,
    /// Where the event was prepared.
    #[prost(uint64, tag = "2")]
    pub prepare_position: u64,
}

/// A batch that was refused because the stream was not as its writer expected.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct WrongExpectedVersion {
    /// What the stream is at.
    #[prost(oneof = "wrong_expected_version::Current", tags = "1, 2")]
    pub current: Option<wrong_expected_version::Current>,
    /// What was expected.
    #[prost(oneof = "wrong_expected_version::Expected", tags = "3, 4, 5, 6")]
    pub expected: Option<wrong_expected_version::Expected>,
}

/// The parts of [`WrongExpectedVersion`].
pub mod wrong_expected_version {
    /// What the stream is at.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Current {
        /// The revision of its last event.
        #[prost(uint64, tag = "1")]
        StreamRevision(u64),
        /// There is no such stream.
        #[prost(message, tag = "2")]
        NoStream(()),
    }

    /// What was expected.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Expected {
        /// This revision.
        #[prost(uint64, tag = "3")]
        StreamPosition(u64),
        /// Whatever it is.
        #[prost(message, tag = "4")]
        Any(()),
        /// That it exists.
        #[prost(message, tag = "5")]
        StreamExists(()),
        /// That it does not exist.
        #[prost(message, tag = "6")]
        NoStream(()),
    }
}

/// Whoever asks may not.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AccessDenied {}

/// The stream was deleted for good.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamDeleted {
    /// Its name.
    #[prost(message, optional, tag = "1")]
    pub stream_identifier: Option<StreamIdentifier>,
}

/// The deadline passed before the append was done. It may still be done.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Timeout {}

/// Something failed that the client can do nothing about.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Unknown {}

/// The append is larger than the server takes.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MaximumAppendSizeExceeded {
    /// What it takes, in bytes.
    #[prost(uint32, tag = "1")]
    pub max_append_size: u32,
}

/// The request itself is wrong.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BadRequest {
    /// What is wrong with it.
    #[prost(string, tag = "1")]
    pub message: String,
}
