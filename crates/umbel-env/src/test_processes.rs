//! Processes for tests: a process for one test, and children that the test forks.
//!
//! A test that forks runs in a process of its own, because the test program has other threads,
//! whose locks would stay locked in a child. A child that hangs is killed, and the test
//! fails.

#![expect(unsafe_code, reason = "there is no safe face of fork")]

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Duration;

/// Environment variable that marks a process as one for a test.
const VARIABLE: &str = "UMBEL_TEST_PROCESS";
/// Time after which a child counts as hanging.
const CHILD_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which a waiting parent checks its child.
const PAUSE: Duration = Duration::from_millis(2);
/// Exit code of a child that panicked.
const PANICKED: i32 = 101;

/// Runs `work` in a process of its own: the test program again, with the test called `name` (with
/// its modules) alone.
///
/// # Panics
/// Where `work` panics, or takes longer than two minutes.
pub fn in_own_process(name: &str, work: impl FnOnce()) {
    if std::env::var(VARIABLE).is_ok_and(|running| running == name) {
        return work();
    }
    let program = std::env::current_exe().expect("the test program has a path");
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture", "--include-ignored", "--test-threads=1"]);
    command.env(VARIABLE, name).stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.stderr(Stdio::piped()).spawn().expect("a process starts");
    let number = i32::try_from(child.id()).expect("the id of a process");
    let ended = ends_within(number, 2 * CHILD_TIMEOUT, false);
    if !ended {
        // SAFETY: the call takes no pointer; the process is a child that was not waited for.
        unsafe { libc::kill(number, libc::SIGKILL) };
    }
    let output = child.wait_with_output().expect("the process is waited for");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(ended, "the test's process hung\n{text}{errors}");
    assert!(output.status.success(), "the test's process failed\n{text}{errors}");
    assert!(text.contains("1 passed"), "there is no test called {name}\n{text}");
}

/// Forks, and runs `work` in the child, which exits after it.
///
/// # Panics
/// Where `work` panics in the child, the child dies otherwise or does not end within a minute.
pub fn in_forked_child(work: impl FnOnce()) {
    fork(work).wait();
}

/// Forks while another thread is in `hold`, which calls its argument and waits in it. Forks once by
/// the C library and once by the system call alone; `work` runs in each child.
///
/// # Panics
/// As [`in_forked_child`], and if `look` returns another result after a child than before it.
pub fn in_children_while<T: PartialEq + std::fmt::Debug>(
    hold: impl FnOnce(&dyn Fn()) + Send,
    look: impl Fn() -> T,
    work: impl Fn(),
) {
    let held = Barrier::new(2);
    let until_told = || {
        held.wait();
        held.wait();
    };
    std::thread::scope(|scope| {
        scope.spawn(|| hold(&until_told));
        held.wait();
        for without_handlers in [false, true] {
            let before = settled(&look);
            match without_handlers {
                false => in_forked_child(&work),
                true => fork_without_handlers(&work).wait(),
            }
            assert_eq!(look(), before, "the child left a trace");
        }
        held.wait();
    });
}

/// Calls `look` until two calls in a row return the same. A background thread of the parent can be
/// between two steps although all locks are held.
fn settled<T: PartialEq>(look: impl Fn() -> T) -> T {
    let mut before = look();
    loop {
        (0..10).for_each(|_| pause());
        let now = look();
        if now == before {
            return now;
        }
        before = now;
    }
}

/// A forked child.
#[derive(Debug)]
pub struct Child(i32);

/// Forks, and runs `work` in the child, which exits after it; the caller waits for it.
pub fn fork(work: impl FnOnce()) -> Child {
    fork_with(work, || {
        // SAFETY: the child runs `work` and exits without running
        // destructors or exit handlers.
        unsafe { libc::fork() }
    })
}

/// Like [`fork`], but by the system call, so that the C library runs no handlers.
pub fn fork_without_handlers(work: impl FnOnce()) -> Child {
    fork_with(work, || {
        let flags = libc::SIGCHLD;
        // SAFETY: as above. Without a stack of its own the child continues with a copy of this one.
        let made = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        i32::try_from(made).unwrap_or(-1)
    })
}

fn fork_with(work: impl FnOnce(), call: impl FnOnce() -> i32) -> Child {
    let child = call();
    assert!(child >= 0, "the process could not be forked: {}", io::Error::last_os_error());
    if child > 0 {
        return Child(child);
    }
    let done = catch_unwind(AssertUnwindSafe(work));
    let _ = io::stderr().flush();
    // SAFETY: it ends the process and does not return.
    unsafe { libc::_exit(if done.is_ok() { 0 } else { PANICKED }) }
}

impl Child {
    /// Waits until the child has ended.
    ///
    /// # Panics
    /// If the child's work panicked, or the child died otherwise or did not end within a minute.
    pub fn wait(self) {
        if !ends_within(self.0, CHILD_TIMEOUT, true) {
            self.kill();
            panic!("the forked child hung");
        }
    }

    /// Kills the child.
    pub fn kill(self) {
        // SAFETY: neither call keeps a pointer; it is a child that was not waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// Whether a child ends within `timeout`. A child that is to be reaped must have succeeded.
fn ends_within(child: i32, timeout: Duration, is_reaped: bool) -> bool {
    let mut waited = Duration::ZERO;
    while waited < timeout {
        if is_reaped {
            let mut status = 0;
            // SAFETY: the status is written where the pointer points, during the call.
            let found = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
            assert!(found >= 0, "waiting failed: {}", io::Error::last_os_error());
            if found == child {
                assert_eq!(status, 0, "the forked child failed (status {status:#x})");
                return true;
            }
        } else {
            let mut found = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            let id = child.cast_unsigned();
            // SAFETY: all zeros is a value of it, and the call writes it at most.
            let found = unsafe {
                libc::waitid(libc::P_PID, id, found.as_mut_ptr(), flags);
                found.assume_init()
            };
            if found.si_signo == libc::SIGCHLD {
                return true;
            }
        }
        pause();
        waited += PAUSE;
    }
    false
}

#[expect(clippy::disallowed_methods, reason = "no call reports the end of another process")]
fn pause() {
    std::thread::sleep(PAUSE);
}
