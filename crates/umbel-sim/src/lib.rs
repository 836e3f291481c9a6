//! A simulated machine with a crash disk, which implements the traits of `umbel-env`. For tests
//! only.
//!
//! [`Sim::env`] gives the engine a world in memory. The test keeps the [`Sim`]: it plans
//! faults, cuts the power, and asks for images that a disk could hold afterwards. Everything is a
//! function of the seed and the calls; the clock moves only when a thread calls.
//!
//! # The fault model
//!
//! Everything has two states: the page cache, which every call works on, and the durable
//! state, which a power loss leaves. Between them lie the **pending units**: one write, one
//! store into a mapping, one change of a length, one change of names. All units have one order.
//!
//! *Files.* `sync` makes the bytes and the length of one file durable, but not its name. A synced
//! file whose directory was not synced is lost after a power loss; a name may survive
//! while its file is empty. A write survives whole, not at all, or **torn**: any subset of its
//! 512-byte sectors, in any order of position, not only a prefix. The length it gave the file may
//! survive without any of its bytes, which then read as zeros. Under [`Survival::Garbage`] a
//! surviving sector may hold anything where the write changed it. Two assumptions about the
//! medium hold, as `docs/PROMISES.md` says. Bytes that a write does not change keep their values,
//! even in a sector of which it changes others (the page cache, too, writes whole pages). Data that
//! a successful sync covered stays until a test damages it manually.
//!
//! *Names.* Creating, linking, renaming and removing are units of the directory, and `sync_dir`
//! makes those of one directory durable. Each survives by itself: the removal of the old log may
//! survive while the earlier rename of `CURRENT` does not. A rename is atomic, even between two
//! directories, where the sync of either one makes it durable. A new directory is a name in
//! its parent: until that is synced, everything in it can vanish. Of two changes to the same name
//! the earlier never undoes the later.
//!
//! *Mapped files.* Each store is a numbered call and a unit of its own. So a crash can hit the
//! middle of a copy of a group of records, and pages reach the disk in any order. A map needs its
//! bytes reserved by `preallocate` first. A store after a truncation is an error here where the
//! real process would die.
//!
//! *Process death* ([`Sim::kill_image`]) loses locks and handles and nothing else. Pending units
//! stay pending, so that a power loss after the restart can still lose them.
//!
//! *Power loss* ([`Sim::crash_image`]) chooses the survivors by a [`Survival`] policy;
//! [`Sim::crash_images_exhaustive`] tries every subset where they are few. [`Sim::crash_at`] puts
//! the moment before or after any call. Later calls of the recovering engine, and
//! its error handling after the loss, can do no more harm.
//!
//! *Failing calls* ([`Sim::fail_at`], [`Sim::fail_site`]) fail once or always, with errors that
//! call can really return. A failing write may have written some sectors. A failing `sync` of a
//! file **drops its dirty bytes**: reads still show them (or not, [`Sim::revert_on_failed_sync`]),
//! the next sync succeeds, and a power loss loses them. A failing `sync_dir` leaves the names
//! pending. Interrupted and short system calls are handled below the traits and do not appear.
//!
//! *A lying disk* ([`Sim::lying_disk`]) reports a sync that it did not do. No engine survives that;
//! an engine can only fail to open with an honest error.
//!
//! *A full disk* ([`Sim::set_capacity`]) counts the lengths of named files in pages. A write takes
//! what fits before it fails. Growth by `set_len` costs nothing until it is counted, as in sparse
//! files. Names cost nothing.
//!
//! *Directories* have an identity of their own. A process has a current directory
//! ([`Sim::set_current_dir`]), at which relative paths begin. It may hold directories open.
//! An operator renames, copies, removes and mounts directories between any two calls
//! ([`Sim::move_path`], [`Sim::copy_tree`], [`Sim::remove_tree`], [`Sim::mount`]), also in the
//! middle of an engine's operation ([`Sim::schedule_before_call`]). A held directory stays the
//! same. A mount can refuse changes, as a read-only one does.
//!
//! *Rot* is manual: [`Sim::flip`], [`Sim::zero_sector`], [`Sim::truncate`],
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
//! the untried ones. [`Sim::ignore_calls`] omits the calls of a site, like a programmer
//! that forgot them: a campaign that still passes with `sync_dir` ignored proves
//! nothing. [`Sim::calls_ignored`] says whether the planted fault was reached at all.
//!
//! # Cost
//!
//! Bytes are held in shared pages of 4 KiB, so that an image costs about as much as its pending
//! units and a reserved range of zeros costs nothing.
#![forbid(unsafe_code)]

mod call_site;
mod corruption;
mod disk;
mod fault_plan;
mod file_content;
mod operator_commands;
mod operator_schedule;
mod power_loss;
mod random;
mod sim;
mod sim_env;
mod sim_files;
mod simulated_machine;

pub use fault_plan::{CrashSide, Fault, FaultKind};
pub use operator_commands::Mount;
pub use power_loss::{SECTOR_BYTES, Survival};
pub use random::{Random, scramble};
pub use sim::{CrashImages, EXHAUSTIVE_UNITS_MAX, Sim};
