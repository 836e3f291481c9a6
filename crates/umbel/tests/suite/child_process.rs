//! Running a test of this binary in a process of its own, with limits of its own.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Set in a child: what its test is told.
pub const TOLD: &str = "UMBEL_TEST_TOLD";

/// Runs test `name` (its path inside the binary) in a process of its own, tells it `told` and gives
/// back what it printed. `limits` are commands of the shell that come first.
pub fn run(name: &str, told: &str, limits: &str) -> String {
    run_by(Command::new("sh"), name, told, limits)
}

/// As [`run`], where mounts that `limits` make are seen by that process alone.
pub fn run_in_mounts(name: &str, told: &str, limits: &str) -> String {
    run_by(in_mounts(), name, told, &format!("{limits} || exit 1"))
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

fn run_by(mut shell: Command, name: &str, told: &str, limits: &str) -> String {
    let program = std::env::current_exe().unwrap();
    let output = shell
        .arg("-c")
        .arg(format!("{limits}\nexec \"$0\" --exact \"$1\" --ignored --nocapture --test-threads=1"))
        .arg(program)
        .arg(name)
        .env(TOLD, told)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} {told}: {text}{complaint}");
    assert!(text.contains("1 passed"), "{name} does not exist: {text}");
    text
}

/// What this process was told; `None` where it is no child, as when all ignored tests are run.
pub fn told() -> Option<String> {
    std::env::var(TOLD).ok()
}

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Looks every few milliseconds at how much of this process is in memory.
pub struct Watch {
    stop: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: Option<Box<dyn umbel_env::JoinHandle>>,
}

impl Watch {
    /// Begins.
    pub fn start() -> Watch {
        let pause = Mutex::new(());
        let (stop, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, sees) = (Arc::clone(&stop), Arc::clone(&most));
        let watch = move || {
            let never = Condvar::new();
            while !ends.load(Ordering::Relaxed) {
                sees.fetch_max(resident_bytes(), Ordering::Relaxed);
                let _ = never.wait_timeout(pause.lock().unwrap(), Duration::from_millis(5));
            }
        };
        let thread = umbel::Env::system().threads.spawn("watch", Box::new(watch)).unwrap();
        Watch { stop, most, thread: Some(thread) }
    }

    /// The most that was seen.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join();
    }
}
