//! The OpenAPI document of the server's HTTP routes, made from the table of routes.

use std::sync::LazyLock;

use hyper::Method;
use serde_json::{Map, Value, json};

use crate::http::api::route_table::{Operation, ROUTES, RequestSchema, Route};

/// A route beside the API: path, description, status of a success, statuses of errors. A route
/// without 401 is public.
type Page = (&'static str, &'static str, u16, &'static [u16]);

/// Routes beside the API.
const PAGES: [Page; 7] = [
    ("/health/live", "Answers while the server runs.", 204, &[]),
    ("/health/ready", "Answers 204, or 503 while clients should send no calls.", 204, &[503]),
    ("/ping", "Answers a constant text.", 200, &[]),
    ("/info", "Reports the server's version.", 200, &[]),
    ("/gossip", "Reports the node and its address.", 200, &[]),
    (
        "/stats",
        "Reports the statistics of the store; directory.path is the path of its directory.",
        200,
        &[401, 503],
    ),
    ("/metrics", "Reports statistics and calls as OpenMetrics text.", 200, &[401, 500, 503]),
];

/// Statuses of errors of each route of the API. 503 also refuses a read, such as by a server that
/// stops, or whose queue of logins is full.
const COMMON_ERRORS: &[u16] = &[400, 401, 403, 500, 503];

/// Description of the header of the expected version.
const EXPECTED_VERSION: &str =
    "the last revision, -2 (any, the default), -1 (no stream) or -4 (exists)";

/// The document.
pub fn document() -> String {
    static DOCUMENT: LazyLock<String> =
        LazyLock::new(|| serde_json::to_string_pretty(&build()).unwrap_or_default() + "\n");
    DOCUMENT.clone()
}

fn build() -> Value {
    let mut paths = Map::new();
    for (path, summary, success, errors) in PAGES {
        let mut operation = json!({
            "summary": summary,
            "responses": { success.to_string(): { "description": "Success." } },
        });
        for status in errors {
            let error = json!({ "$ref": "#/components/responses/TextError" });
            operation["responses"][status.to_string()] = error;
        }
        if !errors.contains(&401) {
            operation["security"] = json!([{}]);
        }
        paths.insert(path.to_string(), json!({ "get": operation }));
    }
    for route in &ROUTES {
        let member = paths.entry(route.path).or_insert_with(|| json!({}));
        member[route.method.as_str().to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Umbel HTTP API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Operations, users, consumer groups and streams of a server.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ "basic": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "basic": { "type": "http", "scheme": "basic" } },
            "responses": {
                "Error": {
                    "description": "An error.",
                    "content": {
                        "application/json": {
                            "schema": { "$ref": "#/components/schemas/Error" }
                        }
                    },
                },
                "TextError": {
                    "description": "An error.",
                    "content": { "text/plain": { "schema": { "type": "string" } } },
                },
            },
            "schemas": schemas(),
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut responses = Map::new();
    responses.insert(route.success.to_string(), json!({ "description": "Success." }));
    let is_public = route.path == "/openapi.json";
    let common: &[u16] = if is_public { &[] } else { COMMON_ERRORS };
    // Also a change without a body receives one, so that it can refuse it.
    let is_change = route.method != Method::GET;
    let body: &[u16] = if is_change { &[408, 413, 429] } else { &[] };
    let changes_work = ["/admin/", "/auto-scavenge/"].iter().any(|at| route.path.starts_with(at));
    let is_append = is_change && !changes_work;
    let space: &[u16] = if is_append { &[507] } else { &[] };
    for status in common.iter().chain(body).chain(space).chain(route.errors) {
        let error = json!({ "$ref": "#/components/responses/Error" });
        responses.insert(status.to_string(), error);
    }
    let mut operation = json!({
        "operationId": format!("{:?}{}", route.operation, suffix(route)),
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": responses,
    });
    if is_public {
        operation["security"] = json!([{}]);
    }
    match route.body {
        RequestSchema::None => {}
        RequestSchema::Json(name) => operation["requestBody"] = json_body(name),
        RequestSchema::Events => operation["requestBody"] = events_body(),
    }
    operation
}

/// Distinguishes the two routes that append.
fn suffix(route: &Route) -> &'static str {
    if route.path.ends_with("{eventId}") { "WithId" } else { "" }
}

fn json_body(schema: &str) -> Value {
    let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
    json!({ "required": true, "content": { "application/json": { "schema": schema } } })
}

fn events_body() -> Value {
    let list = json!({ "type": "array", "items": { "$ref": "#/components/schemas/NewEvent" } });
    json!({
        "required": true,
        "content": {
            "application/json": { "schema": {} },
            "application/octet-stream": {
                "schema": { "type": "string", "format": "binary" }
            },
            "application/vnd.kurrent.events+json": { "schema": list },
        },
    })
}

fn parameters(route: &Route) -> Vec<Value> {
    let text = json!({ "type": "string" });
    let segments = route.path.split('/');
    let names = segments.filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
    let mut all: Vec<Value> = names
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": text }))
        .collect();
    all.extend(route.query.iter().map(|(name, description)| {
        json!({ "name": name, "in": "query", "description": description, "schema": text })
    }));
    if route.body == RequestSchema::Events {
        all.push(header_parameter("Kurrent-ExpectedVersion", EXPECTED_VERSION));
        all.push(header_parameter("Kurrent-EventType", "type of a single event"));
        all.push(header_parameter("Kurrent-EventId", "id of a single event, a UUID"));
    }
    if route.operation == Operation::DeleteStream {
        all.push(header_parameter("Kurrent-ExpectedVersion", EXPECTED_VERSION));
        let hard = "true: tombstones the stream; false (the default): appends create it again";
        all.push(header_parameter("Kurrent-HardDelete", hard));
    }
    if route.path.starts_with("/streams/") && route.method == Method::GET {
        let resolves = "false: links are not resolved";
        all.push(header_parameter("Kurrent-ResolveLinkTos", resolves));
    }
    all
}

fn header_parameter(name: &str, about: &str) -> Value {
    json!({ "name": name, "in": "header", "description": about, "schema": { "type": "string" } })
}

fn schemas() -> Value {
    let object = |required: &[&str], properties: Value| {
        json!({
            "type": "object",
            "required": required,
            "properties": properties,
            "additionalProperties": false,
        })
    };
    let (text, number, flag) =
        (json!({ "type": "string" }), json!({ "type": "integer" }), json!({ "type": "boolean" }));
    let names = json!({ "type": "array", "items": text });
    let user = json!({
        "loginName": text, "fullName": text, "groups": names, "password": text,
    });
    let update = json!({ "fullName": text, "groups": names, "password": text });
    let change = json!({ "currentPassword": text, "newPassword": text });
    let event = json!({ "eventId": text, "eventType": text, "data": {}, "metadata": {} });
    let mut group = Map::new();
    for name in ["startPosition", "namedConsumerStrategy"] {
        group.insert(name.to_string(), text.clone());
    }
    for name in ["resolveLinktos", "extraStatistics", "preferRoundRobin"] {
        group.insert(name.to_string(), flag.clone());
    }
    for name in [
        "startFrom",
        "messageTimeoutMilliseconds",
        "maxRetryCount",
        "liveBufferSize",
        "bufferSize",
        "readBatchSize",
        "checkPointAfterMilliseconds",
        "minCheckPointCount",
        "maxCheckPointCount",
        "maxSubscriberCount",
    ] {
        group.insert(name.to_string(), number.clone());
    }
    json!({
        "Error": {
            "type": "object",
            "required": ["success", "error", "message"],
            "properties": { "success": flag, "error": text, "message": text },
        },
        "NewUser": object(&["loginName", "password"], user),
        "UserUpdate": object(&["fullName", "groups"], update),
        "PasswordReset": object(&["newPassword"], json!({ "newPassword": text })),
        "PasswordChange": object(&["currentPassword", "newPassword"], change),
        "AutoScavengeSettings": object(&[], json!({
            "schedule": { "type": ["string", "null"] },
            "thresholdPercent": number,
            "throttlePercent": number,
        })),
        "GroupSettings": object(&[], Value::Object(group)),
        "NewEvent": object(&["eventType"], event),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Set this variable to write the document.
    const BLESS: &str = "UMBEL_BLESS";

    #[test]
    fn committed_document_describes_the_routes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/openapi.json");
        if std::env::var_os(BLESS).is_some() {
            std::fs::write(path, document()).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(committed == document(), "set {BLESS}=1 to write {path}");
    }

    /// Story: a read of damaged data was 500, which the document did not have. Of all requests that
    /// a stopping or read-only server refuses with 503, it had only the start of a backup.
    #[test]
    fn failures_of_the_server_are_in_the_document() {
        for route in ROUTES.iter().filter(|route| route.path != "/openapi.json") {
            let described = operation(route);
            for status in ["500", "503"] {
                let failure = &described["responses"][status]["$ref"];
                assert_eq!(failure, "#/components/responses/Error", "{status} {route:?}");
            }
        }
        let document: Value = serde_json::from_str(&document()).unwrap();
        for path in ["/health/ready", "/stats", "/metrics"] {
            let failure = &document["paths"][path]["get"]["responses"]["503"]["$ref"];
            assert_eq!(failure, "#/components/responses/TextError", "{path}");
        }
    }

    /// Story: a change without a body could answer 408, 413 or 429, but the document had none.
    #[test]
    fn failures_to_receive_a_body_are_in_the_document() {
        for route in &ROUTES {
            let responses = &operation(route)["responses"];
            for status in ["408", "413", "429"] {
                let is_described = responses[status].is_object();
                assert_eq!(is_described, route.method != Method::GET, "{status} {route:?}");
            }
        }
    }

    #[test]
    fn every_served_path_is_in_the_document() {
        let document: Value = serde_json::from_str(&document()).unwrap();
        for path in crate::http::PATHS {
            assert!(document["paths"][path]["get"].is_object(), "{path}");
        }
        for route in &ROUTES {
            let method = route.method.as_str().to_ascii_lowercase();
            assert!(document["paths"][route.path][&method].is_object(), "{route:?}");
        }
        let pages = PAGES.map(|(path, ..)| path);
        assert_eq!(pages, crate::http::PATHS);
        let mut ids: Vec<String> =
            ROUTES.iter().map(|route| format!("{:?}{}", route.operation, suffix(route))).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), ROUTES.len(), "each operation has its own id");
    }
}
