//! What of other servers is left out, and their events.

use umbel_proto::shared::{Uuid, uuid};

use super::*;

#[test]
fn what_is_the_servers_own_is_left_out_and_metadata_is_kept() {
    for (stream, kind, class, with_system) in [
        ("cart-1", "Opened", None, None),
        ("cart-1", "$>", None, None),
        ("$$cart-1", "$metadata", None, None),
        ("$settings", "update-default-acl", None, None),
        ("$ce-cart", "$>", Some(Class::ViewLinks), Some(Class::ViewLinks)),
        ("$et-Opened", "$>", Some(Class::ViewLinks), Some(Class::ViewLinks)),
        ("$ce-cart", "$@", Some(Class::ViewLinks), Some(Class::ViewLinks)),
        ("$streams", "$>", Some(Class::ViewLinks), Some(Class::ViewLinks)),
        ("$bc-7", "$>", Some(Class::ViewLinks), Some(Class::ViewLinks)),
        ("$$$ce-cart", "$metadata", Some(Class::System), None),
        (
            "$stats-127.0.0.1:2113",
            "$statsCollected",
            Some(Class::Statistics),
            Some(Class::Statistics),
        ),
        ("$$$stats-127.0.0.1:2113", "$metadata", Some(Class::Statistics), Some(Class::Statistics)),
        ("$users", "$User", Some(Class::System), None),
        ("$projections-$master", "$ready", Some(Class::System), None),
    ] {
        assert_eq!(Class::of(stream, kind, false), class, "{stream}");
        assert_eq!(Class::of(stream, kind, true), with_system, "{stream} with --system");
    }
}

#[test]
fn an_event_has_both_forms_of_ids_and_needs_a_type() {
    let bits = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10_u128;
    let id = |value| Some(Uuid { value: Some(value) });
    let metadata = [("type", "Opened"), ("content-type", "application/json"), ("created", "17")];
    let event = RecordedEvent {
        id: id(uuid::Value::Structured(bits.into())),
        stream_identifier: Some("cart-1".into()),
        stream_revision: 4,
        metadata: metadata.map(|(key, value)| (key.to_string(), value.to_string())).into(),
        data: b"{}".to_vec().into(),
        ..RecordedEvent::default()
    };
    let read = event_of(event.clone()).expect("an event");
    assert_eq!(read.id, EventId(bits.to_be_bytes()));
    assert_eq!((&read.stream[..], read.revision, read.created), ("cart-1", 4, Some(17)));
    assert!(read.is_json && &read.data[..] == b"{}");
    let text = id(uuid::Value::String(read.id.to_string()));
    assert_eq!(event_of(RecordedEvent { id: text, ..event.clone() }).expect("an event"), read);
    assert_eq!(event_of(RecordedEvent { metadata: Default::default(), ..event.clone() }), None);
    assert_eq!(event_of(RecordedEvent { id: None, ..event }), None);
}
