//! Names of groups of consumers that cannot be, or not beside others.

use tonic::Code;

use super::client::fact;
use super::ground::Ground;
use super::persistent::{create, of_stream, settings};

/// The story: a group's streams are named after its stream and itself, with `::` in between, which
/// both may have in them. Two groups of one name together kept one state: what the one had done
/// was left out for the other.
#[test]
fn groups_whose_names_join_to_one_are_not_made_beside_each_other() {
    Ground::new().run(async |client, _| {
        let of = |stream: &str, group: &str| {
            let mut asked = of_stream(stream, settings());
            asked.options.as_mut().unwrap().group_name = group.to_string();
            asked
        };
        create(&client, of("orders", "eu::mail")).await.unwrap();
        let status = create(&client, of("orders::eu", "mail")).await.unwrap_err();
        assert_eq!(fact(&status, "exception"), "persistent-subscription-failed");
        let reason = fact(&status, "reason");
        assert!(reason.contains("where group 'eu::mail' on stream 'orders' does"), "{reason}");
        create(&client, of("orders::eu", "post")).await.unwrap();
        let status = create(&client, of(&"s".repeat(1000), "mail")).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let said = status.message();
        assert!(said.contains("1004 bytes together; at most 987 are taken"), "{said}");
        create(&client, of(&"s".repeat(983), "mail")).await.unwrap();
    });
}
