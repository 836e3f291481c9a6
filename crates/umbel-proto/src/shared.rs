//! `event_store.client`: messages that several services share.

use prost::bytes::Bytes;

/// A universally unique identifier in one of two forms.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Uuid {
    /// Form and value.
    #[prost(oneof = "uuid::Value", tags = "1, 2")]
    pub value: Option<uuid::Value>,
}

/// The parts of [`Uuid`].
pub mod uuid {
    /// Forms of an identifier.
    #[derive(Clone, PartialEq, Eq, Hash, prost::Oneof)]
    pub enum Value {
        /// Two integers.
        #[prost(message, tag = "1")]
        Structured(Structured),
        /// Text with hyphens.
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

/// Name of a stream.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct StreamIdentifier {
    /// Name in UTF-8.
    #[prost(bytes = "bytes", tag = "3")]
    pub stream_name: Bytes,
}

impl From<&str> for StreamIdentifier {
    fn from(name: &str) -> StreamIdentifier {
        StreamIdentifier { stream_name: Bytes::copy_from_slice(name.as_bytes()) }
    }
}

/// Position in the event log.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AllStreamPosition {
    /// Commit position of the write.
    #[prost(uint64, tag = "1")]
    pub commit_position: u64,
    /// Prepare position of the event.
    #[prost(uint64, tag = "2")]
    pub prepare_position: u64,
}

/// Version conflict of a batch: the stream has another revision than its writer expected.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct WrongExpectedVersion {
    /// Current revision of the stream.
    #[prost(oneof = "wrong_expected_version::Current", tags = "1, 2")]
    pub current: Option<wrong_expected_version::Current>,
    /// Expected revision.
    #[prost(oneof = "wrong_expected_version::Expected", tags = "3, 4, 5, 6")]
    pub expected: Option<wrong_expected_version::Expected>,
}

/// The parts of [`WrongExpectedVersion`].
pub mod wrong_expected_version {
    /// Current revision of the stream.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Current {
        /// Revision of the last event.
        #[prost(uint64, tag = "1")]
        StreamRevision(u64),
        /// The stream does not exist.
        #[prost(message, tag = "2")]
        NoStream(()),
    }

    /// Expected revision.
    #[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
    pub enum Expected {
        /// This revision.
        #[prost(uint64, tag = "3")]
        StreamPosition(u64),
        /// Any revision.
        #[prost(message, tag = "4")]
        Any(()),
        /// The stream exists.
        #[prost(message, tag = "5")]
        StreamExists(()),
        /// The stream does not exist.
        #[prost(message, tag = "6")]
        NoStream(()),
    }
}

/// The caller lacks permission.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct AccessDenied {}

/// The stream has a tombstone.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StreamDeleted {
    /// Name of the stream.
    #[prost(message, optional, tag = "1")]
    pub stream_identifier: Option<StreamIdentifier>,
}

/// The deadline passed before the append was acknowledged. The append may still be written.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Timeout {}

/// Failure without a remedy for the client.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Unknown {}

/// The append exceeds the server's limit.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MaximumAppendSizeExceeded {
    /// The limit in bytes.
    #[prost(uint32, tag = "1")]
    pub max_append_size: u32,
}

/// The request is invalid.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BadRequest {
    /// Description of the defect.
    #[prost(string, tag = "1")]
    pub message: String,
}
