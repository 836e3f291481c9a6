//! Clients that change users and metadata, and that delete streams.

use tonic::Status;
use umbel_proto::read_options::of_stream;
use umbel_proto::streams::read_req::RevisionOption;
use umbel_proto::streams::read_resp::Content;
use umbel_proto::streams::{DeleteOptions, DeleteReq, DeleteResp, ExpectedRevision};
use umbel_proto::users::{
    DetailsResp, Login, LoginReq, ResetPasswordOptions, ResetPasswordReq, SERVICE, UserOptions,
    UserReq,
};

use crate::serving::messages::{append, id, mix};
use crate::serving::soak::append_workers::appended;
use crate::serving::soak::soak_context::{
    AnswerStream, SoakContext, WorkResult, failed, unexpected_answer,
};
use crate::serving::soak::soak_event::proposed;
use crate::serving::soak::soak_oracle::DeletedStreamState;
use umbel_testing::server_connection::{Connection, STREAMS};

/// Number of users that are created and deleted in turn.
const USERS: u64 = 16;
const STEPS: u64 = 6;
/// Number of streams whose metadata is changed.
const CUT_STREAMS: u64 = 16;
/// Events of a stream that is deleted.
const DELETED_STREAM_EVENTS: u64 = 3;
const ANY: ExpectedRevision = ExpectedRevision::Any(());

/// Makes the next change of the next user.
pub(super) async fn change_user(
    context: &SoakContext,
    connection: &Connection,
    call: u64,
) -> WorkResult<bool> {
    let login = format!("soak-{}", call / STEPS % USERS);
    let by_name = LoginReq { options: Some(Login { login_name: login.clone() }) };
    let done: Result<(), Status> = match call % STEPS {
        0 => {
            context.oracle.user(&login, None);
            let options = UserOptions {
                login_name: login.clone(),
                password: format!("secret-{call}"),
                full_name: "temporary user of the soak".to_string(),
                groups: vec!["soaked".to_string()],
            };
            let made = UserReq { options: Some(options) };
            let made = connection.unary(SERVICE, "Create", made).await;
            context.oracle.user(&login, made.is_ok().then_some(true));
            made
        }
        1 => {
            let new_password = format!("other-{call}");
            let options = ResetPasswordOptions { login_name: login, new_password };
            let reset = ResetPasswordReq { options: Some(options) };
            connection.unary(SERVICE, "ResetPassword", reset).await
        }
        2 => connection.unary(SERVICE, "Disable", by_name).await,
        3 => connection.unary(SERVICE, "Enable", by_name).await,
        4 => return described(connection, &login).await,
        _ => {
            context.oracle.user(&login, None);
            let deleted = connection.unary(SERVICE, "Delete", by_name).await;
            context.oracle.user(&login, deleted.is_ok().then_some(false));
            deleted
        }
    };
    done.map(|()| true).map_err(failed("a change of a user"))
}

async fn described(connection: &Connection, login: &str) -> WorkResult<bool> {
    let names = logins(connection, login).await?;
    if names != [login] {
        return unexpected_answer(&format!("details of {login}"), names);
    }
    Ok(true)
}

/// Lists the user with this login name; all users for an empty name.
pub(super) async fn logins(connection: &Connection, login: &str) -> WorkResult<Vec<String>> {
    let request = LoginReq { options: Some(Login { login_name: login.to_string() }) };
    let request = futures_util::stream::iter([request]);
    let answers = connection.streaming::<_, DetailsResp, _>(SERVICE, "Details", request).await;
    let mut answers = answers.map_err(failed("details of users"))?;
    let mut names = Vec::new();
    while let Some(answer) = answers.message().await.map_err(failed("details of users"))? {
        names.extend(answer.user_details.map(|user| user.login_name));
    }
    Ok(names)
}

