//! Errors of an S3 store, by the status of the answer and the code in its body.

use std::error::Error;

use umbel_env::{ObjectError, ObjectErrorKind};

use super::call_record::CallRecord;

/// Returns the error of a request, with a remedy where one is known.
pub(super) fn s3_error(
    operation: &'static str,
    object: &str,
    record: &CallRecord,
    error: &object_store::Error,
) -> ObjectError {
    let text = causes(error);
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let code = code.map_or_else(String::new, |(code, _)| code.to_owned());
    let kind = kind_of(record.status(), &code);
    let status = record.status().map(|status| format!("status {status}"));
    let cause = match (status, code.as_str()) {
        (Some(status), "") => status,
        (Some(status), code) => format!("{status}, {code}"),
        (None, _) => text,
    };
    let cause = match remedy(record.status(), &code) {
        Some(remedy) => format!("{cause}; {remedy}"),
        None => cause,
    };
    ObjectError::new(kind, operation, object, cause)
}

/// Returns the messages of an error and of its causes.
fn causes(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = error.source();
    }
    text
}

fn kind_of(status: Option<u16>, code: &str) -> ObjectErrorKind {
    match (status, code) {
        (_, "ExpiredToken" | "RequestTimeTooSkewed" | "InvalidAccessKeyId") => {
            ObjectErrorKind::Denied
        }
        (_, "RequestTimeout" | "SlowDown" | "InternalError") => ObjectErrorKind::Unavailable,
        (Some(401 | 403), _) => ObjectErrorKind::Denied,
        (Some(408 | 409 | 412 | 425 | 429), _) => ObjectErrorKind::Unavailable,
        (Some(501 | 505), _) => ObjectErrorKind::Refused,
        (Some(500..=599), _) | (None, _) => ObjectErrorKind::Unavailable,
        (Some(200..=299), _) => ObjectErrorKind::Damaged,
        (Some(_), _) => ObjectErrorKind::Refused,
    }
}

fn remedy(status: Option<u16>, code: &str) -> Option<&'static str> {
    match (status, code) {
        (_, "NoSuchBucket") => Some("create the bucket, or correct its name"),
        (_, "ExpiredToken") => Some("renew the credentials"),
        (_, "RequestTimeTooSkewed") => Some("synchronize this machine's clock"),
        (_, "SignatureDoesNotMatch") => Some("check AWS_SECRET_ACCESS_KEY and the region"),
        (_, "InvalidAccessKeyId") => Some("check AWS_ACCESS_KEY_ID"),
        (Some(301 | 307 | 308), _) => Some("set AWS_REGION to the region of the bucket"),
        (Some(401 | 403), _) => {
            Some("check the credentials, and grant the rights to read, write, list and delete")
        }
        (Some(501), _) => Some("the store does not know this condition; use another store"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_kinds() {
        for (status, code, kind) in [
            (Some(403), "AccessDenied", ObjectErrorKind::Denied),
            (Some(400), "ExpiredToken", ObjectErrorKind::Denied),
            (Some(400), "RequestTimeout", ObjectErrorKind::Unavailable),
            (Some(400), "InvalidRequest", ObjectErrorKind::Refused),
            (Some(404), "NoSuchBucket", ObjectErrorKind::Refused),
            (Some(301), "", ObjectErrorKind::Refused),
            (Some(500), "", ObjectErrorKind::Unavailable),
            (Some(501), "NotImplemented", ObjectErrorKind::Refused),
            (Some(503), "SlowDown", ObjectErrorKind::Unavailable),
            (None, "", ObjectErrorKind::Unavailable),
            (Some(200), "", ObjectErrorKind::Damaged),
        ] {
            assert_eq!(kind_of(status, code), kind, "{status:?} {code}");
        }
    }
}
