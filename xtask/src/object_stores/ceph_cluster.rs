//! [`CephCluster`]: a whole Ceph of one monitor, one OSD and one S3 gateway, with its files in one
//! folder and its ports on 127.0.0.1.
//!
//! The processes run in the foreground, so that they can be killed. The OSD stores in a file, not
//! in memory, so that objects survive this.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::object_stores::object_server::without_cloud_variables;
use crate::tools::tool_install;

/// Command that installs the programs.
const INSTALL: &str = "apt-get install --no-install-recommends ceph-mon ceph-osd radosgw";
/// Programs of these packages.
const PROGRAMS: [&str; 6] =
    ["ceph", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin"];
/// Id of the cluster, and that of its OSD.
const CLUSTER_ID: &str = "6a5d2b0e-5f0b-4c58-9a3d-0c1f6f0b7a11";
const OSD_ID: &str = "0d9c7f52-8f7e-4f0c-b7a5-51c1e1c4b2d3";
/// Size of the OSD's file, which has holes.
const OSD_BYTES: u64 = 8 << 30;
/// Ports of the OSD, which are after those of the gateway and of the monitor.
const OSD_PORTS: u16 = 8;
/// Time until a command of the cluster ends.
const COMMAND_SECONDS_MAX: &str = "60";

/// A running cluster, whose processes end when this value is dropped.
#[derive(Debug)]
pub struct CephCluster {
    folder: PathBuf,
    port: u16,
    /// Name of each program, and its process.
    processes: Vec<(&'static str, Child)>,
}

/// Returns the version of the installed gateway; `None` if there is none.
pub fn version() -> Option<String> {
    let output = Command::new("radosgw").arg("--version").output().ok()?;
    // "ceph version 16.2.15 (…) pacific (stable)"
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.strip_prefix("ceph version ")?.split_whitespace().next().map(str::to_string)
}

impl CephCluster {
    /// Creates and starts a cluster with files in an empty folder, and with a user that has this
    /// key. Its gateway listens at `port`, and its other processes at the next ports.
    ///
    /// # Errors
    /// A program is not installed, or fails.
    pub fn create(
        folder: PathBuf,
        port: u16,
        id: &str,
        secret: &str,
    ) -> Result<CephCluster, String> {
        for program in PROGRAMS {
            if Command::new(program).arg("--version").output().is_err() {
                return Err(format!("`{program}` is not installed; install it by `{INSTALL}`"));
            }
        }
        let mut cluster = CephCluster { folder, port, processes: Vec::new() };
        cluster.write_configuration().map_err(|error| format!("the configuration: {error}"))?;
        let addresses = format!("[{}]", cluster.monitor_address());
        let map = cluster.path("monmap");
        let map_arguments =
            ["--create", "--clobber", "--fsid", CLUSTER_ID, "--addv", "a", &addresses];
        cluster.run("monmaptool", &[&map_arguments[..], &[&map]].concat())?;
        cluster.run("ceph-mon", &["--mkfs", "-i", "a", "--monmap", &map])?;
        cluster.start_process("ceph-mon", &["-i", "a"])?;
        cluster.run("ceph", &["osd", "new", OSD_ID])?;
        cluster.run("ceph-osd", &["-i", "0", "--mkfs", "--osd-uuid", OSD_ID])?;
        cluster.start_process("ceph-osd", &["-i", "0"])?;
        let user = ["user", "create", "--uid=umbel", "--display-name=umbel"];
        let key = [format!("--access-key={id}"), format!("--secret-key={secret}")];
        cluster.run("radosgw-admin", &[&user[..], &[&key[0], &key[1]]].concat())?;
        cluster.start_gateway()?;
        Ok(cluster)
    }

    /// Starts all processes on the files of the folder.
    ///
    /// # Errors
    /// A process does not start.
    pub fn start(&mut self) -> Result<(), String> {
        self.start_process("ceph-mon", &["-i", "a"])?;
        self.start_process("ceph-osd", &["-i", "0"])?;
        self.start_gateway()
    }

    /// Kills all processes at once.
    pub fn kill(&mut self) {
        // A process that has ended is the aim.
        self.processes.iter_mut().for_each(|(_, process)| drop(process.kill()));
        self.processes.drain(..).for_each(|(_, mut process)| drop(process.wait()));
    }

    /// Returns the processes that have ended, each with the last line of its output.
    pub fn ended_processes(&mut self) -> String {
        let mut text = String::new();
        for (program, process) in &mut self.processes {
            if let Ok(Some(status)) = process.try_wait() {
                let output = fs::read_to_string(self.folder.join(format!("{program}.out")));
                let output = output.unwrap_or_default();
                let line = output.trim_end().lines().last().unwrap_or("no output");
                text.push_str(&format!("; `{program}` ended with {status}: {line}"));
            }
        }
        text
    }

    fn start_gateway(&mut self) -> Result<(), String> {
        self.start_process("radosgw", &["-n", "client.rgw.a", "--no-mon-config"])
    }

    fn start_process(&mut self, program: &'static str, arguments: &[&str]) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("`{program}` did not start: {error}");
        let log = File::create(self.path(&format!("{program}.out"))).map_err(failed)?;
        let errors = log.try_clone().map_err(failed)?;
        let mut command = self.command(program, arguments);
        command.arg("-f").stdin(Stdio::null()).stdout(log).stderr(errors);
        self.processes.push((program, command.spawn().map_err(failed)?));
        Ok(())
    }

    /// Runs a program that ends by itself.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        // A cluster that does not answer would hold the program for ever.
        let mut command = self.command("timeout", &[COMMAND_SECONDS_MAX, program]);
        tool_install::succeeded(program, command.args(arguments).output())
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        without_cloud_variables(&mut command).args(arguments);
        command.env("CEPH_CONF", self.path("ceph.conf")).env_remove("CEPH_ARGS");
        command
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Returns the monitor's address of the first protocol: without keys, the gateway cannot use
    /// the second one.
    fn monitor_address(&self) -> String {
        format!("v1:127.0.0.1:{}", self.port + 1)
    }

    fn write_configuration(&self) -> std::io::Result<()> {
        for name in ["mon", "osd", "rgw"] {
            fs::create_dir_all(self.path(name))?;
        }
        fs::write(self.path("keyring"), "")?;
        fs::write(self.path("ceph.conf"), self.configuration())
    }

    fn configuration(&self) -> String {
        let (folder, port, monitor) = (self.folder.display(), self.port, self.monitor_address());
        let (first, last) = (port + 2, port + 1 + OSD_PORTS);
        format!(
            "[global]
fsid = {CLUSTER_ID}
mon_host = {monitor}
mon_initial_members = a
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_msgr2 = false
ms_bind_port_min = {first}
ms_bind_port_max = {last}
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
keyring = {folder}/keyring
run_dir = {folder}
admin_socket =
crash_dir = {folder}
log_file = {folder}/$name.log
mon_cluster_log_file = {folder}/cluster.log
mon_data = {folder}/mon
osd_data = {folder}/osd
rgw_data = {folder}/rgw
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 2000
osd_objectstore = bluestore
bluestore_block_size = {OSD_BYTES}
rgw_frontends = beast endpoint=127.0.0.1:{port}
rgw_thread_pool_size = 64
"
        )
    }
}

impl Drop for CephCluster {
    fn drop(&mut self) {
        self.kill();
    }
}
