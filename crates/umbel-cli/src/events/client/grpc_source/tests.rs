//! Skipped and imported events of other servers.

use umbel_proto::shared::{Uuid, uuid};

use super::*;

#[test]
fn internal_events_are_skipped_and_metadata_is_kept() {
    for (stream, kind, class, with_system) in [
        ("cart-1", "Opened", None, None),
        ("cart-1", "$>", None, None),
        ("$$cart-1", "$metadata", None, None),
        ("$settings", "update-default-acl", None, None),
        ("$ce-cart", "$>", Some(InternalEventKind::ViewLinks), Some(InternalEventKind::ViewLinks)),
        (
            "$et-Opened",
            "$>",
            Some(InternalEventKind::ViewLinks),
            Some(InternalEventKind::ViewLinks),
        ),
        ("$ce-cart", "$@", Some(InternalEventKind::ViewLinks), Some(InternalEventKind::ViewLinks)),
        ("$streams", "$>", Some(InternalEventKind::ViewLinks), Some(InternalEventKind::ViewLinks)),
        ("$bc-7", "$>", Some(InternalEventKind::ViewLinks), Some(InternalEventKind::ViewLinks)),
        ("$$$ce-cart", "$metadata", Some(InternalEventKind::System), None),
        (
            "$stats-127.0.0.1:2113",
            "$statsCollected",
            Some(InternalEventKind::Statistics),
            Some(InternalEventKind::Statistics),
        ),
        (
            "$$$stats-127.0.0.1:2113",
            "$metadata",
            Some(InternalEventKind::Statistics),
            Some(InternalEventKind::Statistics),
        ),
        ("$users", "$User", Some(InternalEventKind::System), None),
        ("$projections-$master", "$ready", Some(InternalEventKind::System), None),
    ] {
        assert_eq!(InternalEventKind::classify(stream, kind, false), class, "{stream}");
        assert_eq!(
            InternalEventKind::classify(stream, kind, true),
            with_system,
            "{stream} with --system"
        );
    }
}

#[test]
fn event_id_has_two_forms_and_type_is_required() {
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
    let read = decode_event(event.clone()).expect("an event");
    assert_eq!(read.id, EventId(bits.to_be_bytes()));
    assert_eq!((&read.stream[..], read.revision, read.created), ("cart-1", 4, Some(17)));
    assert!(read.is_json && &read.data[..] == b"{}");
    let text = id(uuid::Value::String(read.id.to_string()));
    assert_eq!(decode_event(RecordedEvent { id: text, ..event.clone() }).expect("an event"), read);
    assert_eq!(decode_event(RecordedEvent { metadata: Default::default(), ..event.clone() }), None);
    assert_eq!(decode_event(RecordedEvent { id: None, ..event }), None);
}
