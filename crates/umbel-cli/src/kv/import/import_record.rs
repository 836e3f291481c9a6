//! Records of an input format, or the reasons why lines are invalid.

use std::io;

use umbel_base::limits::{KEY_BYTES_MAX, VALUE_BYTES_MAX};

use crate::text::escaping;

/// A key and a value, and the number of their line. The buffers are reused for the next record.
#[derive(Debug, Default)]
pub struct ImportRecord {
    /// The number of the line, from 1.
    pub line: u64,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
}

impl ImportRecord {
    /// Returns the reason why the store would refuse the record, if it would.
    pub fn check(&self) -> Result<(), String> {
        let over = |what: &str, len: usize, limit: usize| {
            format!("the {what} has {len} bytes, but may have {limit} at most")
        };
        if self.key.len() > KEY_BYTES_MAX {
            return Err(over("key", self.key.len(), KEY_BYTES_MAX));
        }
        if self.value.len() > VALUE_BYTES_MAX {
            return Err(over("value", self.value.len(), VALUE_BYTES_MAX));
        }
        Ok(())
    }

    /// Sets key and value from text as written, or from hex.
    pub fn fill(&mut self, key: &[u8], value: &[u8], hex: bool) -> Result<(), String> {
        set_field("key", &mut self.key, key, hex)?;
        set_field("value", &mut self.value, value, hex)
    }
}

/// Sets key or value, which is decoded if it was written as hex.
pub fn set_field(name: &str, target: &mut Vec<u8>, field: &[u8], hex: bool) -> Result<(), String> {
    target.clear();
    if hex {
        let bytes = escaping::parse_hex(field).map_err(|reason| format!("the {name} {reason}"))?;
        target.extend_from_slice(&bytes);
    } else {
        target.extend_from_slice(field);
    }
    Ok(())
}

/// Next item of an input.
#[derive(Debug, PartialEq, Eq)]
pub enum NextRecord {
    /// The record was filled.
    Entry,
    /// A line that is no record.
    Bad {
        /// Number of the line, from 1.
        line: u64,
        /// Reason why the line is no record, as the beginning of a sentence.
        reason: String,
    },
    /// The input ended.
    End,
}

/// An input format.
pub trait Records {
    /// Reads the next record into `record`. Errors are those of reading the input.
    fn next(&mut self, record: &mut ImportRecord) -> io::Result<NextRecord>;
    /// Number of lines that were read.
    fn lines(&self) -> u64;
}