/// Sets `$maxCount` of a stream, appends one event, and reads the stream.
pub(super) async fn change_metadata(
    context: &SoakContext,
    connection: &Connection,
    writer: usize,
    call: u64,
) -> WorkResult<bool> {
    let stream = format!("soak-cut-{:02}", call % CUT_STREAMS);
    let shown = mix(call) % 10 + 1;
    let mut metadata = proposed(writer, 0);
    metadata.data = format!("{{\"$maxCount\":{shown}}}").into_bytes().into();
    metadata.metadata.insert("type".to_string(), "$metadata".to_string());
    metadata.id = Some(id(0x5041_4b00, call));
    let parts = append(&format!("$${stream}"), ANY, [metadata]);
    appended(connection.append_parts(parts).await.map_err(failed("metadata"))?)?;
    let number = context.oracle.begin(writer, 1).start;
    let parts = append(&stream, ANY, [proposed(writer, number)]);
    let last = appended(connection.append_parts(parts).await.map_err(failed("an append"))?)?;
    context.oracle.acknowledged(writer);
    let read = revisions(connection, &stream).await?;
    let wanted: Vec<u64> = ((last + 1).saturating_sub(shown)..=last).collect();
    if read != Some(wanted) {
        return unexpected_answer(
            &format!("a read of {stream} that shows {shown} up to {last}"),
            read,
        );
    }
    Ok(true)
}

/// Fills a stream and deletes it; tombstones every fifth one instead. Half of the deleted streams
/// are created again.
pub(super) async fn delete_stream(
    context: &SoakContext,
    connection: &Connection,
    writer: usize,
    call: u64,
) -> WorkResult<bool> {
    let stream = format!("soak-gone-{call:012}");
    let numbers = context.oracle.begin(writer, DELETED_STREAM_EVENTS);
    let events = numbers.map(|number| proposed(writer, number));
    let parts = append(&stream, ExpectedRevision::NoStream(()), events);
    appended(connection.append_parts(parts).await.map_err(failed("an append"))?)?;
    context.oracle.acknowledged(writer);
    let is_for_good = call % 5 == 4;
    let options = DeleteOptions {
        stream_identifier: Some(stream.as_str().into()),
        expected_stream_revision: Some(ExpectedRevision::Revision(DELETED_STREAM_EVENTS - 1)),
    };
    let request = DeleteReq { options: Some(options) };
    let method = if is_for_good { "Tombstone" } else { "Delete" };
    let deleted = connection.unary::<_, DeleteResp>(STREAMS, method, request).await;
    deleted.map_err(failed("a deletion"))?;
    let mut left =
        if is_for_good { DeletedStreamState::Tombstone } else { DeletedStreamState::Nothing };
    check_left(connection, &stream, left).await?;
    if left == DeletedStreamState::Nothing && call.is_multiple_of(2) {
        let number = context.oracle.begin(writer, 1).start;
        let parts = append(&stream, ANY, [proposed(writer, number)]);
        appended(connection.append_parts(parts).await.map_err(failed("an append"))?)?;
        context.oracle.acknowledged(writer);
        left = DeletedStreamState::Back(DELETED_STREAM_EVENTS);
        check_left(connection, &stream, left).await?;
    }
    context.oracle.deleted(stream, left);
    Ok(true)
}

/// Checks the state of a stream after its deletion.
pub(super) async fn check_left(
    connection: &Connection,
    stream: &str,
    left: DeletedStreamState,
) -> WorkResult {
    let read = match revisions(connection, stream).await {
        Ok(Some(read)) => Ok(read),
        Ok(None) if left == DeletedStreamState::Nothing => return Ok(()),
        Ok(None) => Err("no such stream".to_string()),
        Err(text) => Err(text),
    };
    match (read, left) {
        (Ok(read), DeletedStreamState::Back(revision)) if read == [revision] => Ok(()),
        (Err(text), DeletedStreamState::Tombstone) if text.contains("is deleted") => Ok(()),
        (read, left) => {
            unexpected_answer(&format!("a read of {stream}, of which {left:?} is left,"), read)
        }
    }
}

/// Returns the revisions in a read of a whole stream; `None` if the stream does not exist.
async fn revisions(connection: &Connection, stream: &str) -> WorkResult<Option<Vec<u64>>> {
    let options = of_stream(stream, RevisionOption::Start(()));
    let mut revisions = Vec::new();
    let mut answers = AnswerStream::open(connection, options).await?;
    loop {
        match answers.next().await? {
            None => return Ok(Some(revisions)),
            Some(Content::StreamNotFound(_)) => return Ok(None),
            Some(Content::Event(event)) => {
                revisions.extend(event.event.map(|event| event.stream_revision));
            }
            Some(_) => {}
        }
    }
}
