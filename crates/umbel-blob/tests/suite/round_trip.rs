//! Written values are read back.

use umbel_base::Error;
use umbel_blob::{BlobReader, CHUNK_BYTES, file_bytes};

use super::fixture::{machine, open, path, read, value, write};

#[test]
fn values_around_chunk_and_piece_sizes_round_trip() {
    let sim = machine();
    let mut lens = vec![1, 2, 63, 64, 65];
    for chunks in [1, 2, 15, 16, 17, 32] {
        lens.extend([chunks * CHUNK_BYTES - 1, chunks * CHUNK_BYTES, chunks * CHUNK_BYTES + 1]);
    }
    for (id, len) in (1..).zip(lens) {
        let expected = value(id as u8, len);
        let pointer = write(&sim, id, &expected).unwrap();
        assert_eq!((pointer.id, pointer.value_bytes), (id, len as u64));
        assert_eq!(open(&sim, id).len().unwrap(), file_bytes(len as u64));
        assert!(read(&sim, &pointer).unwrap() == expected, "{len} bytes");
        let blob = BlobReader::open_standalone(open(&sim, id), id).unwrap();
        assert_eq!(*blob.pointer(), pointer);
        blob.verify().unwrap();
    }
}

#[test]
fn values_survive_power_loss_after_directory_sync() {
    let sim = machine();
    let pointer = write(&sim, 3, &value(3, 100_000)).unwrap();
    sim.env().files.sync_dir(std::path::Path::new("/blobs")).unwrap();
    sim.env().files.sync_dir(std::path::Path::new("/")).unwrap();
    let after = sim.crash_image(&umbel_sim::Survival::None, 1);
    assert!(read(&after, &pointer).unwrap() == value(3, 100_000));
}

#[test]
fn full_disk_refuses_a_value_before_any_write() {
    let sim = machine();
    sim.set_capacity(1 << 20);
    let refused = write(&sim, 1, &value(1, 2 << 20));
    assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
    assert!(!sim.sites().keys().any(|site| site.starts_with("write")));
}

#[test]
fn an_empty_value_and_one_over_the_limit_are_refused() {
    let sim = machine();
    assert!(matches!(write(&sim, 1, &[]), Err(Error::Invalid(_))));
    let over = vec![0; umbel_base::limits::VALUE_BYTES_MAX + 1];
    assert!(matches!(write(&sim, 2, &over), Err(Error::Invalid(_))));
    assert!(sim.read(path(1)).is_empty());
}
