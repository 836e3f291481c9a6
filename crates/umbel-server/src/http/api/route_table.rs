//! [`ROUTES`]: the routes of the HTTP API. The table says for each route the call of clients whose
//! permission it requires, and describes it for the OpenAPI document.

use hyper::Method;

use crate::http::api::api_request::decode_segment;

/// Effect of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Starts a scavenge.
    StartScavenge,
    /// Reports the running scavenge.
    CurrentScavenge,
    /// Reports the last scavenge.
    LastScavenge,
    /// Reports a scavenge.
    ReadScavenge,
    /// Stops a scavenge.
    StopScavenge,
    /// Lists the outcomes of scavenges.
    ScavengeHistory,
    /// Lists the outcomes of backups.
    BackupHistory,
    /// Reports whether auto-scavenge exists.
    AutoScavengeEnabled,
    /// Reports state and settings of auto-scavenge.
    AutoScavengeStatus,
    /// Changes settings of auto-scavenge.
    ConfigureAutoScavenge,
    /// Pauses auto-scavenge.
    PauseAutoScavenge,
    /// Resumes auto-scavenge.
    ResumeAutoScavenge,
    /// Starts a backup.
    StartBackup,
    /// Reports a backup.
    ReadBackup,
    /// Stops a backup.
    StopBackup,
    /// Stops the server.
    Shutdown,
    /// Makes this node the leader of its replicated log.
    Promote,
    /// Loads the certificates again.
    ReloadConfig,
    /// Lists users.
    ListUsers,
    /// Creates a user.
    CreateUser,
    /// Reports the calling user.
    ReadCurrentUser,
    /// Reports a user.
    ReadUser,
    /// Replaces name and groups of a user.
    UpdateUser,
    /// Deletes a user.
    DeleteUser,
    /// Enables a user.
    EnableUser,
    /// Disables a user.
    DisableUser,
    /// Sets a password.
    ResetPassword,
    /// Changes the caller's password.
    ChangePassword,
    /// Lists consumer groups.
    ListGroups,
    /// Lists the consumer groups of a source.
    ListGroupsOfSource,
    /// Reports a consumer group.
    ReadGroup,
    /// Creates a consumer group.
    CreateGroup,
    /// Replaces the settings of a consumer group.
    UpdateGroup,
    /// Deletes a consumer group.
    DeleteGroup,
    /// Replays parked events.
    ReplayParked,
    /// Restarts all consumer groups.
    RestartGroups,
    /// Reads the newest events.
    ReadNewest,
    /// Reads one event.
    ReadEvent,
    /// Reads a page of events.
    ReadPage,
    /// Appends events.
    Append,
    /// Deletes or tombstones a stream.
    DeleteStream,
    /// Returns the OpenAPI document.
    OpenApi,
}

/// Body of a route's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestSchema {
    /// No body.
    None,
    /// JSON of this schema of the OpenAPI document.
    Json(&'static str),
    /// Events.
    Events,
}

/// A route.
#[derive(Debug)]
pub struct Route {
    /// HTTP method; `GET` includes `HEAD`.
    pub method: Method,
    /// Path; a segment in braces is a parameter.
    pub path: &'static str,
    /// Path of the call whose permission the route requires.
    pub policy: &'static str,
    /// Effect of the route.
    pub operation: Operation,
    /// Description, one sentence.
    pub summary: &'static str,
    /// Body of requests.
    pub body: RequestSchema,
    /// Query parameters: name and description.
    pub query: &'static [(&'static str, &'static str)],
    /// Status of a success.
    pub success: u16,
    /// Statuses of errors beside those of every route.
    pub errors: &'static [u16],
}

