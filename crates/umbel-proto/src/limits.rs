//! What every client and server of the protocol agrees on, as numbers.

/// Most bytes of one message, in either direction: 17 MiB is what clients are ready to take.
pub const MESSAGE_BYTES_MAX: usize = 17 << 20;

/// Where clients expect the server.
pub const PORT: u16 = 2113;
