//! Tests of users: creation, changes, refusals, passwords.

use std::collections::BTreeMap;

use tonic::{Code, Status};
use umbel_proto::monitoring::{StatsReq, StatsResp};
use umbel_proto::users::{
    ChangePasswordOptions, ChangePasswordReq, DetailsResp, Login, LoginReq, ResetPasswordOptions,
    ResetPasswordReq, UserDetails, UserOptions, UserReq,
};

use super::client::{ANY, Client, events, fact};
use super::test_server::TestServer;

/// The service, repeated here so that a changed name is noticed.
const SERVICE: &str = "event_store.client.users.Users";

fn user(login: &str, password: &str, groups: &[&str]) -> UserReq {
    UserReq {
        options: Some(UserOptions {
            login_name: login.to_string(),
            password: password.to_string(),
            full_name: format!("{login} the user"),
            groups: groups.iter().map(|group| group.to_string()).collect(),
        }),
    }
}

/// Creates a user.
pub async fn create(
    client: &Client,
    login: &str,
    password: &str,
    groups: &[&str],
) -> Result<(), Status> {
    client.unary(SERVICE, "Create", user(login, password, groups)).await
}

/// Applies a change that needs only the user's name.
pub async fn change(client: &Client, method: &str, login: &str) -> Result<(), Status> {
    let options = Some(Login { login_name: login.to_string() });
    client.unary(SERVICE, method, LoginReq { options }).await
}

async fn details(client: &Client, login: &str) -> Result<Vec<UserDetails>, Status> {
    let options = Some(Login { login_name: login.to_string() });
    let request = futures_util::stream::iter([LoginReq { options }]);
    let mut answers = client.streaming::<_, DetailsResp, _>(SERVICE, "Details", request).await?;
    let mut users = Vec::new();
    while let Some(answer) = answers.message().await? {
        users.push(answer.user_details.unwrap());
    }
    Ok(users)
}

async fn change_password(client: &Client, login: &str, old: &str, new: &str) -> Result<(), Status> {
    let options = Some(ChangePasswordOptions {
        login_name: login.to_string(),
        current_password: old.to_string(),
        new_password: new.to_string(),
    });
    client.unary(SERVICE, "ChangePassword", ChangePasswordReq { options }).await
}

async fn reset(client: &Client, login: &str, new: &str) -> Result<(), Status> {
    let options =
        Some(ResetPasswordOptions { login_name: login.to_string(), new_password: new.to_string() });
    client.unary(SERVICE, "ResetPassword", ResetPasswordReq { options }).await
}

/// Whether the server accepts the user's credentials: an append by the user succeeds.
async fn is_authenticated(client: &Client) -> bool {
    match client.append("open", ANY, &events(0..1)).await {
        Ok(_) => true,
        Err(status) => {
            assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
            false
        }
    }
}

#[test]
fn user_is_created_updated_disabled_and_deleted() {
    TestServer::with_users().run(async |client, server| {
        let admin = client.with_user("admin", "first");
        let ada = client.with_user("ada", "secret");
        assert!(!is_authenticated(&ada).await);
        create(&admin, "ada", "secret", &["readers"]).await.unwrap();
        assert!(is_authenticated(&ada).await, "although the password was rejected just before");
        let answer = details(&ada, "ada").await.unwrap();
        assert_eq!(answer.len(), 1);
        assert_eq!(
            (&*answer[0].full_name, &answer[0].groups[..]),
            ("ada the user", &["readers".into()][..])
        );
        assert!(!answer[0].disabled && answer[0].last_updated.unwrap().ticks_since_epoch > 0);
        let names: Vec<String> =
            details(&admin, "").await.unwrap().into_iter().map(|user| user.login_name).collect();
        assert_eq!(names, ["ada", "admin", "ops"]);
        let again = create(&admin, "ada", "other", &[]).await.unwrap_err();
        assert_eq!(fact(&again, "exception"), "user-conflict");
        for change_of in ["Disable", "Disable"] {
            change(&admin, change_of, "ada").await.unwrap();
            assert!(!is_authenticated(&ada).await);
        }
        assert!(details(&admin, "ada").await.unwrap()[0].disabled);
        change(&admin, "Enable", "ada").await.unwrap();
        assert!(is_authenticated(&ada).await);
        let update = user("ada", "", &["$admins"]);
        admin.unary::<_, ()>(SERVICE, "Update", update).await.unwrap();
        assert_eq!(details(&ada, "").await.unwrap().len(), 3, "ada is an administrator now");
        // Events written without these calls count as well, even by another program.
        server.store.delete("$user-ada", umbel_events::ExpectedVersion::Any).unwrap();
        assert!(!is_authenticated(&ada).await);
        for method in ["Delete", "Disable", "Enable"] {
            let missing = change(&admin, method, "ada").await.unwrap_err();
            assert_eq!(fact(&missing, "exception"), "user-not-found", "{method}");
            assert_eq!(fact(&missing, "login-name"), "ada");
        }
        create(&admin, "ada", "third", &[]).await.unwrap();
        assert!(!is_authenticated(&ada).await, "the password is another");
        assert!(is_authenticated(&client.with_user("ada", "third")).await);
    });
}

