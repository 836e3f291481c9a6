//! [`FailedLogins`]: counts and logs requests with invalid credentials.
//!
//! Guesses of passwords cost a client nothing, so the number of lines is limited. The counts have
//! all of them.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use hyper::HeaderMap;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use umbel_env::Clock;

use crate::auth::authorization::CertificateUser;
use crate::auth::basic_authentication::BasicCredentials;
use crate::limits::{FAILED_LOGIN_LINES_MAX, FAILED_LOGIN_LOG_TIME};
use crate::telemetry::access_log::sanitize;
use crate::telemetry::line_limiter::LineLimiter;
use crate::telemetry::metric_labels::Labels;

/// Most characters of a tried user name that are logged.
const NAME_CHARS_MAX: usize = 100;

/// Kind of a request with credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginKind {
    /// A gRPC call.
    Grpc,
    /// A request to the HTTP API, for metrics or for another page for programs.
    Http,
    /// A request of the console.
    Console,
    /// A change of a password, with a wrong current password.
    PasswordChange,
}

impl LoginKind {
    const ALL: [LoginKind; 4] =
        [LoginKind::Grpc, LoginKind::Http, LoginKind::Console, LoginKind::PasswordChange];

    fn name(self) -> &'static str {
        match self {
            LoginKind::Grpc => "grpc",
            LoginKind::Http => "http",
            LoginKind::Console => "console",
            LoginKind::PasswordChange => "password-change",
        }
    }
}

/// Counts of requests with invalid credentials.
#[derive(Debug)]
pub struct FailedLogins {
    clock: Arc<dyn Clock>,
    counts: Family<Labels, Counter>,
    limiter: Mutex<LineLimiter>,
}

impl FailedLogins {
    /// Creates counts of 0 for each kind.
    pub fn new(clock: Arc<dyn Clock>) -> FailedLogins {
        let counts = Family::default();
        for kind in LoginKind::ALL {
            drop(counts.get_or_create_owned(&labels(kind)));
        }
        FailedLogins { clock, counts, limiter: Mutex::default() }
    }

    /// Records a request with the credentials in its headers, or of its client certificate.
    pub fn record_request(
        &self,
        kind: LoginKind,
        (headers, certificate): (&HeaderMap, Option<&CertificateUser>),
        peer: Option<SocketAddr>,
    ) {
        let basic = BasicCredentials::from_headers(headers).ok().flatten();
        let login = basic.as_ref().map(BasicCredentials::login);
        self.record(kind, login.or(certificate.map(|CertificateUser(name)| &**name)), peer);
    }

    /// Records a request that named this user; `None` if it named none.
    pub fn record(&self, kind: LoginKind, login: Option<&str>, peer: Option<SocketAddr>) {
        self.counts.get_or_create(&labels(kind)).inc();
        let period = self.clock.now().as_secs() / FAILED_LOGIN_LOG_TIME.as_secs();
        let (may, suppressed) =
            self.limiter.lock().ignore_poison().count(period, FAILED_LOGIN_LINES_MAX);
        if suppressed > 0 {
            tracing::warn!(logins = suppressed, "log lines of failed logins were left out");
        }
        if may {
            // The name is a client's text: it may be no user, and even a password.
            let user = login.map(|login| sanitize(login, NAME_CHARS_MAX));
            let peer = peer.map(|peer| peer.to_string());
            tracing::info!(user, peer, kind = kind.name(), "login failed");
        }
    }

    /// Registers the metric.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Requests with a wrong user name or password, or of a disabled user";
        registry.register("failed_logins", help, self.counts.clone());
    }
}

fn labels(kind: LoginKind) -> Labels {
    vec![("kind", kind.name().to_string())]
}
