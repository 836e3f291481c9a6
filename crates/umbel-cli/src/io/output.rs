//! [`Output`]: buffered standard output; a closed reader is not reported as an error.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

use serde_json::Value;

use crate::errors::{CommandError, CommandResult};

/// Standard output of one command.
pub struct Output {
    writer: BufWriter<StdoutLock<'static>>,
    terminal: bool,
    /// Whether a closed reader discards the rest of the output instead of ending the command.
    outlives_reader: bool,
    /// Work that is done, which an error of the output does not undo.
    done: Option<String>,
}

impl Output {
    /// Takes standard output.
    pub fn new() -> Output {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let writer = BufWriter::with_capacity(64 << 10, stdout.lock());
        Output { writer, terminal, outlives_reader: false, done: None }
    }

    /// Takes standard output of a command whose exit code says what it found, whether or not a
    /// reader takes all of the output.
    pub fn of_verdict() -> Output {
        Output { outlives_reader: true, ..Output::new() }
    }

    /// Names the work that is done, such as "the stream was deleted". An error of the output says
    /// so, since a caller would repeat the work.
    pub fn after(self, done: impl Into<String>) -> Output {
        Output { done: Some(done.into()), ..self }
    }

    /// Whether standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Writes bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> CommandResult<()> {
        let written = self.writer.write_all(bytes);
        self.check(written)
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
        let written = self.writer.flush();
        self.check(written)
    }

    fn check(&self, written: io::Result<()>) -> CommandResult<()> {
        match written.map_err(|error| CommandError::output(&error)) {
            Err(CommandError::OutputClosed) if self.outlives_reader => Ok(()),
            Err(CommandError::System(text)) => Err(CommandError::System(match &self.done {
                Some(done) => format!("{done}, but the command {text}"),
                None => text,
            })),
            written => written,
        }
    }
}

/// Writes a line for people to standard error. Ignores errors, such as a closed standard error.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
