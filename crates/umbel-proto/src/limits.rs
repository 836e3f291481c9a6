//! Numeric limits that every client and server of the protocol shares.

/// Maximum message size in bytes, in either direction: clients accept 17 MiB.
pub const MESSAGE_BYTES_MAX: usize = 17 << 20;

/// Default port of the server.
pub const PORT: u16 = 2113;
