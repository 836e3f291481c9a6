//! [`InProcessServer`]: a server in the process of the test, whose disk has the space that the test
//! chooses.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_env::{DiskSpace, Env, ProcessUsage, Resources};
use umbel_events::{Store, StoreOptions};
use umbel_server::{BootstrapPasswords, CertificateStore, Config, Pem, Running, Secret, Server};

use super::doctor::PASSWORDS;
use super::test_binary::Fixture;

/// A disk with enough space.
pub const ROOMY_DISK: DiskSpace = DiskSpace { total_bytes: 100 << 30, available_bytes: 50 << 30 };

/// The resources of this machine, apart from the space of its disks.
#[derive(Debug)]
struct ResourcesWithDisk {
    machine: Arc<dyn Resources>,
    disk: Option<DiskSpace>,
}

impl Resources for ResourcesWithDisk {
    fn memory_bytes(&self) -> Option<u64> {
        self.machine.memory_bytes()
    }

    fn open_files_max(&self) -> Option<u64> {
        self.machine.open_files_max()
    }

    fn process_usage(&self) -> Option<ProcessUsage> {
        self.machine.process_usage()
    }

    fn disk_space(&self, _path: &Path) -> Option<DiskSpace> {
        self.disk
    }
}

/// Certificate and key in files.
#[derive(Debug)]
struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
}

impl CertificateStore for CertificateFiles {
    fn read(&self) -> io::Result<Pem> {
        Ok(Pem {
            certificates: std::fs::read(&self.certificate)?,
            key: std::fs::read(&self.key)?,
            authorities: Vec::new(),
        })
    }

    fn report(&self, problem: &str) {
        panic!("{problem}");
    }

    fn report_replacement(&self, _news: &str) {}
}

/// A server on the event store of a fixture.
pub struct InProcessServer {
    store: Store,
    running: Running,
}

impl InProcessServer {
    /// Starts a server without encryption and users. `None` is a disk whose space is unknown.
    pub fn start(fixture: &Fixture, disk: Option<DiskSpace>) -> InProcessServer {
        InProcessServer::with(fixture, disk, Config::default())
    }

    /// Starts a server that encrypts with this certificate and key, and has users with
    /// [`PASSWORDS`].
    pub fn start_secure(fixture: &Fixture, certificate: &str, key: &str) -> InProcessServer {
        let files = CertificateFiles { certificate: certificate.into(), key: key.into() };
        let [(_, admin), (_, ops)] = PASSWORDS;
        let secret = |password| Some(Secret::new(password));
        let users = BootstrapPasswords { admin: secret(admin), ops: secret(ops) };
        let tls = Some(Arc::new(files) as Arc<dyn CertificateStore>);
        let config = Config { users: Some(users), tls, ..Config::default() };
        InProcessServer::with(fixture, Some(ROOMY_DISK), config)
    }

    fn with(fixture: &Fixture, disk: Option<DiskSpace>, config: Config) -> InProcessServer {
        let env = Env::system();
        let machine = Arc::clone(&env.resources);
        let env = Env { resources: Arc::new(ResourcesWithDisk { machine, disk }), ..env };
        let store = Store::open(fixture.store(), StoreOptions::default()).unwrap();
        let config = Config { env, listen: "127.0.0.1:0".parse().unwrap(), ..config };
        let running = Server::start(store.clone(), config).unwrap();
        InProcessServer { store, running }
    }

    /// Port that the server listens on.
    pub fn port(&self) -> u16 {
        self.running.address().port()
    }

    /// Stops the server and closes its store.
    pub fn stop(self) {
        self.running.shutdown();
        self.store.close().unwrap();
    }
}
