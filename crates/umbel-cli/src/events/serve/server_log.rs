//! [`Log`]: what `umbel serve` tells while it runs, as text or as lines of JSON, on standard error.
//!
//! A thread writes the lines, so that nobody who serves a call waits for whoever reads them. What
//! the thread cannot get rid of is left out and counted.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::{self, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use umbel_env::Env;

use crate::errors::{Failure, Outcome};
use crate::output::note;

/// Lines that wait to be written at most.
const WAITING_MAX: usize = 1024;
/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(1);
/// What the targets of our lines begin with. Those of other crates are not told.
const OURS: &str = "umbel";

/// The form of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One object a line, for programs.
    Json,
}

impl LogFormat {
    /// Reads its name.
    pub fn parse(text: &str) -> Result<LogFormat, String> {
        match text.to_ascii_lowercase().as_str() {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("must be text or json".to_string()),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

/// Reads how much is told.
pub fn level(text: &str) -> Result<Level, String> {
    match text.to_ascii_lowercase().as_str() {
        "error" => Ok(Level::ERROR),
        "warn" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        _ => Err("must be error, warn, info or debug".to_string()),
    }
}

/// What `umbel serve` tells while it runs; until this is dropped.
#[derive(Debug)]
pub struct Log {
    format: LogFormat,
    lines: Lines,
}

impl Log {
    /// Begins to tell. Once in a process.
    ///
    /// # Errors
    /// There is no thread to write with.
    pub fn begin(format: LogFormat, level: Level) -> Outcome<Log> {
        let lines = Lines::begin(Box::new(io::stderr()), &Env::system())?;
        let targets = Targets::new().with_target(OURS, level);
        let layer = fmt::layer().with_ansi(false).with_target(false).with_writer(lines.clone());
        let registry = tracing_subscriber::registry().with(targets);
        let begun = match format {
            LogFormat::Text => registry.with(layer).try_init(),
            LogFormat::Json => {
                let layer = layer.json().flatten_event(true);
                registry.with(layer.with_current_span(false).with_span_list(false)).try_init()
            }
        };
        begun.map_err(|error| Failure::System(format!("could not log: {error}")))?;
        if format == LogFormat::Json {
            std::panic::set_hook(Box::new(|panic| {
                let place = panic.location().map(ToString::to_string);
                let why = panic.payload_as_str().unwrap_or("it does not say why");
                tracing::error!(place, "panicked: {why}");
            }));
        }
        Ok(Log { format, lines })
    }

    /// Tells people something: a plain line, or one of JSON among the others.
    pub fn say(&self, text: &str) {
        match self.format {
            LogFormat::Text => note(text),
            LogFormat::Json => tracing::info!("{text}"),
        }
    }

    /// How the command ended. What went wrong is told here where a plain line would be none of
    /// JSON.
    pub fn ended(self, outcome: Outcome<()>) -> Outcome<()> {
        match outcome {
            Err(failure) if self.format == LogFormat::Json => {
                tracing::error!("{failure}");
                Err(Failure::Told(failure.exit_code()))
            }
            outcome => outcome,
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.lines.end();
    }
}

enum Message {
    Line(Vec<u8>),
    /// All lines before it are written.
    End(Sender<()>),
}

/// Lines on their way to whoever reads them. Cloning shares them.
#[derive(Debug, Clone)]
struct Lines {
    sender: Sender<Message>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    waiting: AtomicUsize,
    left_out: AtomicU64,
}

impl Lines {
    fn begin(writer: Box<dyn Write + Send>, env: &Env) -> Outcome<Lines> {
        let (sender, messages) = channel();
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        env.threads.spawn("umbel-log", Box::new(move || write(writer, &messages, &shared)))?;
        Ok(Lines { sender, counts })
    }

    /// Waits until what was told is written, but not for ever.
    fn end(&self) {
        let (ended, end) = channel();
        // An error says that nobody writes any more, or that it takes too long.
        let _ = self.sender.send(Message::End(ended));
        let _ = end.recv_timeout(LAST_LINES);
    }
}

fn write(mut writer: Box<dyn Write + Send>, messages: &Receiver<Message>, counts: &Counts) {
    while let Ok(message) = messages.recv() {
        match message {
            Message::Line(line) => {
                // Nobody listening there is no reason to stop.
                let _ = writer.write_all(&line);
                counts.waiting.fetch_sub(1, Ordering::Relaxed);
            }
            Message::End(ended) => drop(ended.send(())),
        }
        match counts.left_out.swap(0, Ordering::Relaxed) {
            0 => {}
            lines => tracing::warn!(lines, "lines were left out: they were not taken in time"),
        }
    }
}

impl Write for Lines {
    /// A line comes whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Counts { waiting, left_out } = &*self.counts;
        if waiting.fetch_add(1, Ordering::Relaxed) < WAITING_MAX {
            let _ = self.sender.send(Message::Line(line.to_vec()));
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

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
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
    fn names_are_read() {
        for format in [LogFormat::Text, LogFormat::Json] {
            assert_eq!(LogFormat::parse(format.name()), Ok(format));
        }
        assert!(LogFormat::parse("xml").is_err() && level("loud").is_err());
        assert_eq!(level("WARN"), Ok(Level::WARN));
    }

    #[test]
    fn what_was_told_is_written_before_the_end() {
        let reader = Reader::default();
        let mut lines = Lines::begin(Box::new(reader.clone()), &Env::system()).unwrap();
        for _ in 0..100 {
            lines.write_all(b"line\n").unwrap();
        }
        lines.end();
        assert_eq!(*reader.0.lock().unwrap(), b"line\n".repeat(100));
    }

    /// Whoever serves a call would wait for whoever reads the log, and for ever where nobody does.
    #[test]
    fn a_reader_that_is_stuck_holds_nobody_up() {
        let reader = Reader::default();
        let stuck = reader.0.lock().unwrap();
        let mut lines = Lines::begin(Box::new(reader.clone()), &Env::system()).unwrap();
        for _ in 0..WAITING_MAX + 50 {
            lines.write_all(b"line\n").unwrap();
        }
        assert_eq!(lines.counts.left_out.load(Ordering::Relaxed), 50);
        lines.end();
        drop(stuck);
    }
}
