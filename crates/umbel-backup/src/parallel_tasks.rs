//! Runs tasks on several threads of the environment, and on the caller's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::Env;

use crate::backup_error::BackupError;

/// A task.
pub type Task<T> = Box<dyn FnOnce() -> T + Send>;

/// Tasks that have not begun, with their numbers, and the results.
struct Queue<T> {
    tasks: Mutex<VecDeque<(usize, Task<T>)>>,
    results: Mutex<Vec<Option<T>>>,
    /// Whether no further task begins after this result.
    is_last: fn(&T) -> bool,
}

impl<T> Queue<T> {
    fn work(&self) {
        loop {
            let Some((number, task)) = self.tasks.lock().ignore_poison().pop_front() else {
                return;
            };
            let result = task();
            if (self.is_last)(&result) {
                self.tasks.lock().ignore_poison().clear();
            }
            self.results.lock().ignore_poison()[number] = Some(result);
        }
    }
}

/// Runs the tasks, at most `parallel` of them at the same time, and returns their results in the
/// order of the tasks; `None` for a task that panicked.
pub fn run_parallel<T: Send + 'static>(
    env: &Env,
    parallel: usize,
    tasks: Vec<Task<T>>,
) -> Vec<Option<T>> {
    run(env, parallel, tasks, |_| false)
}

/// Runs tasks like [`run_parallel`], and returns their results. After a failure no further task
/// begins: each one could repeat its requests for as long as the first one did.
///
/// # Errors
/// That of the first task, by number, that failed.
pub fn try_run_parallel<T: Send + 'static, E: From<BackupError> + Send + 'static>(
    env: &Env,
    parallel: usize,
    tasks: Vec<Task<Result<T, E>>>,
) -> Result<Vec<T>, E> {
    let mut results = run(env, parallel, tasks, Result::is_err);
    if let Some(failed) = results.iter().position(|result| matches!(result, Some(Err(_)))) {
        results.swap(0, failed);
        results.truncate(1);
    }
    let panicked = || Err(BackupError::refused("internal: a transfer panicked").into());
    results.into_iter().map(|result| result.unwrap_or_else(panicked)).collect()
}

fn run<T: Send + 'static>(
    env: &Env,
    parallel: usize,
    tasks: Vec<Task<T>>,
    is_last: fn(&T) -> bool,
) -> Vec<Option<T>> {
    let threads = parallel.min(tasks.len()).saturating_sub(1);
    let results = Mutex::new(tasks.iter().map(|_| None).collect());
    let tasks = Mutex::new(tasks.into_iter().enumerate().collect());
    let queue = Arc::new(Queue { tasks, results, is_last });
    let spawn = |_| {
        let queue = Arc::clone(&queue);
        // Fewer threads do the same work.
        env.threads.spawn("object-transfer", Box::new(move || queue.work())).ok()
    };
    let started: Vec<_> = (0..threads).filter_map(spawn).collect();
    queue.work();
    for thread in started {
        thread.join();
    }
    std::mem::take(&mut *queue.results.lock().ignore_poison())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_have_the_order_of_the_tasks() {
        for parallel in [1, 3, 50] {
            let task = |number: u64| Box::new(move || number * 2) as Task<u64>;
            let tasks = (0..20).map(task).collect();
            let results = run_parallel(&Env::system(), parallel, tasks);
            assert_eq!(results, (0..20).map(|number| Some(number * 2)).collect::<Vec<_>>());
        }
        assert!(run_parallel::<u64>(&Env::system(), 4, Vec::new()).is_empty());
    }

    /// A restore of 30,000 chunks without a network ended after the requests of each chunk had been
    /// repeated for a minute.
    #[test]
    fn no_task_begins_after_a_failure() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        for parallel in [1, 3] {
            let begun = Arc::new(AtomicUsize::new(0));
            let task = |number: usize| {
                let begun = Arc::clone(&begun);
                Box::new(move || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    match number {
                        0..5 => Ok(number),
                        _ => Err(BackupError::refused(format!("task {number}"))),
                    }
                }) as Task<Result<usize, BackupError>>
            };
            let tasks = (0..100).map(task).collect();
            let error = try_run_parallel(&Env::system(), parallel, tasks).expect_err("a failure");
            assert!((5..8).any(|number| error.to_string() == format!("task {number}")), "{error}");
            assert!(begun.load(Ordering::Relaxed) <= 5 + parallel, "{begun:?}");
            let tasks = (0..5).map(task).collect();
            let results = try_run_parallel(&Env::system(), parallel, tasks);
            assert_eq!(results.expect("no failure"), (0..5).collect::<Vec<_>>());
        }
    }
}
