//! Searches the interleavings of one writer and its readers.