#[test]
fn users_change_and_admins_reset_passwords() {
    TestServer::with_users().run(async |client, _| {
        let admin = client.with_user("admin", "first");
        create(&admin, "ada", "old", &[]).await.unwrap();
        create(&admin, "bob", "bobs", &[]).await.unwrap();
        let (ada, bob) = (client.with_user("ada", "old"), client.with_user("bob", "bobs"));
        for refused in [
            change_password(&ada, "ada", "wrong", "new").await,
            change_password(&bob, "ada", "old", "new").await,
            reset(&bob, "ada", "new").await,
        ] {
            assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
        }
        let empty = change_password(&ada, "ada", "old", "").await.unwrap_err();
        assert_eq!(empty.code(), Code::InvalidArgument);
        change_password(&ada, "ada", "old", "new").await.unwrap();
        assert!(!is_authenticated(&ada).await, "the old one no longer counts");
        let ada = client.with_user("ada", "new");
        assert!(is_authenticated(&ada).await);
        reset(&admin, "ada", "third").await.unwrap();
        assert!(!is_authenticated(&ada).await);
        let missing = reset(&admin, "eve", "x").await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound);
    });
}

#[test]
fn invalid_names_and_passwords_are_rejected() {
    TestServer::with_users().run(async |client, _| {
        let admin = client.with_user("admin", "first");
        let long = "x".repeat(2000);
        for (login, password, groups) in [
            ("", "x", &[][..]),
            ("a:b", "x", &[]),
            ("$admins", "x", &[]),
            (&*long, "x", &[]),
            ("ada", "", &[]),
            ("ada", &*long, &[]),
            ("ada", "x", &[""]),
        ] {
            let refused = create(&admin, login, password, groups).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
            assert!(!refused.message().contains("xxxx"), "no password is repeated: {refused:?}");
        }
        for method in ["Create", "Update", "Delete", "Enable", "ChangePassword", "ResetPassword"] {
            let refused = admin.unary::<(), ()>(SERVICE, method, ()).await;
            let refused = refused.unwrap_err();
            let codes = [Code::InvalidArgument, Code::PermissionDenied];
            assert!(codes.contains(&refused.code()), "{method}: {refused:?}");
        }
    });
}

#[test]
fn stats_stream_repeats_while_permitted() {
    TestServer::with_users().run(async |client, _| {
        let admin = client.with_user("admin", "first");
        create(&admin, "ada", "secret", &[]).await.unwrap();
        let ada = client.with_user("ada", "secret");
        let request = StatsReq { use_metadata: false, refresh_time_period_in_ms: 1 };
        let service = "event_store.client.monitoring.Monitoring";
        let request = futures_util::stream::iter([request]);
        let mut answer = ada.streaming::<_, StatsResp, _>(service, "Stats", request).await.unwrap();
        let first = answer.message().await.unwrap().unwrap().stats;
        admin.append("more", ANY, &events(0..1)).await.unwrap();
        let second = answer.message().await.unwrap().unwrap().stats;
        let position =
            |stats: &BTreeMap<String, String>| -> u64 { stats["store.position"].parse().unwrap() };
        assert!(position(&second) > position(&first));
        change(&admin, "Disable", "ada").await.unwrap();
        let ended = loop {
            match answer.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended without a status"),
                Err(status) => break status,
            }
        };
        assert_eq!(ended.code(), Code::Unauthenticated);
    });
}

/// A server with `--insecure` ignores credentials: some clients always send them.
#[test]
fn insecure_server_ignores_passwords_and_manages_users() {
    TestServer::new().run(async |client, _| {
        let wrong = client.with_user("admin", "changeit");
        assert!(is_authenticated(&wrong).await);
        create(&wrong, "ada", "secret", &[]).await.unwrap();
        change_password(&client, "ada", "whatever", "other").await.unwrap();
        assert_eq!(details(&client, "").await.unwrap().len(), 1);
        change(&client, "Delete", "ada").await.unwrap();
        assert!(details(&client, "ada").await.is_err());
    });
}
