//! What the bare server does with appends: nothing, or one write and one sync for all who wait.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::oneshot;

/// Bytes of the file, all written before the first append, so that a sync has only data to write.
const FILE_BYTES: usize = 64 << 20;

type Waiting = (Vec<u8>, oneshot::Sender<()>);

/// Where appends go.
#[derive(Debug, Clone)]
pub(super) enum Sink {
    /// Nowhere.
    Nowhere,
    /// To a file, each acknowledged once it is synced.
    Synced(Sender<Waiting>),
}

impl Sink {
    /// Begins with a file of its own, in a thread of the runtime's for work that blocks.
    ///
    /// REQUIRES: called inside a runtime.
    pub(super) fn synced(path: &Path) -> io::Result<Sink> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(path)?;
        file.write_all(&vec![0; FILE_BYTES])?;
        file.sync_all()?;
        file.seek(SeekFrom::Start(0))?;
        let (sender, receiver) = channel();
        tokio::task::spawn_blocking(move || {
            if let Err(error) = write_all(&mut file, &receiver) {
                eprintln!("the bare server could not write: {error}");
            }
        });
        Ok(Sink::Synced(sender))
    }

    /// Ends once these bytes are kept as well as the sink keeps anything. False: it failed.
    pub(super) async fn keep(&self, bytes: impl FnOnce() -> Vec<u8>) -> bool {
        match self {
            Sink::Nowhere => true,
            Sink::Synced(sender) => {
                let (done, wait) = oneshot::channel();
                sender.send((bytes(), done)).is_ok() && wait.await.is_ok()
            }
        }
    }
}

fn write_all(file: &mut File, receiver: &Receiver<Waiting>) -> io::Result<()> {
    let mut at = 0;
    while let Ok(first) = receiver.recv() {
        let waiting: Vec<Waiting> = std::iter::once(first).chain(receiver.try_iter()).collect();
        let bytes: Vec<u8> = waiting.iter().flat_map(|(bytes, _)| bytes).copied().collect();
        if at + bytes.len() > FILE_BYTES {
            at = 0;
            file.seek(SeekFrom::Start(0))?;
        }
        at += bytes.len();
        file.write_all(&bytes)?;
        file.sync_data()?;
        for (_, done) in waiting {
            // Who went away does not want to know.
            let _ = done.send(());
        }
    }
    Ok(())
}