const START_SCAVENGE: &str = "/event_store.client.operations.Operations/StartScavenge";
const STOP_SCAVENGE: &str = "/event_store.client.operations.Operations/StopScavenge";
const SHUTDOWN: &str = "/event_store.client.operations.Operations/Shutdown";
const PROMOTE: &str = "/admin/promote";
const BACKUP: &str = "/console/api/backup";
const AUTO_SCAVENGE_ENABLED: &str = "/auto-scavenge/enabled";
const AUTO_SCAVENGE_STATUS: &str = "/auto-scavenge/status";
const USER_DETAILS: &str = "/event_store.client.users.Users/Details";
const CREATE_USER: &str = "/event_store.client.users.Users/Create";
const UPDATE_USER: &str = "/event_store.client.users.Users/Update";
const DELETE_USER: &str = "/event_store.client.users.Users/Delete";
const ENABLE_USER: &str = "/event_store.client.users.Users/Enable";
const DISABLE_USER: &str = "/event_store.client.users.Users/Disable";
const RESET_PASSWORD: &str = "/event_store.client.users.Users/ResetPassword";
const CHANGE_PASSWORD: &str = "/event_store.client.users.Users/ChangePassword";
/// Path of a call of consumer groups.
macro_rules! group_call {
    ($call:literal) => {
        concat!("/event_store.client.persistent_subscriptions.PersistentSubscriptions/", $call)
    };
}
const READ: &str = "/event_store.client.streams.Streams/Read";
const APPEND: &str = "/event_store.client.streams.Streams/Append";
const DELETE: &str = "/event_store.client.streams.Streams/Delete";

const NO_QUERY: &[(&str, &str)] = &[];
const PAGE_QUERY: &[(&str, &str)] = &[(
    "embed",
    "form of the entries: none, rich, body (the default; also pretty and tryharder) or content",
)];

/// A route without body and query.
const fn route(
    method: Method,
    path: &'static str,
    policy: &'static str,
    operation: Operation,
    summary: &'static str,
) -> Route {
    let (body, query) = (RequestSchema::None, NO_QUERY);
    Route { method, path, policy, operation, summary, body, query, success: 200, errors: &[] }
}

impl Route {
    const fn with_body(mut self, schema: &'static str) -> Route {
        self.body = RequestSchema::Json(schema);
        self
    }

    const fn with_events(mut self) -> Route {
        self.body = RequestSchema::Events;
        self
    }

    const fn with_query(mut self, query: &'static [(&'static str, &'static str)]) -> Route {
        self.query = query;
        self
    }

    const fn success(mut self, status: u16) -> Route {
        self.success = status;
        self
    }

    const fn errors(mut self, statuses: &'static [u16]) -> Route {
        self.errors = statuses;
        self
    }
}

