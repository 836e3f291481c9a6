//! Cases of the Rust client against a TLS server that authenticates users.

use std::path::Path;

use kurrentdb::operations::{Client as Operations, OperationalOptions, StatsOptions};
use kurrentdb::{
    Acl, AppendToStreamOptions, Client, Credentials, Error as ClientError, EventData,
    ReadStreamOptions, StreamAclBuilder, StreamMetadataBuilder,
};
use uuid::Uuid;

use crate::basic_cases::{Case, Counted, Failure, Outcome, refused};

/// Returns all cases; a case runs only when it is awaited.
pub fn all<'a>(connection: &'a str, folder: &'a Path) -> Vec<Case<'a>> {
    let at = Place { connection, folder };
    vec![
        ("create, change, disable and delete a user", Box::pin(users(at))),
        ("change and reset a password", Box::pin(passwords(at))),
        ("obey the ACL of a stream", Box::pin(acl(at))),
        ("reject a missing and a wrong password", Box::pin(wrong(at))),
        ("authenticate by a user certificate", Box::pin(certificate(at))),
        ("read the server's statistics", Box::pin(stats(at))),
        ("require permission for operations", Box::pin(operations(at))),
    ]
}

#[derive(Clone, Copy)]
struct Place<'a> {
    connection: &'a str,
    folder: &'a Path,
}

impl Place<'_> {
    /// Returns the connection string with further options, for this user or anonymous.
    fn string(self, user: &str, more: &str) -> String {
        let at = if user.is_empty() { String::new() } else { format!("{user}@") };
        let place = self.connection.replacen("://", &format!("://{at}"), 1);
        format!("{place}?tlsCaFile={}{more}", self.folder.join("ca.crt").display())
    }

    fn client(self, user: &str) -> Result<Client, Failure> {
        Ok(Client::new(self.string(user, "").parse()?)?)
    }

    fn operations(self, user: &str) -> Result<Operations, Failure> {
        Ok(Operations::new(self.string(user, "").parse()?)?)
    }
}

/// Returns a login that no user has yet.
fn name() -> String {
    format!("user-{}", Uuid::new_v4())
}

async fn append(client: &Client, stream: &str) -> kurrentdb::Result<()> {
    let event = EventData::json("Counted", &Counted { n: 0 }).expect("a number is JSON");
    client.append_to_stream(stream, &AppendToStreamOptions::default(), event).await.map(drop)
}

fn denied<T>(outcome: kurrentdb::Result<T>) -> Outcome {
    match refused(outcome.map(drop))? {
        ClientError::AccessDenied => Ok(()),
        error => Err(error.into()),
    }
}

async fn users(at: Place<'_>) -> Outcome {
    let (admin, options, login) =
        (at.operations("admin:first")?, OperationalOptions::default(), name());
    let groups = vec!["readers".to_string()];
    admin.create_user(&login, "secret", "A User", groups, &options).await?;
    let again = admin.create_user(&login, "secret", "A User", Vec::new(), &options).await;
    if let ClientError::AccessDenied = refused(again)? {
        return Err("the caller was refused, not the name".into());
    }
    let user = at.client(&format!("{login}:secret"))?;
    append(&user, &login).await?;
    let mut details = admin.user_details(&login, &options).await?;
    let found = details.next().await?.ok_or("no details")?;
    if found.full_name != "A User" || found.groups != ["readers"] || found.disabled {
        return Err(format!("{found:?}").into());
    }
    admin.update_user(&login, "secret", "Another", Vec::new(), &options).await?;
    admin.disable_user(&login, &options).await?;
    denied(append(&user, &login).await)?;
    admin.enable_user(&login, &options).await?;
    append(&user, &login).await?;
    admin.delete_user(&login, &options).await?;
    denied(append(&user, &login).await)?;
    match refused(admin.enable_user(&login, &options).await)? {
        ClientError::ResourceNotFound => Ok(()),
        error => Err(error.into()),
    }
}

async fn passwords(at: Place<'_>) -> Outcome {
    let (admin, options, login) =
        (at.operations("admin:first")?, OperationalOptions::default(), name());
    admin.create_user(&login, "first", "A User", Vec::new(), &options).await?;
    let own = at.operations(&format!("{login}:first"))?;
    denied(own.change_user_password(&login, "wrong", "second", &options).await)?;
    denied(own.reset_user_password(&login, "second", &options).await)?;
    own.change_user_password(&login, "first", "second", &options).await?;
    denied(append(&at.client(&format!("{login}:first"))?, &login).await)?;
    append(&at.client(&format!("{login}:second"))?, &login).await?;
    admin.reset_user_password(&login, "third", &options).await?;
    denied(append(&at.client(&format!("{login}:second"))?, &login).await)?;
    append(&at.client(&format!("{login}:third"))?, &login).await.map_err(Failure::from)
}

async fn acl(at: Place<'_>) -> Outcome {
    let (admin, ops, stream) = (at.client("admin:first")?, at.client("ops:second")?, name());
    append(&admin, &stream).await?;
    let said = StreamAclBuilder::new().add_read_roles("admin").add_write_roles("$ops").build();
    let metadata = StreamMetadataBuilder::new().acl(Acl::Stream(said)).build();
    admin.set_stream_metadata(stream.as_str(), &Default::default(), &metadata).await?;
    let options = ReadStreamOptions::default();
    append(&ops, &stream).await?;
    denied(ops.read_stream(stream.as_str(), &options).await)?;
    // Credentials of a call replace those of the connection.
    let options = options.authenticated(Credentials::new("admin", "first"));
    let mut read = ops.read_stream(stream.as_str(), &options).await?;
    let mut count = 0;
    while read.next().await?.is_some() {
        count += 1;
    }
    let general = StreamMetadataBuilder::new().acl(Acl::SystemStream).build();
    admin.set_stream_metadata(stream.as_str(), &Default::default(), &general).await?;
    denied(append(&ops, &stream).await)?;
    if count == 2 { Ok(()) } else { Err(format!("{count} events in place of 2").into()) }
}

async fn wrong(at: Place<'_>) -> Outcome {
    for user in ["", "admin:second", "unknown:first"] {
        denied(append(&at.client(user)?, "secure-none").await)?;
    }
    Ok(())
}

async fn certificate(at: Place<'_>) -> Outcome {
    let (certificate, key) = (at.folder.join("ops.crt"), at.folder.join("ops.key"));
    let more = format!("&userCertFile={}&userKeyFile={}", certificate.display(), key.display());
    let client = Client::new(at.string("", &more).parse()?)?;
    append(&client, &name()).await.map_err(Failure::from)
}

async fn stats(at: Place<'_>) -> Outcome {
    let ops = at.operations("ops:second")?;
    let mut stats = ops.stats(&StatsOptions::default()).await?;
    let first = stats.next().await?;
    match first.0.get("store.position") {
        Some(_) => Ok(()),
        None => Err(format!("{first:?}").into()),
    }
}

async fn operations(at: Place<'_>) -> Outcome {
    let options = OperationalOptions::default();
    let ops = at.operations("ops:second")?;
    ops.merge_indexes(&options).await?;
    ops.restart_persistent_subscriptions(&options).await?;
    denied(ops.create_user(name(), "x", "X", Vec::new(), &options).await)?;
    denied(at.operations("")?.merge_indexes(&options).await)
}
