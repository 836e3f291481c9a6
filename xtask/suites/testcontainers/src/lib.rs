//! The part of the crate `testcontainers` that the published suite of the Rust client uses. A
//! container is a process of the program that `UMBEL_SUITE_PROGRAM` names, so the suite's tests are
//! unchanged.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// Folder in the container with the store.
const STORE_FOLDER: &str = "/var/lib/eventstore";
/// Variable with the path of the server's program.
const PROGRAM: &str = "UMBEL_SUITE_PROGRAM";
/// Variable with the folder of the stores.
const STORES: &str = "UMBEL_SUITE_STORES";

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Parts of an image.
pub mod core {
    /// A port of a container.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ContainerPort {
        /// A TCP port.
        Tcp(u16),
    }

    /// A folder of this machine in a container.
    #[derive(Debug, Clone)]
    pub struct Mount {
        pub(crate) source: String,
        pub(crate) target: String,
    }

    impl Mount {
        /// Shows the folder `source` as `target`.
        pub fn bind_mount(source: impl Into<String>, target: impl Into<String>) -> Mount {
            Mount { source: source.into(), target: target.into() }
        }
    }

    /// A sign that a container is ready. A server is ready once it has printed its address.
    #[derive(Debug, Clone)]
    pub struct WaitFor;

    impl WaitFor {
        /// Waits for a message.
        pub fn message_on_stdout(_: impl AsRef<[u8]>) -> WaitFor {
            WaitFor
        }
    }
}

/// Operations that start containers.
pub mod runners {
    use super::{ContainerAsync, ContainerRequest, Image, TestcontainersError};

    /// An image that can be started.
    pub trait AsyncRunner<I: Image>: Sized + Into<ContainerRequest<I>> {
        /// Starts a server.
        fn start(
            self,
        ) -> impl Future<Output = Result<ContainerAsync<I>, TestcontainersError>> + Send;
    }

    impl<I: Image, T: Into<ContainerRequest<I>> + Send> AsyncRunner<I> for T {
        async fn start(self) -> Result<ContainerAsync<I>, TestcontainersError> {
            ContainerAsync::start(self.into())
        }
    }
}

use crate::core::{ContainerPort, Mount, WaitFor};

/// A failure to start or stop a server.
#[derive(Debug)]
pub struct TestcontainersError(String);

impl fmt::Display for TestcontainersError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for TestcontainersError {}

/// An image of a server.
pub trait Image: Send + Sized {
    /// Name of the image, which has no effect.
    fn name(&self) -> &str;
    /// Tag of the image, which has no effect.
    fn tag(&self) -> &str;
    /// Signs of readiness, which have no effect.
    fn ready_conditions(&self) -> Vec<WaitFor>;
    /// Environment of the server.
    fn env_vars(
        &self,
    ) -> impl IntoIterator<Item = (impl Into<Cow<'_, str>>, impl Into<Cow<'_, str>>)> {
        std::iter::empty::<(String, String)>()
    }
    /// Folders of this machine.
    fn mounts(&self) -> impl IntoIterator<Item = &Mount> {
        std::iter::empty()
    }
    /// Ports of the server.
    fn expose_ports(&self) -> &[ContainerPort] {
        &[]
    }
}

/// An image with its port on this machine.
#[derive(Debug, Clone)]
pub struct ContainerRequest<I: Image> {
    image: I,
    /// The port; 0 for any free one.
    port: u16,
}

impl<I: Image> From<I> for ContainerRequest<I> {
    fn from(image: I) -> ContainerRequest<I> {
        ContainerRequest { image, port: 0 }
    }
}

/// Further options of an image.
pub trait ImageExt<I: Image> {
    /// Sets the port on this machine.
    fn with_mapped_port(self, host_port: u16, container_port: ContainerPort)
    -> ContainerRequest<I>;
}

impl<I: Image> ImageExt<I> for I {
    fn with_mapped_port(self, host_port: u16, _: ContainerPort) -> ContainerRequest<I> {
        ContainerRequest { image: self, port: host_port }
    }
}

/// A running server, which ends when this value is dropped.
#[derive(Debug)]
pub struct ContainerAsync<I: Image> {
    _image: I,
    process: Child,
    port: u16,
    /// Folder of the store, unless the image has one of its own.
    temporary: Option<PathBuf>,
}

impl<I: Image> ContainerAsync<I> {
    fn start(request: ContainerRequest<I>) -> Result<ContainerAsync<I>, TestcontainersError> {
        let variable = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .ok_or_else(|| TestcontainersError(format!("{name} is not set")))
        };
        let (program, stores) = (variable(PROGRAM)?, variable(STORES)?);
        let failed = |error: std::io::Error| TestcontainersError(error.to_string());
        let ContainerRequest { image, port } = request;
        let mounts: Vec<Mount> = image.mounts().into_iter().cloned().collect();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let volume = mounts.iter().find(|mount| mount.target == STORE_FOLDER);
        let own = format!("store-{}-{number}", std::process::id());
        let store = stores.join(volume.map_or(own, |mount| mount.source.clone()));
        std::fs::create_dir_all(&store).map_err(failed)?;
        let log = File::create(store.with_extension(format!("{number}.log"))).map_err(failed)?;
        let mut command = Command::new(program);
        command.arg("--db").arg(&store).args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
        command.env("UMBEL_ADMIN_PASSWORD", "changeit").env("UMBEL_OPS_PASSWORD", "changeit");
        for (name, value) in image.env_vars() {
            let (name, value): (Cow<'_, str>, Cow<'_, str>) = (name.into(), value.into());
            command.env(name.as_ref(), on_this_machine(&value, &mounts));
        }
        command.stdout(Stdio::piped()).stderr(log);
        let mut process = command.spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line).map_err(failed)?;
        }
        let rest = line.split_once("127.0.0.1:").map(|(_, rest)| rest).unwrap_or_default();
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let temporary = volume.is_none().then_some(store);
        let mut server = ContainerAsync { _image: image, process, port: 0, temporary };
        // Dropped on an error, it ends the process.
        server.port = digits
            .parse()
            .map_err(|_| TestcontainersError(format!("the server printed `{}`", line.trim())))?;
        Ok(server)
    }

    /// Port of the server on this machine.
    ///
    /// # Errors
    /// None.
    pub async fn get_host_port_ipv4(&self, _: u16) -> Result<u16, TestcontainersError> {
        Ok(self.port)
    }

    /// Stops the server with SIGTERM, and waits for its end.
    ///
    /// # Errors
    /// The program `kill` cannot be started.
    pub async fn stop(&self) -> Result<(), TestcontainersError> {
        let id = self.process.id().to_string();
        let failed = |error: std::io::Error| TestcontainersError(error.to_string());
        Command::new("kill").arg(&id).status().map_err(failed)?;
        // A process that has ended stays as a zombie until it is dropped.
        let is_running = || {
            let state = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            state.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
        };
        while is_running() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Ok(())
    }
}

impl<I: Image> Drop for ContainerAsync<I> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(store) = &self.temporary {
            let _ = std::fs::remove_dir_all(store);
        }
    }
}

/// The path on this machine of a path in the container.
fn on_this_machine(value: &str, mounts: &[Mount]) -> String {
    let place = mounts.iter().find_map(|mount| {
        let rest = value.strip_prefix(&mount.target)?;
        Some(format!("{}{rest}", mount.source))
    });
    place.unwrap_or_else(|| value.to_string())
}
