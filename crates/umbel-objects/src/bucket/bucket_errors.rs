//! Errors of a bucket, by the status of the answer and the code in its body.

use umbel_env::{ObjectError, ObjectErrorKind};

use super::bucket_url::Service;
use super::call_record::CallRecord;
use super::error_text::{causes, element, shortened};

/// Difference between the clocks from which signatures and tokens are refused.
const CLOCK_DIFFERENCE_MICROS_MAX: u64 = 4 * 60 * 1_000_000;

/// A request that failed.
#[derive(Debug)]
pub(super) struct Failure<'f> {
    /// Service of the bucket.
    pub(super) service: Service,
    /// The failed operation, as a verb.
    pub(super) operation: &'static str,
    /// The object or the prefix with its location.
    pub(super) object: String,
    /// Facts of the request.
    pub(super) record: &'f CallRecord,
    /// Time of this machine, in microseconds since 1970.
    pub(super) wall_micros: u64,
}

impl Failure<'_> {
    /// Returns the error, with a remedy where one is known.
    pub(super) fn error(&self, error: &object_store::Error) -> ObjectError {
        if let Some((kind, cause)) = self.record.credentials_failure() {
            return ObjectError::new(kind, self.operation, &self.object, cause);
        }
        let text = causes(error);
        let (status, code) = (self.record.status(), code(&text));
        let is_foreign = self.operation == "list" && matches!(status, Some(200..=299));
        let kind = match is_foreign {
            // A page in another form comes from a server with another protocol.
            true => ObjectErrorKind::Refused,
            false => kind_of(status, code),
        };
        let mut cause = match (status, code) {
            (Some(status), "") => format!("status {status}"),
            (Some(status), code) => format!("status {status}, {code}"),
            (None, _) => text.clone(),
        };
        let message = element(&text, "Message").or(is_foreign.then_some(text.as_str()));
        if status.is_some()
            && let Some(message) = message
        {
            cause.push_str(": ");
            cause.push_str(&shortened(message));
        }
        let remedy = match is_foreign {
            true => Some(format!(
                "the answer is not that of {}; check {}",
                store_name(self.service),
                endpoint_variable(self.service)
            )),
            false => self.remedy(status, code, &text),
        };
        if let Some(remedy) = remedy {
            cause.push_str("; ");
            cause.push_str(&remedy);
        }
        ObjectError::new(kind, self.operation, &self.object, cause)
    }

    fn remedy(&self, status: Option<u16>, code: &str, text: &str) -> Option<String> {
        let is_denied = matches!(status, Some(400 | 401 | 403));
        if is_denied && let Some(difference) = self.clock_difference() {
            return Some(difference);
        }
        if let Some(region) = self.region(status, code, text) {
            return Some(region);
        }
        if let Some(remedy) = remedy_of_code(code) {
            return Some(remedy.to_owned());
        }
        match status {
            Some(401 | 403) => Some(format!(
                "check the credentials, and grant the rights to read, write, list and delete; \
                 this request needs {}",
                right(self.service, self.operation)
            )),
            Some(501) => Some("the store does not know this condition; use another store".into()),
            _ => None,
        }
    }

    /// Describes a clock that explains why the store refuses credentials.
    fn clock_difference(&self) -> Option<String> {
        let store_micros = self.record.store_micros()?;
        let difference = store_micros.abs_diff(self.wall_micros);
        if difference < CLOCK_DIFFERENCE_MICROS_MAX {
            return None;
        }
        let side = if store_micros > self.wall_micros { "behind" } else { "ahead of" };
        Some(format!(
            "this machine's clock is {} s {side} that of the store; synchronize it",
            difference / 1_000_000
        ))
    }

    /// Describes the region of the bucket if the request went to another one.
    fn region(&self, status: Option<u16>, code: &str, text: &str) -> Option<String> {
        let is_elsewhere = matches!(status, Some(301 | 307 | 308))
            || matches!(
                code,
                "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException"
            );
        if self.service != Service::S3 || !is_elsewhere {
            return None;
        }
        let found = self.record.bucket_region();
        let found = found.or_else(|| element(text, "Region").map(str::to_owned));
        Some(match found {
            Some(region) => {
                format!("the bucket is in the region {region}; set AWS_REGION={region}")
            }
            None => "set AWS_REGION to the region of the bucket".to_owned(),
        })
    }
}

