//! A simulated machine with a crash disk, behind the traits of `umbel-env`. For tests only.
//!
//! [`Sim::env`] gives the engine a world in memory. The test keeps the [`Sim`]: it plans what goes
//! wrong, takes the power away, and asks what a disk could hold afterwards. Everything is a
//! function of the seed and the calls; the clock moves only when somebody calls.
//!
//! # The fault model
//!
//! Two states exist of everything: what the page cache shows, which every call works on, and what
//! is durable, which a power loss leaves. Between them lie the **pending units**: one write, one
//! store into a mapping, one change of a length, one change of names. All units have one order.
//!
//! *Files.* `sync` makes the bytes and the length of one file durable, and not its name. A file
//! that was synced but whose directory was not is gone after a power loss; a name may be there
//! while its file is empty. A write survives whole, not at all, or **torn**: any subset of its
//! 512-byte sectors, in any order of position, not only a prefix. The length it gave the file may
//! survive without any of its bytes, which then read as zeros. Under [`Survival::Garbage`] a
//! surviving sector may hold anything where the write changed it. Two things are assumed of the
//! medium, as `docs/PROMISES.md` says: bytes that a write does not change are left alone even in a
//! sector of which it changes others (the page cache, too, writes whole pages), and what a
//! successful sync covered stays until somebody damages it by hand.
//!
//! *Names.* Creating, linking, renaming and removing are units of the directory, and `sync_dir`
//! makes those of one directory durable. Each survives by itself: the removal of the old log may be
//! there while the rename of `CURRENT` before it is not. A rename is never half there, between two
//! directories neither, and then the sync of either one settles it. A new directory is a name in
//! its parent: until that is synced, everything in it can vanish. Of two changes to the same name
//! the earlier never undoes the later.
//!
//! *Mapped files.* Each store is a numbered call and a unit of its own, so that a crash lies inside
//! the copy of a group of records too, and pages reach the disk in any order. A map wants its bytes
//! reserved by `preallocate` first, and a store behind a cut end is an error here where the real
//! process would die.
//!
//! *Process death* ([`Sim::kill_image`]) loses locks and handles and nothing else; what was pending
//! is pending still, so that a power loss after the restart can take it.
//!
//! *Power loss* ([`Sim::crash_image`]) chooses the survivors by a [`Survival`] policy;
//! [`Sim::crash_images_exhaustive`] tries every subset where they are few. [`Sim::crash_at`] puts
//! the moment before or after any call: then even the calls made while the engine recovers, and
//! the error handling after the loss, can do no more harm.
//!
//! *Failing calls* ([`Sim::fail_at`], [`Sim::fail_site`]) fail once or for ever, with errors that
//! call can really give. A failing write may have taken some sectors. A failing `sync` of a file
//! **gives its dirty bytes up**: reads still show them (or not, [`Sim::revert_on_failed_sync`]),
//! the next sync succeeds, and after a power loss they are gone. A failing `sync_dir` leaves the
//! names pending. Interrupted and short system calls are dealt with below the traits and do not
//! appear.
//!
//! *A lying disk* ([`Sim::lying_disk`]) says that it synced. No engine survives that; one can only
//! fail to open with an honest error.
//!
//! *A full disk* ([`Sim::set_capacity`]) counts the lengths of named files in pages. A write takes
//! what fits before it fails. Growing by `set_len` costs nothing until it is counted, as in sparse
//! files. Names cost nothing.
//!
//! *Directories* have an identity of their own. A process has a current directory
//! ([`Sim::set_current_dir`]), at which relative paths begin. It may hold directories open.
//! An operator renames, copies, removes and mounts directories between any two calls
//! ([`Sim::move_path`], [`Sim::copy_tree`], [`Sim::remove_tree`], [`Sim::mount`]), also in the
//! middle of what the engine does ([`Sim::before_call`]). A held directory stays what it was. A
//! mount can refuse changes, as a read-only one does.
//!
//! *Rot* is done by hand: [`Sim::flip`], [`Sim::zero_sector`], [`Sim::truncate`],
//! [`Sim::swap_blocks`], [`Sim::swap_files`], [`Sim::restore_block`] (a write the disk lost) and so
//! on.
//!
//! Not modelled: running out of memory, failing reads of single sectors, symbolic links, other
//! processes, and wear. `Threads` are real ones, so that only an engine without background threads
//! is deterministic.
//!
//! # Proving that a test can fail
//!
//! Each call has a **site**, its operation and the class of its file, such as `sync *.log` or
//! `rename CURRENT.tmp to CURRENT`. [`Sim::sites`] lists those reached, so that a report can show
//! what was never tried. [`Sim::ignore_calls`] leaves the calls of a site out, as a programmer
//! would who forgot them: a campaign that still passes with `sync_dir` ignored is worth nothing.
//! [`Sim::calls_ignored`] says whether the planted bug was reached at all.
//!
//! # Cost
//!
//! Bytes are held in shared pages of 4 KiB, so that an image costs about as much as its pending
//! units and a reserved range of zeros costs nothing.
#![forbid(unsafe_code)]

mod call;
mod content;
mod directories;
mod disk;
mod files;
mod moves;
mod plan;
mod random;
mod rot;
mod sim;
mod site;
mod survival;
mod world;

pub use directories::Mount;
pub use plan::{Fault, FaultKind, When};
pub use sim::{CrashImages, EXHAUSTIVE_UNITS_MAX, Sim};
pub use survival::{SECTOR_BYTES, Survival};
