//! [`ServerLog`]: log of `umbel serve` on standard error, as text or as lines of JSON.
//!
//! INVARIANT: from the start of the log on, each message on standard error begins with a time. This
//! includes the messages of start and stop, and the error that ends the command. In a log of text,
//! only panics and what is reported while a panic unwinds have none. There, a message with a line
//! break, for example in the name of a file, has the time on its first line only.
//!
//! A separate thread writes the lines, so that no thread that serves a call waits for the reader of
//! the log. Lines that do not fit into the thread's queue are dropped and counted. Only the error
//! that ends the command is written without the queue. Decision 2 says why `tracing-appender` is
//! not used.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use umbel_env::Env;
use umbel_server::TelemetryHub;

use crate::errors::{CommandError, CommandResult};
use crate::events::serve::telemetry_layer::TelemetryLayer;
use crate::io::output::note;
use crate::usage_error::failure_sentence;

/// Maximum number of lines that wait to be written.
const QUEUE_LINES_MAX: usize = 1024;
/// Maximum time to write the last lines at exit.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Prefix of the targets of logged lines. Lines with other targets, from other crates, are not
/// logged.
const TARGET_PREFIX: &str = "umbel";
/// Target of the lines of start and stop, which the log has at every level.
const LIFECYCLE_TARGET: &str = "umbel_lifecycle";

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line, for programs.
    Json,
}

impl LogFormat {
    /// Parses the name of a format.
    pub fn parse(text: &str) -> Result<LogFormat, String> {
        match text.to_ascii_lowercase().as_str() {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("must be text or json".to_string()),
        }
    }

    /// Returns the name of the format.
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

/// Parses a log level, also by KurrentDB's names.
pub fn parse_level(text: &str) -> Result<Level, String> {
    match text.to_ascii_lowercase().as_str() {
        "error" | "fatal" => Ok(Level::ERROR),
        "warn" | "warning" => Ok(Level::WARN),
        "info" | "information" | "default" => Ok(Level::INFO),
        "debug" | "verbose" => Ok(Level::DEBUG),
        _ => Err("must be error, warn, info or debug".to_string()),
    }
}

/// Log of a running server, until it is dropped.
#[derive(Debug)]
pub struct ServerLog {
    lines: LogWriter,
}

/// Logs a line of start or stop, which every level shows.
pub fn log_lifecycle(text: &str) {
    tracing::info!(target: LIFECYCLE_TARGET, "{text}");
}

impl ServerLog {
    /// Starts the log. REQUIRES: called at most once in a process.
    ///
    /// # Errors
    /// The system cannot start the writing thread.
    pub fn start(
        format: LogFormat,
        level: Level,
        hub: Option<Arc<TelemetryHub>>,
    ) -> CommandResult<ServerLog> {
        let lines = LogWriter::start(Box::new(io::stderr()), &Env::system())?;
        let targets = Targets::new()
            .with_target(TARGET_PREFIX, level)
            .with_target(LIFECYCLE_TARGET, Level::INFO);
        let layer = fmt::layer().with_ansi(false).with_target(false).with_writer(lines.clone());
        let exported = hub.map(TelemetryLayer::new);
        let registry = tracing_subscriber::registry().with(targets).with(exported);
        let started = match format {
            LogFormat::Text => registry.with(layer).try_init(),
            LogFormat::Json => {
                let layer = layer.json().flatten_event(true);
                registry.with(layer.with_current_span(false).with_span_list(false)).try_init()
            }
        };
        started.map_err(|error| CommandError::System(format!("could not log: {error}")))?;
        if format == LogFormat::Json {
            std::panic::set_hook(Box::new(|panic| {
                let place = panic.location().map(ToString::to_string);
                let why = panic.payload_as_str().unwrap_or("no reason given");
                tracing::error!(place, "panicked: {why}");
            }));
        }
        Ok(ServerLog { lines })
    }

    /// Writes a line with a secret, in the form of a log with text. It is written at once and to
    /// standard error only: no export of the log gets it, and no full queue drops it.
    pub fn print_secret(&self, text: &str) {
        // Earlier lines come first.
        self.lines.finish();
        let mut time = String::new();
        // Writing to a text cannot fail.
        let _ = SystemTime.format_time(&mut Writer::new(&mut time));
        note(&format!("{time} {:>5} {text}", Level::INFO.as_str()));
    }

