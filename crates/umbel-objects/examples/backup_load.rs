//! Appends to an event store and backs it up into an object store at the same time, for campaigns
//! that kill this process or the object store.
//!
//! `backup_load DIRECTORY URL` prints `backed up POSITION` after each backup, and `failed CAUSE`
//! after each that failed. It ends with its standard input, after a last backup.
#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use umbel_env::{Env, Objects};
use umbel_events::{
    ExpectedVersion, NewEvent, ObjectBackup, ObjectBackupOptions, Store, StoreOptions,
};

/// Length of chunks, so that a run ends many of them.
const CHUNK_BYTES: u64 = 1 << 20;
/// Lengths of the events' data.
const DATA_BYTES: [usize; 4] = [10, 100, 1_000, 5_000];
/// Wait after each append, so that a campaign does not fill the disk.
const APPEND_PAUSE: Duration = Duration::from_millis(5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, url] = arguments.as_slice() else {
        return Err("usage: backup_load DIRECTORY URL".into());
    };
    let env = Env::system();
    let options = StoreOptions { chunk_bytes: CHUNK_BYTES, ..StoreOptions::default() };
    let store = Arc::new(Store::open(directory, options)?);
    let objects = umbel_objects::open(&env, url)?;
    let is_ending = Arc::new(AtomicBool::new(false));
    let (own, ends) = (Arc::clone(&store), Arc::clone(&is_ending));
    let threads = Arc::clone(&env.threads);
    let appender = env.threads.spawn(
        "appender",
        Box::new(move || {
            let mut number = 0;
            while !ends.load(Ordering::Relaxed) {
                if let Err(error) = append(&own, number) {
                    eprintln!("could not append: {error}");
                    return;
                }
                number += 1;
                threads.pause(APPEND_PAUSE);
            }
        }),
    )?;
    let ends = Arc::clone(&is_ending);
    drop(env.threads.spawn(
        "input",
        Box::new(move || {
            // Whatever ends the input ends the load.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            ends.store(true, Ordering::Relaxed);
        }),
    )?);
    let mut backup = None;
    while !is_ending.load(Ordering::Relaxed) {
        back_up(&store, &objects, &mut backup)?;
        env.threads.pause(APPEND_PAUSE);
    }
    appender.join();
    back_up(&store, &objects, &mut backup)?;
    Ok(())
}

fn append(store: &Store, number: usize) -> umbel_events::Result<()> {
    let data = vec![number as u8; DATA_BYTES[number % DATA_BYTES.len()]];
    let event = NewEvent::binary(store.new_id()?, "Counted", &data);
    let stream = format!("load-{}", number % 5);
    store.append(&stream, ExpectedVersion::Any, &[event]).map(drop)
}

/// Backs up once. The backup is opened by its first run, for which the store must answer.
fn back_up(
    store: &Store,
    objects: &Arc<dyn Objects>,
    backup: &mut Option<ObjectBackup>,
) -> std::io::Result<()> {
    let opened = match backup.take() {
        Some(opened) => Ok(opened),
        None => store.object_backup(Arc::clone(objects), ObjectBackupOptions::default()),
    };
    let line = match opened.and_then(|opened| {
        let report = opened.run_once();
        *backup = Some(opened);
        report
    }) {
        Ok(report) => format!("backed up {}", report.through.0),
        Err(error) => format!("failed {error}"),
    };
    let mut output = std::io::stdout();
    writeln!(output, "{line}")?;
    output.flush()
}
