//! Tests of the threads of the read pool: results, panics, waits, cancellation, end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::*;

/// A pool of `slots` slots with threads, as on a machine with one processor more.
struct Fixture {
    pool: ReadPool,
    threads: Vec<Box<dyn JoinHandle>>,
}

/// Threads of a machine with this number of processors.
#[derive(Debug)]
struct Processors(usize, Env);

impl umbel_env::Threads for Processors {
    fn spawn(
        &self,
        name: &str,
        work: Box<dyn FnOnce() + Send>,
    ) -> umbel::Result<Box<dyn JoinHandle>> {
        self.1.threads.spawn(name, work)
    }

    fn parallelism(&self) -> usize {
        self.0
    }
}

impl Fixture {
    fn new(processors: usize) -> Fixture {
        let threads = Arc::new(Processors(processors, Env::system()));
        let (pool, threads) = ReadPool::start(&Env { threads, ..Env::system() }).unwrap();
        Fixture { pool, threads }
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A job that runs until the sender is used or dropped.
fn blocking_job() -> (mpsc::Sender<()>, impl FnOnce() + Send) {
    let (sender, receiver) = mpsc::channel::<()>();
    let job = move || {
        let _ = receiver.recv();
    };
    (sender, job)
}

/// Waits for these numbers of jobs: a job still runs for a moment after its caller has the result.
async fn wait_for_counts(pool: &ReadPool, counts: ReadPoolCounts) {
    let reached = async {
        while pool.counts() != counts {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), reached).await;
    assert!(waited.is_ok(), "{:?} instead of {counts:?}", pool.counts());
}

#[test]
fn jobs_return_their_results_and_panics_end_no_thread() {
    let Fixture { pool, .. } = Fixture::new(2);
    block_on(async {
        assert_eq!(pool.run(|| 7).await.unwrap(), 7);
        for _ in 0..=SLOW_PAGES_MAX + 1 {
            let panicked = pool.run(|| panic!("a job of the test")).await;
            assert!(matches!(panicked, Err(umbel::Error::Closed)));
        }
        assert_eq!(pool.run(|| 8).await.unwrap(), 8);
        let tokio_time = pool.run(|| Handle::try_current().is_ok());
        assert!(tokio_time.await.unwrap(), "the work is inside the runtime of the caller");
    });
}

/// A job that waits for the disk does not stop the others, whatever threads are idle.
#[test]
fn jobs_that_wait_leave_the_pool_to_others() {
    let Fixture { pool, .. } = Fixture::new(2);
    block_on(async {
        let (senders, jobs): (Vec<_>, Vec<_>) = (0..SLOW_PAGES_MAX).map(|_| blocking_job()).unzip();
        let waiting = jobs.into_iter().map(|job| pool.run(job));
        let waiting = futures_util::future::join_all(waiting);
        let others = async {
            for number in 0..100 {
                assert_eq!(pool.run(move || number).await.unwrap(), number);
            }
            wait_for_counts(&pool, ReadPoolCounts { waiting: 0, running: SLOW_PAGES_MAX }).await;
            drop(senders);
        };
        let (waited, ()) = tokio::join!(waiting, others);
        assert!(waited.into_iter().all(|waited| waited.is_ok()));
        wait_for_counts(&pool, ReadPoolCounts { waiting: 0, running: 0 }).await;
    });
}

/// A call that is dropped leaves no job: what the job holds is released at once.
#[test]
fn dropped_call_leaves_no_job() {
    let Fixture { pool, .. } = Fixture::new(2);
    block_on(async {
        let (sender, job) = blocking_job();
        // No thread is left for another job.
        let (others, jobs): (Vec<_>, Vec<_>) = (0..SLOW_PAGES_MAX).map(|_| blocking_job()).unzip();
        let mut waiting = Box::pin(futures_util::future::join_all(
            [job].into_iter().map(|job| pool.run(job)).collect::<Vec<_>>(),
        ));
        let mut slow =
            Box::pin(futures_util::future::join_all(jobs.into_iter().map(|job| pool.run(job))));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        assert!(futures_util::poll!(&mut slow).is_pending());
        while pool.counts().waiting > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (held, runs) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
        let (in_job, counted) = (Arc::clone(&held), Arc::clone(&runs));
        let mut dropped = Box::pin(pool.run(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(in_job);
        }));
        assert!(futures_util::poll!(&mut dropped).is_pending());
        assert_eq!((pool.counts().waiting, Arc::strong_count(&held)), (1, 2));
        drop(dropped);
        assert_eq!((pool.counts().waiting, Arc::strong_count(&held)), (0, 1));
        drop((sender, others));
        waiting.await;
        slow.await;
        assert_eq!(pool.run(|| 1).await.unwrap(), 1);
        assert_eq!(runs.load(Ordering::SeqCst), 0);
    });
}

/// A dropped pool ends its threads: running jobs are completed, and waiting jobs fail.
#[test]
fn dropped_pool_ends_its_threads() {
    let Fixture { pool, threads } = Fixture::new(1);
    let count = threads.len();
    assert_eq!(count, 1 + SLOW_PAGES_MAX);
    let pool = Arc::new(pool);
    let (sender, job) = blocking_job();
    let result = std::thread::scope(|scope| {
        let calling = {
            let pool = Arc::clone(&pool);
            scope.spawn(move || block_on(pool.run(job)))
        };
        while pool.counts().running == 0 {
            std::thread::yield_now();
        }
        drop(sender);
        calling.join().unwrap()
    });
    assert!(result.is_ok());
    drop(pool);
    assert!(threads.into_iter().all(JoinHandle::join));
}
