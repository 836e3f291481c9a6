//! Runs a test of this binary in a child process with its own limits.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Environment variable that passes the argument to the child's test.
pub const ARGUMENT: &str = "UMBEL_TEST_TOLD";

/// Runs test `name` (its path inside the binary) in a child process, passes it `argument` and
/// returns its output. `limits` are shell commands that come first.
pub fn run(name: &str, argument: &str, limits: &str) -> String {
    run_by(Command::new("sh"), name, argument, limits)
}

/// Like [`run`], but the mounts that `limits` make are visible to the child process alone.
pub fn run_in_mounts(name: &str, argument: &str, limits: &str) -> String {
    run_by(in_mounts(), name, argument, &format!("{limits} || exit 1"))
}

/// Whether these commands, which mount, work for this user.
pub fn can_mount(commands: &str) -> bool {
    in_mounts().arg("-c").arg(commands).output().is_ok_and(|output| output.status.success())
}

fn in_mounts() -> Command {
    let mut command = Command::new("unshare");
    command.arg("--mount").arg("sh");
    command
}

fn run_by(mut shell: Command, name: &str, argument: &str, limits: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let output = shell
        .arg("-c")
        .arg(format!("{limits}\nexec \"$0\" --exact \"$1\" --ignored --nocapture --test-threads=1"))
        .arg(program)
        .arg(name)
        .env(ARGUMENT, argument)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {argument}: {text}{complaint}");
    assert!(text.contains("1 passed"), "{name} does not exist: {text}");
    text
}

/// Returns the argument of this child process; `None` if this process is no child, as when all
/// ignored tests are run.
pub fn argument() -> Option<String> {
    std::env::var(ARGUMENT).ok()
}

/// Resident bytes of this process.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Samples the resident bytes of this process every few milliseconds.
pub struct Watch {
    stop: Arc<AtomicBool>,
    max_bytes: Arc<AtomicU64>,
    thread: Option<Box<dyn umbel_env::JoinHandle>>,
}

impl Watch {
    /// Starts sampling.
    pub fn start() -> Watch {
        let pause = Mutex::new(());
        let (stop, max_bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, samples) = (Arc::clone(&stop), Arc::clone(&max_bytes));
        let watch = move || {
            let never = Condvar::new();
            while !stopped.load(Ordering::Relaxed) {
                samples.fetch_max(resident_bytes(), Ordering::Relaxed);
                let _ = never.wait_timeout(pause.lock().unwrap(), Duration::from_millis(5));
            }
        };
        let thread = umbel::Env::system().threads.spawn("watch", Box::new(watch)).unwrap();
        Watch { stop, max_bytes, thread: Some(thread) }
    }

    /// Maximum of the samples.
    pub fn max_bytes(&self) -> u64 {
        self.max_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join();
    }
}
