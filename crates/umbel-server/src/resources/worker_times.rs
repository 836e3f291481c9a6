//! [`WorkerTimes`]: for how long single polls of tasks hold an asynchronous worker, and single jobs
//! the appender thread.
//!
//! A task gives its worker to other tasks only between polls, so a long poll delays the calls of
//! other clients. The times are processor times: the wait for a processor counts for no poll.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::rt::Executor;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::task::{JoinHandle, JoinSet};
use umbel_env::Clock;

/// Bounds of the times in seconds.
const BOUNDS: [f64; 9] = [0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1];

/// Names and values of the metric's labels.
type Labels = Vec<(&'static str, String)>;

/// Processor times of polls and jobs.
#[derive(Debug)]
pub struct WorkerTimes {
    clock: Arc<dyn Clock>,
    seconds: Family<Labels, Histogram>,
    polls: Histogram,
    appends: Histogram,
}

impl WorkerTimes {
    /// Creates times that are measured with this clock.
    pub fn new(clock: &Arc<dyn Clock>) -> WorkerTimes {
        let seconds: Family<Labels, Histogram> =
            Family::new_with_constructor(|| Histogram::new(BOUNDS));
        let of = |thread: &'static str| {
            seconds.get_or_create_owned(&vec![("thread", thread.to_string())])
        };
        let (polls, appends) = (of("worker"), of("appender"));
        WorkerTimes { clock: Arc::clone(clock), seconds, polls, appends }
    }

    /// Runs a job of the appender thread.
    pub fn run_append<T>(&self, job: impl FnOnce() -> T) -> T {
        self.run(&self.appends, job)
    }

    fn run<T>(&self, times: &Histogram, work: impl FnOnce() -> T) -> T {
        let before = self.clock.thread_time();
        let done = work();
        if let (Some(before), Some(after)) = (before, self.clock.thread_time()) {
            times.observe(after.saturating_sub(before).as_secs_f64());
        }
        done
    }

    /// Registers the metric.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Processor time of a single poll of a task, and of a job of the appender";
        registry.register("worker_busy_seconds", help, self.seconds.clone());
    }
}

/// Starts tasks, and measures them on request.
#[derive(Debug, Clone, Default)]
pub struct TaskSpawner(pub Option<Arc<WorkerTimes>>);

impl TaskSpawner {
    /// Creates a spawner, which measures with this clock if `measures` is set.
    pub fn new(measures: bool, clock: &Arc<dyn Clock>) -> TaskSpawner {
        TaskSpawner(measures.then(|| Arc::new(WorkerTimes::new(clock))))
    }

    /// Starts a task of a set.
    pub fn spawn_in(&self, set: &mut JoinSet<()>, task: impl Future<Output = ()> + Send + 'static) {
        match &self.0 {
            Some(times) => set.spawn(TimedTask::new(task, times)),
            None => set.spawn(task),
        };
    }

    /// Starts a task on the current runtime.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match &self.0 {
            Some(times) => tokio::spawn(TimedTask::new(task, times)),
            None => tokio::spawn(task),
        }
    }

    /// Runs a job of the appender thread.
    pub fn run_append<T>(&self, job: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(times) => times.run_append(job),
            None => job(),
        }
    }
}

impl<F> Executor<F> for TaskSpawner
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// A task whose polls are measured.
struct TimedTask<F> {
    task: Pin<Box<F>>,
    times: Arc<WorkerTimes>,
}

impl<F> TimedTask<F> {
    fn new(task: F, times: &Arc<WorkerTimes>) -> TimedTask<F> {
        TimedTask { task: Box::pin(task), times: Arc::clone(times) }
    }
}

impl<F: Future> Future for TimedTask<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let task = this.task.as_mut();
        this.times.run(&this.times.polls, || task.poll(context))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;

    /// Clock whose thread time a test advances.
    #[derive(Debug, Default)]
    struct ThreadClock(AtomicU64);

    impl Clock for ThreadClock {
        fn now(&self) -> Duration {
            Duration::ZERO
        }

        fn wall_micros(&self) -> u64 {
            1
        }

        fn thread_time(&self) -> Option<Duration> {
            Some(Duration::from_millis(self.0.load(Ordering::Relaxed)))
        }
    }

    #[test]
    fn each_poll_counts_with_its_own_time() {
        let clock = Arc::new(ThreadClock::default());
        let times = Arc::new(WorkerTimes::new(&(Arc::clone(&clock) as Arc<dyn Clock>)));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let advance = |millis: u64| clock.0.fetch_add(millis, Ordering::Relaxed);
        let spawner = TaskSpawner(Some(Arc::clone(&times)));
        let of_task = Arc::clone(&clock);
        runtime.block_on(async {
            let task = async move {
                for millis in [0, 3, 30] {
                    of_task.0.fetch_add(millis, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            };
            spawner.spawn(task).await.unwrap();
        });
        spawner.run_append(|| advance(7));
        let mut registry = Registry::default();
        times.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for (thread, bound, count) in [
            ("worker", "0.002", 2),
            ("worker", "0.005", 3),
            ("worker", "0.05", 4),
            ("worker", "+Inf", 4),
            ("appender", "0.005", 0),
            ("appender", "0.01", 1),
        ] {
            let line = format!(
                "worker_busy_seconds_bucket{{le=\"{bound}\",thread=\"{thread}\"}} {count}\n"
            );
            assert!(text.contains(&line), "{line} in\n{text}");
        }
    }
}