/// Returns the code in the text of an error; empty without one.
pub(super) fn code(text: &str) -> &str {
    element(text, "Code").unwrap_or_default()
}

/// Whether the text of status 404 means that the bucket is absent, and not an object of it.
pub(super) fn is_bucket_absent(text: &str) -> bool {
    let codes = ["NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"];
    codes.iter().any(|code| text.contains(code))
}

/// Whether an answer to a creation means that the name exists.
pub(super) fn is_existing(status: Option<u16>, code: &str) -> bool {
    matches!(status, Some(412 | 304)) || (status == Some(409) && code == "BlobAlreadyExists")
}

fn store_name(service: Service) -> &'static str {
    match service {
        Service::S3 => "an S3 store",
        Service::Gcs => "Google Cloud Storage",
        Service::Azure => "Azure Blob Storage",
    }
}

fn endpoint_variable(service: Service) -> &'static str {
    match service {
        Service::S3 => "AWS_ENDPOINT_URL",
        Service::Gcs => "GOOGLE_BASE_URL",
        Service::Azure => "AZURE_STORAGE_ENDPOINT",
    }
}

/// Returns the right that an operation needs.
fn right(service: Service, operation: &str) -> &'static str {
    match (service, operation) {
        (Service::S3, "create" | "write") => "s3:PutObject",
        (Service::S3, "read") => "s3:GetObject, and s3:ListBucket for absent objects",
        (Service::S3, "list") => "s3:ListBucket",
        (Service::S3, _) => "s3:DeleteObject",
        (Service::Gcs, "create" | "write") => "storage.objects.create",
        (Service::Gcs, "read") => "storage.objects.get",
        (Service::Gcs, "list") => "storage.objects.list",
        (Service::Gcs, _) => "storage.objects.delete",
        (Service::Azure, _) => "the role Storage Blob Data Contributor",
    }
}

fn kind_of(status: Option<u16>, code: &str) -> ObjectErrorKind {
    match (status, code) {
        (_, "ExpiredToken" | "RequestTimeTooSkewed" | "InvalidAccessKeyId" | "InvalidToken") => {
            ObjectErrorKind::Denied
        }
        // An archived object is read again only after an operator has restored it.
        (_, "InvalidObjectState" | "BlobArchived") => ObjectErrorKind::Damaged,
        (
            _,
            "RequestTimeout" | "SlowDown" | "InternalError" | "ServerBusy" | "OperationTimedOut",
        ) => ObjectErrorKind::Unavailable,
        (Some(401 | 403), _) => ObjectErrorKind::Denied,
        (Some(408 | 409 | 412 | 425 | 429), _) => ObjectErrorKind::Unavailable,
        (Some(501 | 505), _) => ObjectErrorKind::Refused,
        (Some(500..=599), _) | (None, _) => ObjectErrorKind::Unavailable,
        (Some(200..=299), _) => ObjectErrorKind::Damaged,
        (Some(_), _) => ObjectErrorKind::Refused,
    }
}

