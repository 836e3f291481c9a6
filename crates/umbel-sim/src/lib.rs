//! A simulated machine with a crash disk, which implements the traits of `umbel-env`. For tests
//! only.
//!
//! [`Sim::env`] gives the engine an environment in memory. The test keeps the [`Sim`], plans
//! faults, cuts the power, and requests images that a disk could hold after a crash. The seed and
//! the calls decide everything; the clock advances only when a thread makes a call.
//!
//! # The fault model
//!
//! Files and names have two states: the page cache, which every call uses, and the durable state,
//! which a power loss leaves. The difference between the two states are the **pending units**. A
//! unit is one write, one store into a mapping, one change of a length or one change of names. All
//! units have one order.
//!
//! *Files.* `sync` makes the bytes and the length of one file durable, but not its name. A synced
//! file whose directory was not synced is lost after a power loss; a name may survive while its
//! file is empty. A write survives whole, not at all, or **torn**: any subset of its 512-byte
//! sectors, in any order of position, not only a prefix. The file length that a write caused may
//! survive without the written bytes, which then read as zeros. Under [`Survival::Garbage`] a
//! surviving sector may hold any bytes where the write changed it. Two assumptions about the medium
//! hold, as `docs/PROMISES.md` says. First, bytes that a write does not change keep their values,
//! even if the write changes other bytes of their sector. Second, data that a successful sync
//! covered stays until a test damages it manually.
//!
//! *Names.* Creating, linking, renaming and removing are units of the directory, and `sync_dir`
//! makes the units of one directory durable. Each name change survives independently: the removal
//! of the old log may survive while the earlier rename of `CURRENT` does not. A rename is atomic,
//! even between two directories; the sync of either directory makes it durable. A new directory is
//! a name in its parent: until the parent is synced, everything in the new directory can vanish. Of
//! two changes to the same name, the earlier one never undoes the later one.
//!
//! *Mapped files.* Each store is a separate call and a separate unit. So a crash can hit the middle
//! of a copy of a group of records, and pages reach the disk in any order. A mapping needs its
//! bytes reserved by `preallocate` first. A store after a truncation returns an error, while a real
//! process would die.
//!
//! *Process death* ([`Sim::kill_image`]) loses only locks and handles. Pending units stay pending,
//! so that a power loss after the restart can still lose them.
//!
//! *Power loss* ([`Sim::crash_image`]) chooses the survivors by a [`Survival`] policy;
//! [`Sim::crash_images_exhaustive`] tries every subset if the units are few. [`Sim::crash_at`] sets
//! the moment before or after any call. Calls after the power loss, such as the engine's error
//! handling, fail and change nothing.
//!
//! *Failing calls* ([`Sim::fail_at`], [`Sim::fail_site`]) fail once or always, with errors that the
//! call can return on a real system. A failing write may have written some sectors. A failing
//! `sync` of a file **drops its dirty bytes**: reads still show these bytes (unless
//! [`Sim::revert_on_failed_sync`]), the next sync succeeds, and a power loss loses them. A failing
//! `sync_dir` leaves the names pending. Interrupted and short system calls do not occur, since real
//! implementations of the traits handle them.
//!
//! *A lying disk* ([`Sim::lying_disk`]) reports success of a sync that it did not do. An engine
//! cannot keep its data on such a disk; it can only refuse to open with an error that reports the
//! damage.
//!
//! *A full disk* ([`Sim::set_capacity`]) counts the lengths of named files in pages. A write takes
//! what fits before it fails. Growth by `set_len` never fails, as in sparse files, but then counts
//! against the capacity. Names take no space.
//!
//! *Directories* have their own identity. A process has a current directory
//! ([`Sim::set_current_dir`]), at which relative paths begin. A process may hold directories open.
//! An operator renames, copies, removes and mounts directories between any two calls
//! ([`Sim::move_path`], [`Sim::copy_tree`], [`Sim::remove_tree`], [`Sim::mount`]), also in the
//! middle of an engine's operation ([`Sim::schedule_before_call`]). A held directory stays the
//! same, wherever it is moved. A mount can refuse changes, like a read-only mount.
//!
//! *Rot* happens only by calls of a test: [`Sim::flip`], [`Sim::zero_sector`], [`Sim::truncate`],
//! [`Sim::swap_blocks`], [`Sim::swap_files`], [`Sim::restore_block`] (a write the disk lost) and so
//! on.
//!
//! Not modelled: running out of memory, failing reads of single sectors, symbolic links, other
//! processes, and wear. The environment's threads are real, so that only an engine without
//! background threads is deterministic.
//!
//! # Proving that a test can fail
//!
//! Each call has a **site**, its operation and the class of its file, such as `sync *.log` or
//! `rename CURRENT.tmp to CURRENT`. [`Sim::sites`] lists the reached sites, so that a report can
//! show the others. [`Sim::ignore_calls`] omits the calls of a site, as if a programmer had
//! forgotten them: a campaign that still passes with `sync_dir` ignored proves nothing.
//! [`Sim::calls_ignored`] says whether a planted fault was reached.
//!
//! # Object stores
//!
//! [`ObjectSim`] is a store of objects with its own clock and faults, behind
//! [`umbel_env::Objects`].
//!
//! # Cost
//!
//! File contents are in shared pages of 4 KiB. So an image takes about as much memory as its
//! pending units, and a reserved range of zeros takes none.
#![forbid(unsafe_code)]

mod corruption;
mod disk;
mod fault_plan;
mod file_call_class;
mod file_content;
mod objects;
mod operator_commands;
mod operator_schedule;
mod power_loss;
mod random;
mod sim;
mod sim_env;
mod sim_files;
mod simulated_machine;

pub use fault_plan::{CrashSide, Fault, FaultKind};
pub use objects::{
    ConditionMode, FaultRates, ObjectDamage, ObjectFault, ObjectSim, ObjectStoreMode, RequestKind,
    RequestTimes,
};
pub use operator_commands::Mount;
pub use power_loss::{SECTOR_BYTES, Survival};
pub use random::{Random, scramble};
pub use sim::{CrashImages, EXHAUSTIVE_UNITS_MAX, Sim};
