//! [`StoreKind`]: an object store that campaigns can use.

use crate::object_stores::ceph_cluster;
use crate::object_stores::object_server::ObjectServer;

/// Version of SeaweedFS. Older ones lose races of creations.
pub const SEAWEEDFS_VERSION: &str = "4.48";
/// Version of Azurite, Microsoft's emulator of Azure Blob Storage.
pub const AZURITE_VERSION: &str = "3.37.0";

/// Kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// moto without conditions: a store that must be refused.
    MotoWithoutConditions,
    /// A directory of the local file system.
    Directory,
    /// moto, in memory.
    Moto,
    /// SeaweedFS.
    SeaweedFs,
    /// Azurite.
    Azurite,
    /// The S3 gateway of Ceph.
    Ceph,
}

impl StoreKind {
    /// Every kind, in the order of the campaign.
    pub const ALL: [StoreKind; 6] = [
        StoreKind::MotoWithoutConditions,
        StoreKind::Directory,
        StoreKind::Moto,
        StoreKind::SeaweedFs,
        StoreKind::Azurite,
        StoreKind::Ceph,
    ];

    /// Value of the argument `--store`.
    pub fn argument(self) -> &'static str {
        match self {
            StoreKind::MotoWithoutConditions => "moto-without-conditions",
            StoreKind::Directory => "directory",
            StoreKind::Moto => "moto",
            StoreKind::SeaweedFs => "seaweedfs",
            StoreKind::Azurite => "azurite",
            StoreKind::Ceph => "ceph",
        }
    }

    /// Name and version, for the report.
    pub fn name(self) -> String {
        match self {
            StoreKind::MotoWithoutConditions => {
                format!("moto {} without conditions", ObjectServer::MOTO_VERSION)
            }
            StoreKind::Directory => "a directory".into(),
            StoreKind::Moto => format!("moto {}", ObjectServer::MOTO_VERSION),
            StoreKind::SeaweedFs => format!("SeaweedFS {SEAWEEDFS_VERSION}"),
            StoreKind::Azurite => format!("Azurite {AZURITE_VERSION}"),
            StoreKind::Ceph => match ceph_cluster::version() {
                Some(version) => format!("Ceph RGW {version}"),
                None => "Ceph RGW".into(),
            },
        }
    }

    /// Returns why the campaign does not kill the server's processes; `None` if confirmed objects
    /// survive this.
    pub fn reason_not_to_kill(self) -> Option<&'static str> {
        match self {
            StoreKind::SeaweedFs | StoreKind::Ceph => None,
            StoreKind::Directory => Some("it has no process"),
            StoreKind::Moto | StoreKind::MotoWithoutConditions => {
                Some("its objects are in the memory of its process")
            }
            StoreKind::Azurite => Some(
                "it writes its index every 5 s, so a kill loses creations that it confirmed, and \
                 it does not end by SIGTERM while a client is connected",
            ),
        }
    }
}