    /// Logs the error of the command, so that standard error has only lines of the log. Waits until
    /// its reader takes the line: the error is never lost.
    pub fn report_exit(self, outcome: CommandResult<()>) -> CommandResult<()> {
        outcome.map_err(|failure| {
            // Earlier lines come first, unless the reader takes too long.
            self.lines.finish();
            self.lines.write_directly();
            tracing::error!("{}", failure_sentence(&failure));
            CommandError::AlreadyReported(failure.exit_code())
        })
    }
}

impl Drop for ServerLog {
    fn drop(&mut self) {
        self.lines.finish();
    }
}

enum LogMessage {
    Line(Vec<u8>),
    /// Requests a signal once all earlier lines are written.
    End(Sender<()>),
}

/// Queue of lines for the writing thread. Clones share the queue.
#[derive(Debug, Clone)]
struct LogWriter {
    sender: Sender<LogMessage>,
    counts: Arc<LogCounts>,
    /// Whether the thread that logs writes the line.
    is_direct: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct LogCounts {
    queued: AtomicUsize,
    dropped: AtomicU64,
}

impl LogWriter {
    fn start(writer: Box<dyn Write + Send>, env: &Env) -> CommandResult<LogWriter> {
        let (sender, messages) = channel();
        let counts = Arc::new(LogCounts::default());
        let shared = Arc::clone(&counts);
        env.threads.spawn("umbel-log", Box::new(move || write(writer, &messages, &shared)))?;
        Ok(LogWriter { sender, counts, is_direct: Arc::default() })
    }

    /// Writes further lines to standard error without the queue.
    fn write_directly(&self) {
        self.is_direct.store(true, Ordering::Relaxed);
    }

    /// Waits until the logged lines are written, at most for `FLUSH_TIMEOUT`.
    fn finish(&self) {
        let (ended, end) = channel();
        // An error says that the writer thread has ended, or that it takes too long.
        let _ = self.sender.send(LogMessage::End(ended));
        let _ = end.recv_timeout(FLUSH_TIMEOUT);
    }
}

fn write(mut writer: Box<dyn Write + Send>, messages: &Receiver<LogMessage>, counts: &LogCounts) {
    while let Ok(message) = messages.recv() {
        match message {
            LogMessage::Line(line) => {
                // A closed standard error is no reason to stop.
                let _ = writer.write_all(&line);
                counts.queued.fetch_sub(1, Ordering::Relaxed);
            }
            LogMessage::End(ended) => drop(ended.send(())),
        }
        match counts.dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            lines => tracing::warn!(
                lines,
                "log lines were dropped, because the reader of standard error is too slow"
            ),
        }
    }
}

impl Write for LogWriter {
    /// Each call of `write` gets one whole line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.is_direct.load(Ordering::Relaxed) {
            // A closed standard error is no reason to stop.
            let _ = io::stderr().write_all(line);
            return Ok(line.len());
        }
        let LogCounts { queued: waiting, dropped: left_out } = &*self.counts;
        if waiting.fetch_add(1, Ordering::Relaxed) < QUEUE_LINES_MAX {
            let _ = self.sender.send(LogMessage::Line(line.to_vec()));
        } else {
            waiting.fetch_sub(1, Ordering::Relaxed);
            left_out.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogWriter {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Reader(Arc<Mutex<Vec<u8>>>);

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn log_format_and_level_names_are_parsed() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(LogFormat::parse(format.name()), Ok(format));
        }
        assert!(LogFormat::parse("xml").is_err() && parse_level("loud").is_err());
        assert_eq!(parse_level("WARN"), Ok(Level::WARN));
    }

    #[test]
    fn log_lines_are_flushed_before_exit() {
        let reader = Reader::default();
        let mut lines = LogWriter::start(Box::new(reader.clone()), &Env::system()).unwrap();
        for _ in 0..100 {
            lines.write_all(b"line\n").unwrap();
        }
        lines.finish();
        assert_eq!(*reader.0.lock().unwrap(), b"line\n".repeat(100));
    }

    /// A reader of the log that stops reading must not block threads that log.
    #[test]
    fn stuck_log_reader_does_not_block_callers() {
        let reader = Reader::default();
        let stuck = reader.0.lock().unwrap();
        let mut lines = LogWriter::start(Box::new(reader.clone()), &Env::system()).unwrap();
        for _ in 0..QUEUE_LINES_MAX + 50 {
            lines.write_all(b"line\n").unwrap();
        }
        assert_eq!(lines.counts.dropped.load(Ordering::Relaxed), 50);
        lines.finish();
        drop(stuck);
    }
}
