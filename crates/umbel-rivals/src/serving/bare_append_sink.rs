//! Appends of the bare server, which do nothing, or share one write and one sync among all waiting
//! calls.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::oneshot;

/// Bytes of the file, all written before the first append, so that a sync has only data to write.
const FILE_BYTES: usize = 64 << 20;

type PendingAppend = (Vec<u8>, oneshot::Sender<()>);

/// Destination of appends.
#[derive(Debug, Clone)]
pub(super) enum AppendSink {
    /// Appends are dropped.
    Nowhere,
    /// Appends go to a file, and each is acknowledged once it is synced.
    Synced(Sender<PendingAppend>),
}

impl AppendSink {
    /// Opens the file and starts a blocking thread of the runtime for it.
    ///
    /// REQUIRES: the caller is inside a runtime.
    pub(super) fn synced(path: &Path) -> io::Result<AppendSink> {
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
        Ok(AppendSink::Synced(sender))
    }

    /// Returns after the bytes are as durable as the sink makes them; returns `false` after an
    /// error.
    pub(super) async fn append(&self, bytes: impl FnOnce() -> Vec<u8>) -> bool {
        match self {
            AppendSink::Nowhere => true,
            AppendSink::Synced(sender) => {
                let (done, wait) = oneshot::channel();
                sender.send((bytes(), done)).is_ok() && wait.await.is_ok()
            }
        }
    }
}

fn write_all(file: &mut File, receiver: &Receiver<PendingAppend>) -> io::Result<()> {
    let mut at = 0;
    while let Ok(first) = receiver.recv() {
        let waiting: Vec<PendingAppend> =
            std::iter::once(first).chain(receiver.try_iter()).collect();
        let bytes: Vec<u8> = waiting.iter().flat_map(|(bytes, _)| bytes).copied().collect();
        if at + bytes.len() > FILE_BYTES {
            at = 0;
            file.seek(SeekFrom::Start(0))?;
        }
        at += bytes.len();
        file.write_all(&bytes)?;
        file.sync_data()?;
        for (_, done) in waiting {
            // A cancelled call needs no answer.
            let _ = done.send(());
        }
    }
    Ok(())
}
