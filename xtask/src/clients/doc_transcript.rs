//! Check of the transcript in `docs/tutorials/first-events.md`: runs each command in an empty
//! folder and compares its output.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::tools::built_programs;
use crate::tools::check_steps::StepOutcome;

/// Address at which the server of the transcript listens.
const ADDRESS: &str = "127.0.0.1:2113";

/// Part of a page with a transcript.
#[derive(Debug, PartialEq, Eq)]
pub enum PagePart {
    /// A file that the reader creates: its name and text.
    File(String, String),
    /// A command and its expected lines of output.
    Command(String, Vec<String>),
}

/// Returns the files and commands of a page, in order.
pub fn parts(page: &str) -> Vec<PagePart> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match kind.split_once(' ') {
            Some((_, name)) => {
                found.push(PagePart::File(name.to_string(), block.join("\n") + "\n"))
            }
            None if kind == "console" => found.extend(commands(&block)),
            None => {}
        }
    }
    found
}

fn commands(block: &[&str]) -> Vec<PagePart> {
    let mut found = Vec::new();
    for line in block {
        match (line.strip_prefix("$ "), found.last_mut()) {
            (Some(command), _) => found.push(PagePart::Command(command.to_string(), Vec::new())),
            (None, Some(PagePart::Command(_, lines))) => lines.push(line.to_string()),
            (None, _) => {}
        }
    }
    found
}

/// Whether a line of output matches the line of the page, in which `...` matches anything.
pub fn matches_shown(line: &str, shown: &str) -> bool {
    let mut pieces = shown.split("...");
    let Some(mut rest) = pieces.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, between)) = pieces.split_last() else { return rest.is_empty() };
    for piece in between {
        let Some((_, behind)) = rest.split_once(piece) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

/// Runs the transcript of a page. REQUIRES: the binary is built, and `python` can import the
/// modules of the page.
pub fn transcript(page: &str, python: &Path) -> StepOutcome {
    if let Err(error) = TcpListener::bind(ADDRESS) {
        return StepOutcome::skip(format!("the transcript of first events: {ADDRESS}: {error}"));
    }
    let folder = std::env::temp_dir().join(format!("umbel-first-{}", std::process::id()));
    let mut desk =
        TranscriptShell { folder: folder.clone(), path: path(python), servers: Vec::new() };
    let typed = std::fs::create_dir_all(&folder)
        .map_err(|error| error.to_string())
        .and_then(|()| parts(page).iter().try_for_each(|part| desk.take(part)));
    desk.stop_servers();
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    match &typed {
        Ok(()) => {
            println!("ok docs/tutorials/first-events.md: every command prints what the page shows")
        }
        Err(complaint) => println!("FAILED docs/tutorials/first-events.md: {complaint}"),
    }
    StepOutcome::of(typed.is_ok())
}

/// Returns a `PATH` that begins with the folders of the binary and of the interpreter.
fn path(python: &Path) -> std::ffi::OsString {
    let binary = built_programs::umbel_program();
    let mut folders: Vec<PathBuf> =
        [binary.as_path(), python].iter().filter_map(|p| Some(p.parent()?.to_path_buf())).collect();
    folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    std::env::join_paths(folders).unwrap_or_default()
}

struct TranscriptShell {
    folder: PathBuf,
    path: std::ffi::OsString,
    servers: Vec<Child>,
}

impl TranscriptShell {
    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(command).current_dir(&self.folder).env("PATH", &self.path);
        shell.env_remove("UMBEL_DB").stdin(Stdio::null());
        shell
    }

    fn take(&mut self, part: &PagePart) -> Result<(), String> {
        match part {
            PagePart::File(name, text) => std::fs::write(self.folder.join(name), text)
                .map_err(|error| format!("could not write {name}: {error}")),
            PagePart::Command(command, shown) => match command.strip_suffix('&') {
                Some(server) => self.serve(server, shown),
                None => {
                    if command.starts_with("umbel verify") {
                        // The page stops the server before this command.
                        self.stop_servers();
                    }
                    self.run(command, shown)
                }
            },
        }
    }

    fn run(&self, command: &str, shown: &[String]) -> Result<(), String> {
        let output = self.shell(command).output().map_err(|error| format!("{command}: {error}"))?;
        let stdout_text = String::from_utf8_lossy(&output.stdout);
        let lines: Vec<&str> = stdout_text.lines().collect();
        let is_same = lines.len() == shown.len()
            && lines.iter().zip(shown).all(|(line, shown)| matches_shown(line, shown));
        if is_same {
            return Ok(());
        }
        let stderr_text = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{command}` printed\n{stdout_text}{stderr_text}and not\n{}", shown.join("\n")))
    }

    fn serve(&mut self, command: &str, shown: &[String]) -> Result<(), String> {
        let mut shell = self.shell(&format!("exec {command}"));
        let mut server =
            shell.stdout(Stdio::piped()).spawn().map_err(|error| format!("{command}: {error}"))?;
        let mut line = String::new();
        if let Some(stdout) = server.stdout.take() {
            // A failed read leaves the line empty, which is reported as a mismatch.
            BufReader::new(stdout).read_line(&mut line).ok();
        }
        self.servers.push(server);
        let is_same = shown.first().is_some_and(|shown| matches_shown(line.trim_end(), shown));
        if is_same { Ok(()) } else { Err(format!("`{command}` printed {line} and not {shown:?}")) }
    }

    fn stop_servers(&mut self) {
        for mut server in self.servers.drain(..) {
            Command::new("kill").arg(server.id().to_string()).status().ok();
            server.wait().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_parsed() {
        let page =
            "a\n```console\n$ one\n1\n2\n$ two\n```\n```python x.py\np = 1\n```\n```text\n```";
        let command = |name: &str, lines: &[&str]| {
            PagePart::Command(name.to_string(), lines.iter().map(ToString::to_string).collect())
        };
        let file = PagePart::File("x.py".to_string(), "p = 1\n".to_string());
        assert_eq!(parts(page), [command("one", &["1", "2"]), command("two", &[]), file]);
    }

    #[test]
    fn dots_match_anything() {
        for (line, shown) in [("a", "a"), ("a7b", "a...b"), ("ab", "a...b"), ("a1b2c", "a...b...c")]
        {
            assert!(matches_shown(line, shown), "{line} {shown}");
        }
        for (line, shown) in [("ab", "a"), ("b", "a..."), ("a7", "a...b"), ("a1c2b", "a...b...c")] {
            assert!(!matches_shown(line, shown), "{line} {shown}");
        }
    }
}
