//! Who changes what is not only appended to: users, metadata, streams that are deleted.

use tonic::Status;
use umbel_proto::reading::of_stream;
use umbel_proto::streams::read_req::RevisionOption;
use umbel_proto::streams::read_resp::Content;
use umbel_proto::streams::{DeleteOptions, DeleteReq, DeleteResp, ExpectedRevision};
use umbel_proto::users::{
    DetailsResp, Login, LoginReq, ResetPasswordOptions, ResetPasswordReq, SERVICE, UserOptions,
    UserReq,
};

use super::appends::appended;
use super::events::proposed;
use super::ground::{Answers, Done, Ground, failed, odd};
use super::ledger::Left;
use crate::serving::connection::{Connection, STREAMS};
use crate::serving::messages::{append, id, mix};

/// Users that come and go, and what is done with each by turns.
const USERS: u64 = 16;
const STEPS: u64 = 6;
/// Streams whose metadata is changed.
const CUT_STREAMS: u64 = 16;
/// Events of a stream that is deleted.
const GONE_EVENTS: u64 = 3;
const ANY: ExpectedRevision = ExpectedRevision::Any(());

/// Does the next thing with the next user.
pub(super) async fn user(ground: &Ground, connection: &Connection, call: u64) -> Done<bool> {
    let login = format!("soak-{}", call / STEPS % USERS);
    let by_name = LoginReq { options: Some(Login { login_name: login.clone() }) };
    let done: Result<(), Status> = match call % STEPS {
        0 => {
            ground.ledger.user(&login, None);
            let options = UserOptions {
                login_name: login.clone(),
                password: format!("secret-{call}"),
                full_name: "one who is made and forgotten".to_string(),
                groups: vec!["soaked".to_string()],
            };
            let made = UserReq { options: Some(options) };
            let made = connection.unary(SERVICE, "Create", made).await;
            ground.ledger.user(&login, made.is_ok().then_some(true));
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
            ground.ledger.user(&login, None);
            let deleted = connection.unary(SERVICE, "Delete", by_name).await;
            ground.ledger.user(&login, deleted.is_ok().then_some(false));
            deleted
        }
    };
    done.map(|()| true).map_err(failed("a change of a user"))
}

async fn described(connection: &Connection, login: &str) -> Done<bool> {
    let told = logins(connection, login).await?;
    if told != [login] {
        return odd(&format!("what there is to say of {login}"), told);
    }
    Ok(true)
}

/// The users that are told of; every one, where no name is said.
pub(super) async fn logins(connection: &Connection, login: &str) -> Done<Vec<String>> {
    let asked = LoginReq { options: Some(Login { login_name: login.to_string() }) };
    let asked = futures_util::stream::iter([asked]);
    let answers = connection.streaming::<_, DetailsResp, _>(SERVICE, "Details", asked).await;
    let mut answers = answers.map_err(failed("details of users"))?;
    let mut told = Vec::new();
    while let Some(answer) = answers.message().await.map_err(failed("details of users"))? {
        told.extend(answer.user_details.map(|user| user.login_name));
    }
    Ok(told)
}

/// Says how many events of a stream are shown, appends one, and reads it.
pub(super) async fn metadata(
    ground: &Ground,
    connection: &Connection,
    writer: usize,
    call: u64,
) -> Done<bool> {
    let stream = format!("soak-cut-{:02}", call % CUT_STREAMS);
    let shown = mix(call) % 10 + 1;
    let mut said = proposed(writer, 0);
    said.data = format!("{{\"$maxCount\":{shown}}}").into_bytes().into();
    said.metadata.insert("type".to_string(), "$metadata".to_string());
    said.id = Some(id(0x5041_4b00, call));
    let parts = append(&format!("$${stream}"), ANY, [said]);
    appended(connection.append_parts(parts).await.map_err(failed("metadata"))?)?;
    let number = ground.ledger.begin(writer, 1).start;
    let parts = append(&stream, ANY, [proposed(writer, number)]);
    let last = appended(connection.append_parts(parts).await.map_err(failed("an append"))?)?;
    ground.ledger.acknowledged(writer);
    let read = revisions(connection, &stream).await?;
    let wanted: Vec<u64> = ((last + 1).saturating_sub(shown)..=last).collect();
    if read != Some(wanted) {
        return odd(&format!("a read of {stream} that shows {shown} up to {last}"), read);
    }
    Ok(true)
}

/// Fills a stream and deletes it; every fifth for good. Every other one of the rest comes back.
pub(super) async fn delete(
    ground: &Ground,
    connection: &Connection,
    writer: usize,
    call: u64,
) -> Done<bool> {
    let stream = format!("soak-gone-{call:012}");
    let numbers = ground.ledger.begin(writer, GONE_EVENTS);
    let events = numbers.map(|number| proposed(writer, number));
    let parts = append(&stream, ExpectedRevision::NoStream(()), events);
    appended(connection.append_parts(parts).await.map_err(failed("an append"))?)?;
    ground.ledger.acknowledged(writer);
    let is_for_good = call % 5 == 4;
    let options = DeleteOptions {
        stream_identifier: Some(stream.as_str().into()),
        expected_stream_revision: Some(ExpectedRevision::Revision(GONE_EVENTS - 1)),
    };
    let request = DeleteReq { options: Some(options) };
    let method = if is_for_good { "Tombstone" } else { "Delete" };
    let deleted = connection.unary::<_, DeleteResp>(STREAMS, method, request).await;
    deleted.map_err(failed("a deletion"))?;
    let mut left = if is_for_good { Left::Tombstone } else { Left::Nothing };
    is_left(connection, &stream, left).await?;
    if left == Left::Nothing && call.is_multiple_of(2) {
        let number = ground.ledger.begin(writer, 1).start;
        let parts = append(&stream, ANY, [proposed(writer, number)]);
        appended(connection.append_parts(parts).await.map_err(failed("an append"))?)?;
        ground.ledger.acknowledged(writer);
        left = Left::Back(GONE_EVENTS);
        is_left(connection, &stream, left).await?;
    }
    ground.ledger.deleted(stream, left);
    Ok(true)
}

/// Whether this is left of a stream that was deleted.
pub(super) async fn is_left(connection: &Connection, stream: &str, left: Left) -> Done {
    let read = match revisions(connection, stream).await {
        Ok(Some(read)) => Ok(read),
        Ok(None) if left == Left::Nothing => return Ok(()),
        Ok(None) => Err("no such stream".to_string()),
        Err(text) => Err(text),
    };
    match (read, left) {
        (Ok(read), Left::Back(revision)) if read == [revision] => Ok(()),
        (Err(text), Left::Tombstone) if text.contains("is deleted") => Ok(()),
        (read, left) => odd(&format!("a read of {stream}, of which {left:?} is left,"), read),
    }
}

/// The revisions that a read of a whole stream shows; `None` where it is not there.
async fn revisions(connection: &Connection, stream: &str) -> Done<Option<Vec<u64>>> {
    let options = of_stream(stream, RevisionOption::Start(()));
    let mut revisions = Vec::new();
    let mut answers = Answers::open(connection, options).await?;
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
