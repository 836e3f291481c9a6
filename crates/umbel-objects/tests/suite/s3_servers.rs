//! The S3 backend and the probe against a server of another project.
//!
//! The test command starts the server and names it in `UMBEL_TEST_S3` and the variables below it.
//! Without them each test says that it is skipped.

use std::sync::Arc;

use umbel_env::skipped_test::print_skipped;
use umbel_env::{Creation, Env, ObjectErrorKind, ObjectName, Objects};
use umbel_objects::{Probe, ProbeVerdict, Variables, open_with};
use umbel_sim::Random;

/// Number of probes. `cargo xtask objects` makes a hundred.
const PROBES: u32 = 3;

/// A server with a bucket.
struct Server {
    endpoint: String,
    bucket: String,
    access_key: (String, String),
}

/// Returns the server of the test command; `None` without one.
fn server(test: &str) -> Option<Server> {
    let Ok(endpoint) = std::env::var("UMBEL_TEST_S3") else {
        print_skipped(&format!("{test} in an S3 server"), "UMBEL_TEST_S3 names no server");
        return None;
    };
    let bucket = std::env::var("UMBEL_TEST_S3_BUCKET").unwrap();
    Some(Server { endpoint, bucket, access_key: key("UMBEL_TEST_S3_ID", "UMBEL_TEST_S3_SECRET") })
}

fn key(id: &str, secret: &str) -> (String, String) {
    (std::env::var(id).unwrap(), std::env::var(secret).unwrap())
}

impl Server {
    /// Opens an own prefix of the bucket.
    fn open(&self) -> Arc<dyn Objects> {
        self.open_as(&self.bucket, &self.access_key, "")
    }

    fn open_as(
        &self,
        bucket: &str,
        (id, secret): &(String, String),
        options: &str,
    ) -> Arc<dyn Objects> {
        let env = Env::system();
        let variables = Variables::new([
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", id),
            ("AWS_SECRET_ACCESS_KEY", secret),
        ]);
        let prefix = u64::from_le_bytes(env.entropy.id().unwrap()[..8].try_into().unwrap());
        let url = format!("s3://{bucket}/umbel-test/{prefix:016x}{options}");
        open_with(&env, &url, &variables).unwrap()
    }
}

#[test]
fn probe_finds_a_real_store_suitable() {
    let Some(server) = server("probe") else { return };
    let env = Env::system();
    for _ in 0..PROBES {
        let store = server.open();
        let report = Probe::new(&env, &*store).unwrap().run();
        assert_eq!(report.verdict(), ProbeVerdict::Suitable, "{report:?}");
        assert_eq!(report.leftover_prefix, None);
        assert!(store.list("", None, 9).unwrap().value.objects.is_empty());
    }
}

#[test]
fn large_objects_are_written_in_parts() {
    let Some(server) = server("large objects") else { return };
    let store = server.open();
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

#[test]
fn wrong_buckets_and_credentials_are_refused_with_a_remedy() {
    let Some(server) = server("wrong credentials") else { return };
    let name = ObjectName::new("a").unwrap();
    let (id, secret) = server.access_key.clone();
    let reader = key("UMBEL_TEST_S3_READER_ID", "UMBEL_TEST_S3_READER_SECRET");
    let with = |bucket: &str, key: (String, String)| server.open_as(bucket, &key, "");
    let bucket = server.bucket.as_str();
    for (store, kind, remedy) in [
        (
            with("no-such-bucket", (id.clone(), secret.clone())),
            ObjectErrorKind::Refused,
            "create the bucket",
        ),
        (
            with(bucket, (id, "wrong".into())),
            ObjectErrorKind::Denied,
            "check AWS_SECRET_ACCESS_KEY",
        ),
        (
            with(bucket, ("AKIAUNKNOWN".into(), secret)),
            ObjectErrorKind::Denied,
            "check AWS_ACCESS_KEY_ID",
        ),
        (with(bucket, reader.clone()), ObjectErrorKind::Denied, "grant the rights"),
    ] {
        let error = store.create(&name, b"x").unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(remedy), "{error}");
    }
    // The right to read does not depend on the right to write.
    assert_eq!(with(bucket, reader).read(&name, 0..9).unwrap().value, None);
}

/// The server stores the encryption that a request asks for, and refuses an unknown one.
#[test]
fn encryption_is_asked_for() {
    let Some(server) = server("encryption") else { return };
    let name = ObjectName::new("a").unwrap();
    for options in ["?sse=AES256", "?sse=aws%3Akms&sse-kms-key-id=alias%2Fown"] {
        let store = server.open_as(&server.bucket, &server.access_key, options);
        assert_eq!(store.create(&name, b"x").unwrap().value, Creation::Created, "{options}");
        let large = Random::new(1).bytes(17 << 20);
        store.put(&ObjectName::new("b").unwrap(), &large).unwrap();
        assert_eq!(store.read(&name, 0..9).unwrap().value.unwrap().bytes, b"x");
    }
}
