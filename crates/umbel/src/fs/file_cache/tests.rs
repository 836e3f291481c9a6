//! Tests of the file cache.

use std::collections::VecDeque;

use umbel_env::Env;

use super::*;
use crate::fs::retrying_files::RetryingFiles;

/// A file system with a limited number of descriptors.
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
    fn modified_micros(&self) -> Result<u64> {
        self.file.modified_micros()
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
    umbel_env::delegate_calls! {
        files: absolute reaches directory_location identity innermost create_dir_all rename exchange
            hard_link remove_file remove_dir read_dir exists sync_dir lock pin
    }

    fn open_directory(&self, path: &Path) -> Result<Arc<dyn FileSystem>> {
        let inner = self.files.open_directory(path)?;
        Ok(Arc::new(Scarce { files: inner, left: Arc::clone(&self.left) }))
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.take(|| self.files.create(path), path)
    }
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.take(|| self.files.open(path, access), path)
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    files: Arc<dyn FileSystem>,
    left: Arc<AtomicU64>,
}

fn fixture(descriptors: u64) -> Fixture {
    let left = Arc::new(AtomicU64::new(descriptors));
    let files = Arc::new(Scarce { files: Env::system().files, left: Arc::clone(&left) });
    Fixture { folder: tempfile::tempdir().unwrap(), files, left }
}

impl Fixture {
    fn path(&self, number: u8) -> PathBuf {
        self.folder.path().join(format!("{number}"))
    }

    fn make(&self, number: u8) {
        self.files.create(&self.path(number)).unwrap().write_all_at(&[number; 9], 0).unwrap();
    }
}

fn read(file: &Arc<CachedFile>) -> Result<u8> {
    let mut bytes = [0; 9];
    CachedFileHandle(Arc::clone(file)).read_exact_at(&mut bytes, 0)?;
    Ok(bytes[8])
}

#[test]
fn reads_more_files_than_the_limit() {
    let fixture = fixture(1000);
    let pool = FileCache::new(Arc::clone(&fixture.files), 5);
    let mut files = Vec::new();
    for number in 0..40 {
        fixture.make(number);
        files.push(pool.open(&fixture.path(number)).unwrap());
        assert!(pool.summary()[1] <= 5);
    }
    let mut order: VecDeque<u8> = (0..40).collect();
    for step in 0..400 {
        order.rotate_left(step % 7);
        assert_eq!(read(&files[usize::from(order[0])]).unwrap(), order[0]);
        assert!(pool.summary()[1] <= 5, "at step {step}");
        assert_eq!(fixture.left.load(Ordering::Relaxed), 1000 - pool.summary()[1]);
    }
    assert!(pool.summary()[2] > 100, "files were opened again");
    files.truncate(3);
    drop(files);
    assert_eq!((pool.summary()[1], fixture.left.load(Ordering::Relaxed)), (0, 1000));
}

#[test]
fn descriptor_shortage_fails_only_with_an_empty_pool() {
    let fixture = fixture(8);
    let pool = FileCache::new(Arc::clone(&fixture.files), 100);
    let patient = RetryingFiles::new(Arc::clone(&fixture.files), Arc::clone(&pool));
    for number in 0..20 {
        fixture.make(number);
    }
    let pooled: Vec<_> = (0..20).map(|number| pool.open(&fixture.path(number)).unwrap()).collect();
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(patient.open(&fixture.path(0), Access::Read).unwrap());
    }
    let refused = patient.open(&fixture.path(0), Access::Read).unwrap_err();
    assert!(refused.is_out_of_descriptors(), "{refused}");
    assert!(read(&pooled[7]).unwrap_err().is_out_of_descriptors());
    held.pop();
    for (number, file) in pooled.iter().enumerate() {
        assert_eq!(usize::from(read(file).unwrap()), number, "it passes");
    }
    pool.shut_down();
    assert!(matches!(read(&pooled[0]), Err(Error::Closed)));
}

/// A table's file was reopened by its name alone, after a program had put another table with the
/// same id in its place. The second table's blocks were read with the first table's index, which
/// gave wrong values without an error.
#[test]
fn replaced_file_is_detected_on_reopen() {
    let fixture = fixture(1000);
    let pool = FileCache::new(Arc::clone(&fixture.files), 5);
    fixture.make(1);
    let file = pool.open(&fixture.path(1)).unwrap();
    let replace_file = |bytes: &[u8]| {
        file.close();
        fixture.files.remove_file(&fixture.path(1)).unwrap();
        fixture.files.create(&fixture.path(1)).unwrap().write_all_at(bytes, 0).unwrap();
    };
    let is_noticed = || matches!(read(&file), Err(Error::Replaced { .. }));
    replace_file(&[2; 9]);
    assert!(is_noticed(), "another file as long as the first");
    replace_file(&[1; 10]);
    assert!(is_noticed(), "a longer file");
    // A copy-up of overlayfs: another identity, the same bytes.
    replace_file(&[1; 9]);
    assert_eq!(read(&file).unwrap(), 1);
    // The same identity, other bytes.
    file.close();
    let opened = fixture.files.open(&fixture.path(1), Access::ReadWrite).unwrap();
    opened.write_all_at(&[3; 9], 0).unwrap();
    assert!(is_noticed(), "a file that was written over");
}