/// All routes. A path without parameters precedes those that match it with a parameter.
pub static ROUTES: [Route; 43] = [
    route(
        Method::POST,
        "/admin/scavenge",
        START_SCAVENGE,
        Operation::StartScavenge,
        "Starts a scavenge and answers its id.",
    )
    .with_query(&[
        ("removeAll", "true: also removes the data of the newest hidden events"),
        ("threads", "at least 1; a scavenge has one thread"),
        ("startFromChunk", "at least 0; ignored"),
        ("throttlePercent", "share of time in which the scavenge works, 1 to 100; default 25"),
        ("bytesPerSecond", "limit of bytes read and written a second; default: no limit"),
        ("thresholdPercent", "least share of dead bytes of a rewritten chunk; default 0"),
    ])
    .errors(&[409]),
    route(
        Method::GET,
        "/admin/scavenge/current",
        START_SCAVENGE,
        Operation::CurrentScavenge,
        "Reports the running scavenge; an empty object if none is running.",
    ),
    route(
        Method::GET,
        "/admin/scavenge/last",
        START_SCAVENGE,
        Operation::LastScavenge,
        "Reports the last scavenge; scavengeResult is Unknown if the server started none.",
    ),
    route(
        Method::GET,
        "/admin/scavenge/history",
        START_SCAVENGE,
        Operation::ScavengeHistory,
        "Lists the last 100 scavenges with their outcomes, newest first.",
    ),
    route(
        Method::GET,
        "/admin/scavenge/{scavengeId}",
        START_SCAVENGE,
        Operation::ReadScavenge,
        "Reports the progress or the outcome of a scavenge.",
    )
    .errors(&[404]),
    route(
        Method::DELETE,
        "/admin/scavenge/{scavengeId}",
        STOP_SCAVENGE,
        Operation::StopScavenge,
        "Stops a scavenge; the id `current` names the running one.",
    )
    .errors(&[404]),
    route(
        Method::POST,
        "/admin/backup",
        BACKUP,
        Operation::StartBackup,
        "Starts a backup into the server's backup directory and answers its id.",
    )
    .with_query(&[(
        "bytesPerSecond",
        "limit of bytes copied a second, at least 65536; default: no limit",
    )])
    .success(202)
    .errors(&[409]),
    route(
        Method::GET,
        "/admin/backup/history",
        BACKUP,
        Operation::BackupHistory,
        "Lists the last 100 backups with their outcomes, newest first.",
    ),
    route(
        Method::GET,
        "/admin/backup/{backupId}",
        BACKUP,
        Operation::ReadBackup,
        "Reports a backup; the id `current` names the running one, and `last` the last one.",
    )
    .errors(&[404]),
    route(
        Method::DELETE,
        "/admin/backup/{backupId}",
        BACKUP,
        Operation::StopBackup,
        "Stops a backup; the id `current` names the running one.",
    )
    .errors(&[404, 409]),
    route(
        Method::GET,
        "/auto-scavenge/enabled",
        AUTO_SCAVENGE_ENABLED,
        Operation::AutoScavengeEnabled,
        "Reports that the server has auto-scavenge.",
    ),
    route(
        Method::GET,
        "/auto-scavenge/status",
        AUTO_SCAVENGE_STATUS,
        Operation::AutoScavengeStatus,
        "Reports state, settings and next time of auto-scavenge.",
    ),
    route(
        Method::POST,
        "/auto-scavenge/configure",
        START_SCAVENGE,
        Operation::ConfigureAutoScavenge,
        "Changes the settings of auto-scavenge that the body has.",
    )
    .with_body("AutoScavengeSettings")
    .errors(&[415]),
    route(
        Method::POST,
        "/auto-scavenge/pause",
        START_SCAVENGE,
        Operation::PauseAutoScavenge,
        "Pauses auto-scavenge; 202 while the scavenge that it started still stops.",
    ),
    route(
        Method::POST,
        "/auto-scavenge/resume",
        START_SCAVENGE,
        Operation::ResumeAutoScavenge,
        "Ends a pause; a scavenge that the pause stopped continues.",
    ),
    route(
        Method::POST,
        "/admin/shutdown",
        SHUTDOWN,
        Operation::Shutdown,
        "Stops the server as SIGTERM does.",
    )
    .errors(&[501]),
    route(
        Method::POST,
        "/admin/promote",
        PROMOTE,
        Operation::Promote,
        "Makes this node the leader of its replicated log, and answers once it leads.",
    )
    .errors(&[409]),
    route(
        Method::POST,
        "/admin/reloadconfig",
        SHUTDOWN,
        Operation::ReloadConfig,
        "Loads the certificates again, as SIGHUP does.",
    )
    .errors(&[409]),
    route(
        Method::GET,
        "/users",
        USER_DETAILS,
        Operation::ListUsers,
        "Lists users in the order of their names; only for administrators.",
    )
    .with_query(&[("after", "name after which the list begins, from `next` of the last answer")]),
    route(Method::POST, "/users", CREATE_USER, Operation::CreateUser, "Creates a user.")
        .with_body("NewUser")
        .success(201)
        .errors(&[409, 415]),
    route(
        Method::GET,
        "/users/$current",
        USER_DETAILS,
        Operation::ReadCurrentUser,
        "Reports the calling user.",
    )
    .errors(&[404]),
    route(
        Method::GET,
        "/users/{login}",
        USER_DETAILS,
        Operation::ReadUser,
        "Reports a user; others than administrators may read only themselves.",
    )
    .errors(&[404]),
    route(
        Method::PUT,
        "/users/{login}",
        UPDATE_USER,
        Operation::UpdateUser,
        "Replaces the full name and the groups of a user, and the password if given.",
    )
    .with_body("UserUpdate")
    .errors(&[404, 409, 415]),
    route(Method::DELETE, "/users/{login}", DELETE_USER, Operation::DeleteUser, "Deletes a user.")
        .errors(&[404, 409]),
    route(
        Method::POST,
        "/users/{login}/command/enable",
        ENABLE_USER,
        Operation::EnableUser,
        "Enables a user.",
    )
    .errors(&[404, 409]),
    route(
        Method::POST,
        "/users/{login}/command/disable",
        DISABLE_USER,
        Operation::DisableUser,
        "Disables a user: the server refuses the user's credentials.",
    )
    .errors(&[404, 409]),
    route(
        Method::POST,
        "/users/{login}/command/reset-password",
        RESET_PASSWORD,
        Operation::ResetPassword,
        "Sets the password of a user without the present one.",
    )
    .with_body("PasswordReset")
    .errors(&[404, 409, 415]),
    route(
        Method::POST,
        "/users/{login}/command/change-password",
        CHANGE_PASSWORD,
        Operation::ChangePassword,
        "Changes a password, which requires the present one.",
    )
    .with_body("PasswordChange")
    .errors(&[404, 409, 415]),
    route(
        Method::GET,
        "/subscriptions",
        group_call!("List"),
        Operation::ListGroups,
        "Lists all consumer groups; with `count` a page of them.",
    )
    .with_query(&[
        ("offset", "number of groups before the page, by default 0"),
        ("count", "maximum number of groups in the page"),
    ]),
    route(
        Method::POST,
        "/subscriptions/restart",
        group_call!("RestartSubsystem"),
        Operation::RestartGroups,
        "Ends all consumer groups; each continues from its checkpoint when it is next used.",
    ),
    route(
        Method::GET,
        "/subscriptions/{stream}",
        group_call!("List"),
        Operation::ListGroupsOfSource,
        "Lists the consumer groups of a stream, or of $all.",
    )
    .errors(&[404]),
    route(
        Method::GET,
        "/subscriptions/{stream}/{group}/info",
        group_call!("GetInfo"),
        Operation::ReadGroup,
        "Reports settings, progress and consumers of a consumer group.",
    )
    .errors(&[404]),
    route(
        Method::PUT,
        "/subscriptions/{stream}/{group}",
        group_call!("Create"),
        Operation::CreateGroup,
        "Creates a consumer group.",
    )
    .with_body("GroupSettings")
    .success(201)
    .errors(&[409, 415]),
    route(
        Method::POST,
        "/subscriptions/{stream}/{group}",
        group_call!("Update"),
        Operation::UpdateGroup,
        "Replaces all settings of a consumer group, and disconnects its consumers.",
    )
    .with_body("GroupSettings")
    .errors(&[404, 415]),
    route(
        Method::DELETE,
        "/subscriptions/{stream}/{group}",
        group_call!("Delete"),
        Operation::DeleteGroup,
        "Deletes a consumer group with its checkpoint and its parked events.",
    )
    .errors(&[404]),
    route(
        Method::POST,
        "/subscriptions/{stream}/{group}/replayParked",
        group_call!("ReplayParked"),
        Operation::ReplayParked,
        "Sends the parked events of a consumer group to its consumers again.",
    )
    .with_query(&[("stopAt", "revision of the stream of parked events, exclusive")])
    .errors(&[404]),
    route(
        Method::GET,
        "/streams/{stream}",
        READ,
        Operation::ReadNewest,
        "Reads the newest 20 events of a stream, of a view, or of $all, newest first.",
    )
    .with_query(PAGE_QUERY)
    .errors(&[404, 406, 410]),
    route(
        Method::GET,
        "/streams/{stream}/{event}",
        READ,
        Operation::ReadEvent,
        "Returns the data of one event, or with `embed` its entry; `head` names the last event.",
    )
    .with_query(PAGE_QUERY)
    .errors(&[404, 406, 410]),
    route(
        Method::GET,
        "/streams/{stream}/{event}/{direction}/{count}",
        READ,
        Operation::ReadPage,
        "Reads events from a revision (with $all: a position) or `head` on, forward or backward.",
    )
    .with_query(PAGE_QUERY)
    .errors(&[404, 406, 410]),
    route(
        Method::POST,
        "/streams/{stream}",
        APPEND,
        Operation::Append,
        "Appends one event, or a list of events, to a stream.",
    )
    .with_events()
    .success(201)
    .errors(&[409, 410, 415]),
    route(
        Method::DELETE,
        "/streams/{stream}",
        DELETE,
        Operation::DeleteStream,
        "Deletes a stream, or tombstones it: no stream can have its name again.",
    )
    .success(204)
    .errors(&[404, 409, 410]),
    route(
        Method::GET,
        "/openapi.json",
        "/openapi.json",
        Operation::OpenApi,
        "Returns this document.",
    ),
    route(
        Method::POST,
        "/streams/{stream}/incoming/{eventId}",
        APPEND,
        Operation::Append,
        "Appends one event with this id.",
    )
    .with_events()
    .success(201)
    .errors(&[409, 410, 415]),
];

