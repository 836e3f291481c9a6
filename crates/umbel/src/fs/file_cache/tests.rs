//! Tests of the pool of descriptors.

use std::collections::VecDeque;

use umbel_env::Env;

use super::*;
use crate::patient_files::PatientFiles;

/// A file system that has only so many descriptors.
#[derive(Debug)]
struct Scarce {
    files: Arc<dyn FileSystem>,
    left: Arc<AtomicU64>,
}

#[derive(Debug)]
struct ScarceFile {
    file: Arc<dyn File>,
    left: Arc<AtomicU64>,
}

impl Drop for ScarceFile {
    fn drop(&mut self) {
        self.left.fetch_add(1, Ordering::Relaxed);
    }
}

impl File for ScarceFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn identity(&self) -> Result<FileIdentity> {
        self.file.identity()
    }
    fn len(&self) -> Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }
    fn preallocate(&self, len: u64) -> Result<()> {
        self.file.preallocate(len)
    }
    fn sync(&self) -> Result<()> {
        self.file.sync()
    }
    fn map(&self, len: u64) -> Result<Option<Box<dyn Mapping>>> {
        self.file.map(len)
    }
}

impl Scarce {
    fn take(
        &self,
        file: impl FnOnce() -> Result<Arc<dyn File>>,
        path: &Path,
    ) -> Result<Arc<dyn File>> {
        let less = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err() {
            return Err(Error::io("open", path, std::io::Error::from_raw_os_error(24)));
        }
        Ok(Arc::new(ScarceFile { file: file()?, left: Arc::clone(&self.left) }))
    }
}

impl FileSystem for Scarce {
    umbel_env::pass_on! {
        files: absolute reaches place identity innermost create_dir_all rename exchange hard_link
            remove_file remove_dir read_dir exists sync_dir lock pin
    }

    fn hold(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let inner = self.files.hold(path)?;
        Ok(Arc::new(Scarce { files: inner, left: Arc::clone(&self.left) }))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.take(|| self.files.create(path), path)
    }
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.take(|| self.files.open(path, access), path)
    }
}

struct World {
    folder: tempfile::TempDir,
    files: Arc<dyn FileSystem>,
    left: Arc<AtomicU64>,
}

fn world(descriptors: u64) -> World {
    let left = Arc::new(AtomicU64::new(descriptors));
    let files = Arc::new(Scarce { files: Env::system().files, left: Arc::clone(&left) });
    World { folder: tempfile::tempdir().unwrap(), files, left }
}

impl World {
    fn path(&self, number: u8) -> PathBuf {
        self.folder.path().join(format!("{number}"))
    }

    fn make(&self, number: u8) {
        self.files.create(&self.path(number)).unwrap().write_all_at(&[number; 9], 0).unwrap();
    }
}

fn read(file: &Arc<PooledFile>) -> Result<u8> {
    let mut bytes = [0; 9];
    PooledHandle(Arc::clone(file)).read_exact_at(&mut bytes, 0)?;
    Ok(bytes[8])
}

#[test]
fn more_files_than_may_be_open_are_read() {
    let world = world(1000);
    let pool = Descriptors::new(Arc::clone(&world.files), 5);
    let mut files = Vec::new();
    for number in 0..40 {
        world.make(number);
        files.push(pool.open(&world.path(number)).unwrap());
        assert!(pool.summary()[1] <= 5);
    }
    let mut order: VecDeque<u8> = (0..40).collect();
    for step in 0..400 {
        order.rotate_left(step % 7);
        assert_eq!(read(&files[usize::from(order[0])]).unwrap(), order[0]);
        assert!(pool.summary()[1] <= 5, "at step {step}");
        assert_eq!(world.left.load(Ordering::Relaxed), 1000 - pool.summary()[1]);
    }
    assert!(pool.summary()[2] > 100, "files were opened again");
    files.truncate(3);
    drop(files);
    assert_eq!((pool.summary()[1], world.left.load(Ordering::Relaxed)), (0, 1000));
}

#[test]
fn a_shortage_takes_from_the_pool_and_is_an_error_only_when_the_pool_is_empty() {
    let world = world(8);
    let pool = Descriptors::new(Arc::clone(&world.files), 100);
    let patient = PatientFiles::new(Arc::clone(&world.files), Arc::clone(&pool));
    for number in 0..20 {
        world.make(number);
    }
    let pooled: Vec<_> = (0..20).map(|number| pool.open(&world.path(number)).unwrap()).collect();
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(patient.open(&world.path(0), Access::Read).unwrap());
    }
    let refused = patient.open(&world.path(0), Access::Read).unwrap_err();
    assert!(refused.is_short_of_descriptors(), "{refused}");
    assert!(read(&pooled[7]).unwrap_err().is_short_of_descriptors());
    held.pop();
    for (number, file) in pooled.iter().enumerate() {
        assert_eq!(usize::from(read(file).unwrap()), number, "it passes");
    }
    pool.end();
    assert!(matches!(read(&pooled[0]), Err(Error::Closed)));
}

/// A table's file was opened again by its name alone. A program put another table with the same id
/// there, and its blocks were read as those of the table whose index was in memory: wrong values
/// without an error.
#[test]
fn another_file_that_has_the_name_is_noticed_when_it_is_opened_again() {
    let world = world(1000);
    let pool = Descriptors::new(Arc::clone(&world.files), 5);
    world.make(1);
    let file = pool.open(&world.path(1)).unwrap();
    let put_there = |bytes: &[u8]| {
        file.close();
        world.files.remove_file(&world.path(1)).unwrap();
        world.files.create(&world.path(1)).unwrap().write_all_at(bytes, 0).unwrap();
    };
    let is_noticed = || matches!(read(&file), Err(Error::Replaced { .. }));
    put_there(&[2; 9]);
    assert!(is_noticed(), "another file as long as the first");
    put_there(&[1; 10]);
    assert!(is_noticed(), "a longer file");
    // A copy-up of overlayfs: another identity, the same bytes.
    put_there(&[1; 9]);
    assert_eq!(read(&file).unwrap(), 1);
    // The same identity, other bytes.
    file.close();
    let opened = world.files.open(&world.path(1), Access::ReadWrite).unwrap();
    opened.write_all_at(&[3; 9], 0).unwrap();
    assert!(is_noticed(), "a file that was written over");
}
