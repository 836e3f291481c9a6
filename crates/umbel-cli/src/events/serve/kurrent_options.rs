//! Options of KurrentDB and EventStoreDB that Umbel accepts without effect, so that their service
//! files start it. [`effect`] says what the server does in place of each.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// Effect of an option that neither Umbel nor this table has.
pub const UNKNOWN: &str = "Umbel has no such option";

const PROJECTIONS: &str = "the built-in projections $by_category, $by_event_type and $streams \
    always run, until a client disables them; projections in JavaScript are not run";
const HTTP: &str =
    "the port serves gRPC, the console and pages for monitoring; there is no AtomPub";
const TCP: &str = "clients connect by gRPC at the address of `listen`; there is no TCP protocol";
const ADDRESS: &str = "the server listens at `listen` (`node-ip`, `node-port`) for every purpose";
const CLUSTER: &str = "the server is a single node, which leads";
const TIMEOUTS: &str = "there are no other nodes to wait for; a call's deadline is its client's";
const CACHES: &str = "`memory` is the budget of all caches and indexes";
const THREADS: &str = "the server chooses the number of its threads";
const FILES: &str = "the event log and its index have their own layout and checks; `umbel verify` \
    checks a store";
const FLUSH: &str = "`durability` says when an append is acknowledged";
const SCAVENGE: &str = "a scavenge has no such setting";
const LIMITS: &str = "an event has at most 8 MiB, and an append 16 MiB";
const LOGS: &str = "the log goes to standard error; `log-format` and `log-level` change it";
const STATISTICS: &str = "/stats and /metrics always show current statistics";
const AUTHENTICATION: &str = "users have passwords or certificates, unless `insecure` is set";
const ANONYMOUS: &str = "anonymous clients may only read pages of health, information and gossip, \
    unless `insecure` is set";
const CERTIFICATES: &str = "certificates are PEM files without a password, of `certificate-file`, \
    `certificate-private-key-file` and `trusted-root-certificates-path`";
const DEVELOPMENT: &str = "use `insecure` for development";
const CONFIG: &str = "use `config` or UMBEL_CONFIG with a TOML file";
const LICENSE: &str = "no function needs a license key, and nothing is reported to anyone";
const KEEPALIVE: &str = "a silent connection gets a ping after 30 s, and has 20 s to answer";