/// Result of a search for a route.
#[derive(Debug)]
pub enum RouteMatch {
    /// A route, and the values of its path's parameters.
    Route(&'static Route, Vec<String>),
    /// The path has other methods.
    Methods(String),
    /// No route has the path.
    None,
}

/// First segments of the paths of the API.
pub const FIRST_SEGMENTS: [&str; 6] =
    ["admin", "auto-scavenge", "users", "subscriptions", "streams", "openapi.json"];

/// Whether a path belongs to the API.
pub fn is_api_path(path: &str) -> bool {
    FIRST_SEGMENTS.contains(&path.split('/').nth(1).unwrap_or_default())
}

/// The route of a request. A parameter that is not UTF-8 matches no route.
pub fn find(method: &Method, path: &str) -> RouteMatch {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    let mut methods: Vec<&str> = Vec::new();
    for route in &ROUTES {
        let Some(parameters) = matched(route.path, path) else { continue };
        if route.method == *method {
            return RouteMatch::Route(route, parameters);
        }
        if !methods.contains(&route.method.as_str()) {
            methods.push(route.method.as_str());
            // A route of GET serves HEAD, too.
            methods.extend((route.method == Method::GET).then_some("HEAD"));
        }
    }
    match methods.is_empty() {
        true => RouteMatch::None,
        false => RouteMatch::Methods(methods.join(", ")),
    }
}

/// The values of the parameters of a path; `None` if the path does not match.
fn matched(template: &str, path: &str) -> Option<Vec<String>> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let mut parameters = Vec::new();
    let mut segments = path.split('/');
    for wanted in template.split('/') {
        let segment = segments.next()?;
        match wanted.starts_with('{') {
            true if segment.is_empty() => return None,
            true => parameters.push(decode_segment(segment)?),
            false if decode_segment(segment)? == wanted => {}
            false => return None,
        }
    }
    segments.next().is_none().then_some(parameters)
}