fn remedy_of_code(code: &str) -> Option<&'static str> {
    Some(match code {
        "NoSuchBucket" => "create the bucket, or correct its name",
        "ContainerNotFound" => "create the container, or correct its name",
        "ExpiredToken" | "InvalidToken" => "renew the credentials",
        "RequestTimeTooSkewed" => "synchronize this machine's clock",
        "SignatureDoesNotMatch" => "check AWS_SECRET_ACCESS_KEY and the region",
        "InvalidAccessKeyId" => "check AWS_ACCESS_KEY_ID",
        "AuthenticationFailed" => {
            "check AZURE_STORAGE_ACCOUNT_KEY, or the validity of the shared access signature"
        }
        "AuthorizationFailure" => "allow this machine's network in the storage account",
        "KMS.NotFoundException" | "KMS.DisabledException" | "KMS.InvalidStateException" => {
            "check the key in AWS_SSE_KMS_KEY_ID"
        }
        "InvalidObjectState" | "BlobArchived" => {
            "a rule of the bucket moved the object to an archive; restore the objects of the \
             prefix from the archive first, and end that rule"
        }
        "QuotaExceeded" => "raise the quota of the bucket or of its owner",
        "BlobImmutableDueToPolicy" | "ObjectLocked" | "RetentionPolicyNotMet" => {
            "a rule of the bucket keeps this object; use a bucket without retention"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::HeaderMap;
    use hyper::header::DATE;

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
            (Some(403), "InvalidObjectState", ObjectErrorKind::Damaged),
            (Some(409), "BlobArchived", ObjectErrorKind::Damaged),
            (Some(403), "QuotaExceeded", ObjectErrorKind::Denied),
            (None, "", ObjectErrorKind::Unavailable),
            (Some(200), "", ObjectErrorKind::Damaged),
        ] {
            assert_eq!(kind_of(status, code), kind, "{status:?} {code}");
        }
    }

    #[test]
    fn only_certain_answers_mean_that_a_name_exists() {
        assert!(is_existing(Some(412), "PreconditionFailed"));
        assert!(is_existing(Some(409), "BlobAlreadyExists"));
        for (status, code) in [
            (Some(409), "ConditionalRequestConflict"),
            (Some(409), "ContainerBeingDeleted"),
            (Some(403), "BlobAlreadyExists"),
            (None, ""),
        ] {
            assert!(!is_existing(status, code), "{status:?} {code}");
        }
    }

    /// Returns the message of an answer at this time of the store, whose clock is at 0:00:00.
    fn message(service: Service, status: u16, body: &str, wall_seconds: u64) -> String {
        let record = CallRecord::new(Duration::ZERO, 1);
        let mut headers = HeaderMap::new();
        headers.insert(DATE, "Thu, 01 Jan 1970 10:00:00 GMT".parse().expect("a value"));
        headers.insert("x-amz-bucket-region", "eu-west-1".parse().expect("a value"));
        record.note_answer(status, &headers);
        let wall_micros = (36_000 + wall_seconds) * 1_000_000;
        let object = "s3://b/p/a".to_owned();
        let record = &*record;
        let failure = Failure { service, operation: "create", object, record, wall_micros };
        let error = object_store::Error::Generic { store: "S3", source: body.into() };
        failure.error(&error).to_string()
    }

    #[test]
    fn messages_name_the_cause_and_the_remedy() {
        let body = |code: &str| format!("<Error><Code>{code}</Code><Message>why</Message></Error>");
        for (service, status, code, words) in [
            (Service::S3, 403, "AccessDenied", "AccessDenied: why; check the credentials"),
            (Service::S3, 403, "AccessDenied", "needs s3:PutObject"),
            (Service::S3, 301, "PermanentRedirect", "set AWS_REGION=eu-west-1"),
            (Service::S3, 400, "AuthorizationHeaderMalformed", "in the region eu-west-1"),
            (Service::S3, 403, "InvalidObjectState", "restore the objects of the prefix"),
            (Service::S3, 403, "QuotaExceeded", "raise the quota"),
            (Service::Azure, 409, "BlobArchived", "end that rule"),
            (Service::Azure, 404, "ContainerNotFound", "create the container"),
            (Service::Azure, 403, "AuthenticationFailed", "AZURE_STORAGE_ACCOUNT_KEY"),
            (Service::Azure, 403, "AuthorizationPermissionMismatch", "Blob Data Contributor"),
            (Service::Gcs, 403, "AccessDenied", "storage.objects.create"),
        ] {
            let message = message(service, status, &body(code), 0);
            assert!(message.contains(words), "{code}: {message}");
        }
        let late = message(Service::S3, 403, &body("SignatureDoesNotMatch"), 3_600);
        assert!(late.contains("3600 s ahead of that of the store; synchronize it"), "{late}");
    }
}