/// Options by the effect that they have here.
const OPTIONS: [(&str, &[&str]); 21] = [
    (
        PROJECTIONS,
        &[
            "run-projections",
            "start-standard-projections",
            "projection-threads",
            "projections-query-expiry",
            "fault-out-of-order-projections",
            "projection-compilation-timeout",
            "projection-execution-timeout",
            "max-projection-state-size",
        ],
    ),
    (
        HTTP,
        &[
            "enable-atom-pub-over-http",
            "disable-http-caching",
            "disable-admin-ui",
            "disable-stats-on-http",
            "disable-gossip-on-http",
            "enable-unix-socket",
            "enable-trusted-auth",
            "add-interface-prefixes",
        ],
    ),
    (
        TCP,
        &[
            "enable-external-tcp",
            "disable-external-tcp-tls",
            "disable-internal-tcp-tls",
            "ext-tcp-port",
            "int-tcp-port",
            "ext-secure-tcp-port",
            "int-secure-tcp-port",
            "node-tcp-port",
            "enable-tcp",
            "ext-tcp-heartbeat-timeout",
            "ext-tcp-heartbeat-interval",
            "int-tcp-heartbeat-timeout",
            "int-tcp-heartbeat-interval",
            "node-heartbeat-timeout",
            "node-heartbeat-interval",
            "connection-pending-send-bytes-threshold",
            "connection-queue-size-threshold",
        ],
    ),
    (
        ADDRESS,
        &[
            "ext-ip",
            "int-ip",
            "http-port",
            "ext-http-port",
            "int-http-port",
            "ext-host-advertise-as",
            "int-host-advertise-as",
            "ext-ip-advertise-as",
            "int-ip-advertise-as",
            "ext-http-port-advertise-as",
            "int-http-port-advertise-as",
            "ext-tcp-port-advertise-as",
            "http-port-advertise-as",
            "node-host-advertise-as",
            "node-port-advertise-as",
            "advertise-http-port-to-client-as",
            "advertise-tcp-port-to-client-as",
        ],
    ),
    (
        CLUSTER,
        &[
            "cluster-size",
            "cluster-dns",
            "cluster-gossip-port",
            "cluster-name",
            "discover-via-dns",
            "gossip-seed",
            "gossip-on-single-node",
            "node-priority",
            "commit-count",
            "prepare-count",
            "unsafe-allow-surplus-nodes",
            "replication-ip",
            "replication-port",
            "replication-host-advertise-as",
            "replication-tcp-port-advertise-as",
            "replication-heartbeat-timeout",
            "replication-heartbeat-interval",
        ],
    ),
    (
        TIMEOUTS,
        &[
            "gossip-interval-ms",
            "gossip-allowed-difference-ms",
            "gossip-timeout-ms",
            "prepare-timeout-ms",
            "commit-timeout-ms",
            "write-timeout-ms",
            "leader-election-timeout-ms",
            "dead-member-removal-period-sec",
            "quorum-size",
            "prepare-ack-count",
            "commit-ack-count",
        ],
    ),
    (
        CACHES,
        &[
            "cached-chunks",
            "chunks-cache-size",
            "max-mem-table-size",
            "index-cache-depth",
            "index-cache-size",
            "stream-info-cache-capacity",
            "reduce-file-cache-pressure",
            "use-index-bloom-filters",
            "hash-collision-read-limit",
        ],
    ),
    (
        THREADS,
        &[
            "worker-threads",
            "reader-threads-count",
            "initialization-threads",
            "chunk-initial-reader-count",
            "max-truncation",
        ],
    ),
    (
        FILES,
        &[
            "index",
            "skip-db-verify",
            "skip-index-verify",
            "skip-index-scan-on-reads",
            "optimize-index-merge",
            "max-auto-merge-index-level",
            "initialize-in-memory",
            "db-log-format",
            "transform",
            "force",
            "chunk-size",
        ],
    ),
    (FLUSH, &["unsafe-disable-flush-to-disk", "min-flush-delay-ms", "write-through", "unbuffered"]),
    (
        SCAVENGE,
        &[
            "disable-scavenge-merging",
            "scavenge-history-max-age",
            "scavenge-backend-cache-size",
            "scavenge-backend-page-size",
            "scavenge-hash-users-cache-capacity",
            "always-keep-scavenged",
            "unsafe-ignore-hard-delete",
        ],
    ),
    (LIMITS, &["max-append-size", "max-append-event-size"]),
    (
        LOGS,
        &[
            "log",
            "log-config",
            "log-console-format",
            "log-file-size",
            "log-file-interval",
            "log-file-retention-count",
            "disable-log-file",
            "log-http-requests",
            "log-failed-authentication-attempts",
        ],
    ),
    (STATISTICS, &["stats-period-sec", "stats-storage", "enable-histograms"]),
    (
        AUTHENTICATION,
        &[
            "authentication-type",
            "authentication-config",
            "authorization-type",
            "authorization-config",
            "disable-first-level-http-authorization",
        ],
    ),
    (
        ANONYMOUS,
        &[
            "allow-anonymous-endpoint-access",
            "allow-anonymous-stream-access",
            "override-anonymous-endpoint-access-for-gossip",
        ],
    ),
    (
        CERTIFICATES,
        &[
            "certificate-password",
            "certificate-private-key-password",
            "certificate-reserved-node-common-name",
            "certificate-store-location",
            "certificate-store-name",
            "certificate-subject-name",
            "certificate-thumbprint",
            "trusted-root-certificate-store-location",
            "trusted-root-certificate-store-name",
            "trusted-root-certificate-subject-name",
            "trusted-root-certificate-thumbprint",
        ],
    ),
    (DEVELOPMENT, &["dev", "what-if", "remove-dev-certs"]),
    (CONFIG, &["config"]),
    (LICENSE, &["telemetry-optout", "license-key"]),
    (KEEPALIVE, &["keep-alive-interval", "keep-alive-timeout"]),
];

/// Returns what the server does in place of an option without effect; `None` for other names.
/// `config` is an option of KurrentDB as a variable only.
pub fn effect(name: &str) -> Option<&'static str> {
    OPTIONS.iter().find(|(_, names)| names.contains(&name)).map(|(effect, _)| *effect)
}

/// Flags of the options without effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoredOptions;

impl Args for IgnoredOptions {
    fn augment_args(command: Command) -> Command {
        let names = OPTIONS.iter().flat_map(|(_, names)| names.iter());
        command.args(names.filter(|name| **name != "config").map(|name| {
            Arg::new(*name).long(*name).hide(true).num_args(0..=1).default_missing_value("true")
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        IgnoredOptions::augment_args(command)
    }
}

impl FromArgMatches for IgnoredOptions {
    fn from_arg_matches(_: &ArgMatches) -> Result<IgnoredOptions, clap::Error> {
        Ok(IgnoredOptions)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
        Ok(())
    }
}
