//! The process that is killed: it opens the store, writes from several threads, and reports each
//! acknowledged operation to its parent.
//!
//! INVARIANT: a thread writes a record after its operation returned `Ok` and before its next
//! operation. So at most one operation of a thread is in the store without having been reported.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use umbel::{Db, Keyspace};

use crate::kv::kill::write_load::{self, THREADS};

/// Record that reports that the store is open and the load begins.
pub const READY: u64 = u64::MAX;
/// Shift of the thread in a record; the bits below are the count of acknowledged operations.
pub const THREAD_SHIFT: u32 = 56;

/// The child's `main`: folder, seed, and the first operation of each thread. The child is killed,
/// or ends with an exit code and a sentence on standard error.
pub fn run(arguments: &[String]) -> i32 {
    match load(arguments) {
        Ok(()) => 0,
        Err(text) => {
            eprintln!("{text}");
            3
        }
    }
}

fn load(arguments: &[String]) -> Result<(), String> {
    let (Some(folder), numbers) = (arguments.first(), arguments.get(1..).unwrap_or_default())
    else {
        return Err("the child was given no folder".to_string());
    };
    let numbers: Vec<u64> =
        numbers.iter().map(|text| text.parse()).collect::<Result<_, _>>().unwrap_or_default();
    let [seed, first @ ..] = &numbers[..] else {
        return Err("the child was given no seed".to_string());
    };
    if first.len() != THREADS {
        return Err(format!("the child was given {} starts for {THREADS} threads", first.len()));
    }
    let pipe = io::stdout().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let pipe = File::from(pipe);
    let describe = |error: umbel::Error| format!("the child could not open the store: {error}");
    let db = Db::open(Path::new(folder), write_load::options(*seed)).map_err(describe)?;
    let spaces = write_load::open_keyspaces(&db).map_err(describe)?;
    send(&pipe, READY)?;
    std::thread::scope(|scope| {
        for (thread, first) in first.iter().enumerate() {
            let (db, spaces, pipe) = (&db, &spaces, &pipe);
            scope.spawn(move || {
                if let Err(text) = write(db, spaces, pipe, *seed, thread, *first) {
                    eprintln!("{text}");
                    std::process::exit(4);
                }
            });
        }
    });
    Ok(())
}

fn write(
    db: &Db,
    spaces: &[Keyspace],
    pipe: &File,
    seed: u64,
    thread: usize,
    first: u64,
) -> Result<(), String> {
    for index in first.. {
        let operation = write_load::operation(seed, thread, index);
        write_load::perform(db, spaces, operation)
            .map_err(|error| format!("thread {thread}, operation {index}: {error}"))?;
        send(pipe, (thread as u64) << THREAD_SHIFT | (index + 1))?;
    }
    Ok(())
}

/// Sends a record to the parent: eight bytes in one write, which pipes keep whole.
fn send(mut pipe: &File, record: u64) -> Result<(), String> {
    pipe.write_all(&record.to_le_bytes())
        .map_err(|error| format!("the parent does not read: {error}"))
}
