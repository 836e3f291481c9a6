//! Runs tasks on several threads of the environment, and on the caller's.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::Env;

/// A task.
pub type Task<T> = Box<dyn FnOnce() -> T + Send>;

/// Tasks that have not begun, with their numbers, and the results.
struct Queue<T> {
    tasks: Mutex<VecDeque<(usize, Task<T>)>>,
    results: Mutex<Vec<Option<T>>>,
}

impl<T> Queue<T> {
    fn work(&self) {
        loop {
            let Some((number, task)) = self.tasks.lock().ignore_poison().pop_front() else {
                return;
            };
            let result = task();
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
    let threads = parallel.min(tasks.len()).saturating_sub(1);
    let results = Mutex::new(tasks.iter().map(|_| None).collect());
    let tasks = Mutex::new(tasks.into_iter().enumerate().collect());
    let queue = Arc::new(Queue { tasks, results });
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
}
