//! Tests of clock, entropy and threads.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use umbel_env::{Env, JobThread};

#[test]
fn clocks_advance() {
    let env = Env::system();
    let first = env.clock.now();
    assert!(env.clock.now() >= first);
    let year_2020_micros = 1_577_836_800_000_000;
    assert!(env.clock.wall_micros() > year_2020_micros);
}

#[test]
fn random_bytes_differ() {
    let env = Env::system();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let mut bytes = [0; 19];
        env.entropy.fill(&mut bytes).unwrap();
        assert!(seen.insert(bytes));
    }
    env.entropy.fill(&mut []).unwrap();
}

#[test]
fn threads_have_names_and_report_panics() {
    let env = Env::system();
    assert!(env.threads.parallelism() >= 1);
    let sum = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&sum);
    let work = move || {
        assert_eq!(std::thread::current().name(), Some("umbel-test"));
        shared.store(7, Ordering::SeqCst);
    };
    let handle = env.threads.spawn("umbel-\0test", Box::new(work)).unwrap();
    assert!(handle.join());
    assert_eq!(sum.load(Ordering::SeqCst), 7);
    let handle = env.threads.spawn("doomed", Box::new(|| panic!("meant to happen"))).unwrap();
    assert!(!handle.join());
    assert!(format!("{env:?}").contains("SystemFiles"));
}

thread_local! {
    /// Disconnected at the end of the thread.
    static ALIVE: RefCell<Option<mpsc::Sender<()>>> = const { RefCell::new(None) };
}

/// Story: each scavenge had a new thread, and the allocator kept the memory of all of them.
#[test]
fn job_thread_runs_all_jobs_also_after_a_panic() {
    let env = Env::system();
    let jobs = JobThread::new("umbel-jobs");
    for _ in 0..2 {
        let (alive, ended) = mpsc::channel::<()>();
        let (sender, received) = mpsc::channel();
        for number in 0..4 {
            let (sender, alive) = (sender.clone(), alive.clone());
            let job = move || {
                ALIVE.set(Some(alive));
                sender.send((number, std::thread::current().id())).unwrap();
                assert!(number != 1, "meant to happen");
            };
            jobs.run(&*env.threads, Box::new(job)).unwrap();
        }
        drop(alive);
        let ran: Vec<_> = received.iter().take(4).collect();
        assert_eq!(ran, [0, 1, 2, 3].map(|number| (number, ran[0].1)), "one thread, in order");
        // The next job starts another thread.
        jobs.end();
        assert!(ended.recv().is_err(), "the thread has ended");
    }
}

/// A nice value of a thread, not of the process: the threads of other work keep theirs.
#[cfg(target_os = "linux")]
#[test]
fn priority_of_one_thread_is_lowered() {
    let nice = || rustix::process::getpriority_process(None).unwrap();
    let before = nice();
    let env = Env::system();
    let threads = Arc::clone(&env.threads);
    let lowered = Arc::new(AtomicU64::new(0));
    let shared = Arc::clone(&lowered);
    let work = move || {
        threads.lower_priority();
        shared.store(u64::try_from(nice()).unwrap(), Ordering::SeqCst);
    };
    assert!(env.threads.spawn("umbel-low", Box::new(work)).unwrap().join());
    let expected = (before + 10).min(19);
    assert_eq!(lowered.load(Ordering::SeqCst), u64::try_from(expected).unwrap());
    assert_eq!(nice(), before);
}
