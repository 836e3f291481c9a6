//! The S3 backend and the probe against a real server.
//!
//! `UMBEL_TEST_S3` has the endpoint, `UMBEL_TEST_S3_BUCKET` an existing bucket. Credentials come
//! from the environment.

use umbel_env::{Creation, Env, ObjectName, Objects};
use umbel_objects::{Probe, ProbeVerdict, S3Objects, S3Options};
use umbel_sim::Random;

fn open() -> S3Objects {
    let id = u64::from_le_bytes(Env::system().entropy.id().unwrap()[..8].try_into().unwrap());
    let options = S3Options {
        bucket: std::env::var("UMBEL_TEST_S3_BUCKET").unwrap(),
        prefix: format!("umbel-test/{id:016x}"),
        endpoint: Some(std::env::var("UMBEL_TEST_S3").unwrap()),
        access_key: None,
    };
    S3Objects::open(&options).unwrap()
}

#[test]
#[ignore = "needs an S3 server: UMBEL_TEST_S3=http://127.0.0.1:5555 UMBEL_TEST_S3_BUCKET=b"]
fn real_store_is_suitable() {
    let env = Env::system();
    for _ in 0..5 {
        let store = open();
        let report = Probe::new(&env, &store).unwrap().run();
        assert_eq!(report.verdict(), ProbeVerdict::Suitable, "{report:?}");
        assert_eq!(report.leftover_prefix, None);
        assert!(store.list("", None, 9).unwrap().value.objects.is_empty());
    }
}

#[test]
#[ignore = "needs an S3 server: UMBEL_TEST_S3=http://127.0.0.1:5555 UMBEL_TEST_S3_BUCKET=b"]
fn large_objects_are_written_in_parts() {
    let store = open();
    let bytes = Random::new(1).bytes((20 << 20) + 7);
    let name = ObjectName::new("chunks/1-a").unwrap();
    store.put(&name, &bytes).unwrap();
    let found = store.read(&name, 0..1 << 30).unwrap().value.unwrap();
    assert!(found.bytes == bytes);
    let found = store.read(&name, 9 << 20..(9 << 20) + 5).unwrap().value.unwrap();
    assert_eq!(found.bytes, bytes[9 << 20..(9 << 20) + 5]);
    assert_eq!(store.create(&name, b"x").unwrap().value, Creation::Exists);
    store.delete(&name).unwrap();
    store.delete(&name).unwrap();
    assert_eq!(store.read(&name, 0..1).unwrap().value, None);
}
