//! [`Output`]: buffered standard output; a closed reader is not reported as an error.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde_json::Value;

use crate::errors::{CommandError, CommandResult};

/// Standard output of one command.
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Output {
    /// Takes standard output.
    pub fn new() -> Output {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        Output { writer: BufWriter::with_capacity(64 << 10, stdout.lock()), terminal }
    }

    /// Whether standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> CommandResult<()> {
        self.writer.write_all(bytes).map_err(|error| CommandError::output(&error))
    }

    /// Writes a text and a line break.
    pub fn line(&mut self, text: &str) -> CommandResult<()> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Writes a JSON value on one line.
    pub fn json(&mut self, value: &Value) -> CommandResult<()> {
        self.line(&value.to_string())
    }

    /// Passes all buffered bytes to the operating system. A command calls `flush` last, since some
    /// write errors occur only in `flush`.
    pub fn flush(&mut self) -> CommandResult<()> {
        self.writer.flush().map_err(|error| CommandError::output(&error))
    }
}

/// Writes a line for people to standard error. Ignores errors, such as a closed standard error.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