/// Path of the call whose permission a request requires; `None` if no route has the path. A user of
/// a path sees which methods it has.
pub fn policy_path(method: &Method, path: &str) -> Option<&'static str> {
    let first = || ROUTES.iter().find(|route| matched(route.path, path).is_some());
    match find(method, path) {
        RouteMatch::Route(route, _) => Some(route.policy),
        RouteMatch::Methods(_) => first().map(|route| route.policy),
        RouteMatch::None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: Method, path: &str) -> Option<(Operation, Vec<String>)> {
        match find(&method, path) {
            RouteMatch::Route(route, parameters) => Some((route.operation, parameters)),
            _ => None,
        }
    }

    #[test]
    fn routes_are_found_by_method_and_path() {
        let parameters = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        for (method, path, operation, values) in [
            (Method::GET, "/admin/scavenge/last", Operation::LastScavenge, &[][..]),
            (Method::GET, "/admin/scavenge/7", Operation::ReadScavenge, &["7"]),
            (Method::HEAD, "/users/", Operation::ListUsers, &[]),
            (Method::GET, "/users/%24current", Operation::ReadCurrentUser, &[]),
            (Method::GET, "/streams/a%2Fb+c%C3%A9", Operation::ReadNewest, &["a/b+cé"]),
            (
                Method::GET,
                "/streams/$all/head/backward/5",
                Operation::ReadPage,
                &["$all", "head", "backward", "5"],
            ),
        ] {
            let wanted = Some((operation, parameters(values)));
            assert_eq!(found(method, path), wanted, "{path}");
        }
        for path in ["/streams", "/streams//x", "/streams/%ff", "/users/a/command", "/adminx"] {
            assert!(matches!(find(&Method::GET, path), RouteMatch::None), "{path}");
        }
        let RouteMatch::Methods(methods) = find(&Method::PATCH, "/users/ada") else {
            panic!("no methods")
        };
        assert_eq!(methods, "GET, HEAD, PUT, DELETE");
        // Users outside of `$admins` were denied access instead.
        let policy = |method: Method, path| policy_path(&method, path);
        assert_eq!(policy(Method::PATCH, "/streams/a"), policy(Method::GET, "/streams/a"));
        assert!(policy(Method::PATCH, "/streams/a").is_some());
        assert_eq!(policy(Method::GET, "/streams//x"), None);
    }

    #[test]
    fn every_route_has_the_permission_of_a_listed_call() {
        for route in &ROUTES {
            assert!(crate::access_control::call_policy::is_listed(route.policy), "{route:?}");
            assert!(is_api_path(route.path), "{route:?}");
        }
    }
}
