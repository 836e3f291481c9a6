//! Tests of page charges, their lifetime, and the connections ended for them.

use http_body_util::BodyExt;
use hyper::body::Bytes;
use prost::Message;
use tonic::body::Body;
use umbel_env::Env;
use umbel_events::{
    Direction, EventId, ExpectedVersion, NewEvent, Position, RecordedEvent, ResolvedEvent, Source,
};
use umbel_proto::kv::GetResponse;
use umbel_proto::streams::read_req::UuidForm;

use super::*;
use crate::event_store::event_pager::{EventPager, ReadRange};
use crate::event_store::event_resolution::resolved_bytes;
use crate::grpc::grpc_encoder::GrpcEncoder;
use crate::grpc::response_body::ResponseBody;
use crate::grpc::response_stream::stream_steps;
use crate::protocol::proto_convert::event_response;
use crate::resources::connection_registry::ConnectionRegistry;
use crate::resources::outbound_call_share::OutboundShare;
use crate::resources::unsent_page::FrameCharge;
use crate::telemetry::response_end::ResponseEnd;
use crate::test_support::test_service::{TestService, run_paused};

const MIB: usize = 1 << 20;

#[test]
fn pages_stay_within_quota_and_stuck_client_is_closed() {
    run_paused(async {
        let registry = Arc::new(ConnectionRegistry::default());
        let [stuck, other] = [(); 2].map(|()| registry.register(None));
        let unread = Arc::new(OutboundQuota::new(2 * PAGE_BYTES_MAX));
        let calls: Vec<OutboundShare> =
            (0..20).map(|_| unread.new_share(Some(Arc::clone(&stuck.connection)))).collect();
        let mut served = 0;
        for call in &calls {
            if let Ok(reservation) =
                tokio::time::timeout(QUOTA_WAIT_TIME / 2, call.reserve_page()).await
            {
                call.charge(reservation.unwrap(), MIB);
                served += 1;
            }
        }
        let page = PAGE_BYTES_MAX.div_ceil(MIB);
        assert!(served >= page && served <= 2 * page, "{served}");
        assert!(unread.bytes() <= 2 * PAGE_BYTES_MAX);
        let call = unread.new_share(Some(Arc::clone(&other.connection)));
        let waiting = tokio::spawn(async move {
            let reservation = call.reserve_page().await.unwrap();
            call.charge(reservation, MIB);
            call
        });
        stuck.connection.closed().await;
        assert!(!other.connection.is_closing());
        drop(calls);
        let call = waiting.await.unwrap();
        assert_eq!(unread.bytes(), MIB);
        drop(call);
        assert_eq!(unread.bytes(), 0);
    });
}

/// The connection takes a frame before its client has window for it, and polls for more. Story: a
/// page with such frames was released too early, so that the server read any amount of data for
/// clients that took nothing.
#[test]
fn page_is_charged_until_its_last_frame_is_written() {
    run_paused(async {
        let unread = Arc::new(OutboundQuota::new(2 * PAGE_BYTES_MAX));
        let call = unread.new_share(None);
        let unsent = call.unsent_page();
        let carry = |text| unsent.take_frame_charge().unwrap().attach(Bytes::from_static(text));
        assert!(unsent.take_frame_charge().is_none());
        call.charge(call.reserve_page().await.unwrap(), MIB);
        let frames = [&b"one"[..], b"two"].map(carry);
        assert_eq!((&frames[0][..], unread.bytes()), (&b"one"[..], MIB));
        let reservation = call.reserve_page().await.unwrap();
        call.charge(reservation, 2 * MIB);
        assert_eq!(unread.bytes(), 3 * MIB, "the first one's frames are there");
        let [one, two] = frames;
        drop((one, two.slice(1..)));
        assert_eq!(unread.bytes(), 3 * MIB);
        drop(two);
        assert_eq!(unread.bytes(), 2 * MIB);
        // The last page still becomes frames after its call has no more to read.
        drop(call);
        let last = carry(b"last");
        drop(unsent);
        assert_eq!(unread.bytes(), 2 * MIB);
        drop(last);
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: a call whose client takes nothing is not polled again. Quota that such a call got while
/// it waited was untracked, and other calls waited for ever.
#[test]
fn reservation_of_an_unpolled_call_is_tracked_and_revoked() {
    run_paused(async {
        let registry = Arc::new(ConnectionRegistry::default());
        let [first, stuck, other] = [(); 3].map(|()| registry.register(None));
        let unread = Arc::new(OutboundQuota::new(PAGE_BYTES_MAX));
        let held = |of: &crate::resources::connection_registry::ConnectionSlot| {
            unread.new_share(Some(Arc::clone(&of.connection)))
        };
        let one = held(&first).reserve_page().await.unwrap();
        let [two, three, four] = [held(&stuck), held(&stuck), held(&other)];
        let mut unpolled = Box::pin(two.reserve_page());
        assert!(tokio::time::timeout(QUOTA_WAIT_TIME / 2, &mut unpolled).await.is_err());
        drop(one);
        tokio::time::sleep(QUOTA_WAIT_TIME).await;
        assert_eq!(unread.bytes(), PAGE_BYTES_MAX / UNIT_BYTES * UNIT_BYTES);
        let waiting = tokio::spawn(async move { four.reserve_page().await.is_ok() });
        stuck.connection.closed().await;
        assert!(!other.connection.is_closing());
        drop(unpolled);
        assert!(waiting.await.unwrap());
        // Nor did it block another call of its connection.
        assert!(three.reserve_page().await.is_ok());
        unread.close();
        assert!(held(&other).reserve_page().await.is_err());
    });
}

/// Story: a small page was released before it had a frame, because the next page is polled for
/// first. So the server read any number of small pages for a client that took nothing.
#[test]
fn page_released_early_is_charged_to_the_next_frame() {
    run_paused(async {
        let unread = Arc::new(OutboundQuota::new(PAGE_BYTES_MAX));
        let call = unread.new_share(None);
        let unsent = call.unsent_page();
        for _ in 0..3 {
            call.charge(call.reserve(UNIT_BYTES).await.unwrap(), 10);
            call.release().await;
        }
        assert_eq!(unread.bytes(), 3 * UNIT_BYTES);
        let frame = unsent.take_frame_charge().unwrap().attach(Bytes::from_static(b"all three"));
        assert!(unsent.take_frame_charge().is_none());
        assert_eq!(unread.bytes(), 3 * UNIT_BYTES);
        drop(frame);
        assert_eq!(unread.bytes(), 0);
    });
}

#[test]
fn unreserved_frames_over_quota_close_the_largest_holder() {
    run_paused(async {
        let registry = Arc::new(ConnectionRegistry::default());
        let [much, little] = [(); 2].map(|()| registry.register(None));
        let unread = Arc::new(OutboundQuota::new(PAGE_BYTES_MAX));
        let frame = |of: &crate::resources::connection_registry::ConnectionSlot| {
            let bytes = Bytes::from(vec![0; MIB]);
            let charge = unread.charge_frame(bytes.len(), &of.connection);
            charge.map(|charge| FrameCharge::unreserved(charge).attach(bytes))
        };
        assert!(unread.charge_frame(b"few".len(), &much.connection).is_none());
        let mut frames: Vec<_> = (0..PAGE_BYTES_MAX / MIB).map(|_| frame(&much)).collect();
        frames.push(frame(&little));
        assert!(unread.bytes() >= PAGE_BYTES_MAX / MIB * MIB);
        tokio::time::sleep(UNREAD_TIME).await;
        assert!(!much.connection.is_closing());
        frames.push(frame(&little));
        assert!(much.connection.is_closing() && !little.connection.is_closing());
        drop(frames);
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: a thousand calls of one connection were in the queue before the next client. So the next
/// client waited until each of these calls had got and released its page.
#[test]
fn calls_of_a_connection_share_one_place_in_the_queue() {
    run_paused(async {
        let registry = Arc::new(ConnectionRegistry::default());
        let [many, one] = [(); 2].map(|()| registry.register(None));
        let unread = Arc::new(OutboundQuota::new(PAGE_BYTES_MAX));
        let first = unread.new_share(Some(Arc::clone(&many.connection)));
        let reservation = first.reserve_page().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for (name, peer) in [("many", &many), ("many", &many), ("many", &many), ("one", &one)] {
            let call = unread.new_share(Some(Arc::clone(&peer.connection)));
            let order = Arc::clone(&order);
            waiting.push(tokio::spawn(async move {
                let reservation = call.reserve_page().await.unwrap();
                order.lock().unwrap().push(name);
                drop(reservation);
            }));
            tokio::task::yield_now().await;
        }
        drop(reservation);
        for call in waiting {
            call.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["many", "one", "many", "many"]);
    });
}

/// Story: a call reserved quota, but its client took no earlier data, so the call was not polled
/// and read no page. A reservation without a page could not be revoked. So 32 such calls blocked
/// all other reads.
#[test]
fn unused_reservation_is_revoked() {
    run_paused(async {
        let registry = Arc::new(ConnectionRegistry::default());
        let [stuck, other] = [(); 2].map(|()| registry.register(None));
        let unread = Arc::new(OutboundQuota::new(PAGE_BYTES_MAX));
        let call = unread.new_share(Some(Arc::clone(&stuck.connection)));
        let reservation = call.reserve_page().await.unwrap();
        let call = unread.new_share(Some(Arc::clone(&other.connection)));
        let waiting = tokio::spawn(async move { call.reserve_page().await.is_ok() });
        let ended = tokio::time::timeout(2 * UNREAD_TIME, stuck.connection.closed()).await;
        assert!(ended.is_ok() && !other.connection.is_closing());
        drop(reservation);
        assert!(waiting.await.unwrap());
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: a client that took one small frame every few seconds kept the whole quota without a time
/// limit.
#[test]
fn slow_reader_is_closed_when_others_wait() {
    run_paused(async {
        let registry = Arc::new(ConnectionRegistry::default());
        let [slow, other] = [(); 2].map(|()| registry.register(None));
        let unread = Arc::new(OutboundQuota::new(PAGE_BYTES_MAX));
        let call = unread.new_share(Some(Arc::clone(&slow.connection)));
        call.charge(call.reserve_page().await.unwrap(), PAGE_BYTES_MAX);
        let unsent = call.unsent_page();
        let take = async || {
            drop(unsent.take_frame_charge().unwrap().attach(Bytes::from_static(b"a small event")));
            tokio::time::sleep(UNREAD_TIME - QUOTA_WAIT_TIME).await;
        };
        // While no call waits, a client may be slow.
        for _ in 0..20 {
            take().await;
        }
        assert!(!slow.connection.is_closing());
        let waiting_share = unread.new_share(Some(Arc::clone(&other.connection)));
        let waiting = tokio::spawn(async move { waiting_share.reserve_page().await.is_ok() });
        for _ in 0..3 {
            take().await;
        }
        assert!(slow.connection.is_closing() && !other.connection.is_closing());
        drop((call, unsent));
        assert!(waiting.await.unwrap());
    });
}

/// Story: the server ended one connection for each waiting call, although the quota of one
/// connection sufficed for all calls.
#[test]
fn only_as_many_connections_close_as_waiters_need() {
    run_paused(async {
        let registry = Arc::new(ConnectionRegistry::default());
        let [much, little] = [(); 2].map(|()| registry.register(None));
        let unread = Arc::new(OutboundQuota::new(6 * PAGE_BYTES_MAX));
        let held = |of: &crate::resources::connection_registry::ConnectionSlot| {
            unread.new_share(Some(Arc::clone(&of.connection)))
        };
        let mut reservations = Vec::new();
        for _ in 0..5 {
            reservations.push(held(&much).reserve_page().await.unwrap());
        }
        let one = held(&little).reserve_page().await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let slot = registry.register(None);
            let call = held(&slot);
            waiting.push(tokio::spawn(async move {
                let _slot = slot;
                call.reserve_page().await.is_ok()
            }));
        }
        much.connection.closed().await;
        tokio::time::sleep(QUOTA_WAIT_TIME / 2).await;
        drop(reservations);
        for call in waiting {
            assert!(call.await.unwrap());
        }
        assert!(!little.connection.is_closing());
        drop(one);
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: the bytes of a page after its first frame went into the next frame after the page was
/// released, and did not count.
#[test]
fn page_is_charged_until_all_of_it_is_in_frames() {
    run_paused(async {
        let registry = Arc::new(ConnectionRegistry::default());
        let slot = registry.register(None);
        let unread = Arc::new(OutboundQuota::new(PAGE_BYTES_MAX));
        let held = unread.new_share(Some(Arc::clone(&slot.connection)));
        let unsent = held.unsent_page();
        let answers =
            stream_steps((true, held), |(is_first, held): (bool, OutboundShare)| async move {
                if !is_first {
                    held.release().await;
                    std::future::pending::<()>().await;
                }
                let reservation = held.reserve_page().await.unwrap();
                let answer = GetResponse { value: Some(vec![7; UNIT_BYTES].into()) };
                held.charge(reservation, 60 * UNIT_BYTES);
                (vec![Ok(answer); 60], Some((false, held)))
            });
        let mut response = hyper::Response::new(Body::new(GrpcEncoder::new(answers)));
        response.extensions_mut().insert(unsent);
        let answer = ResponseBody::wrap(
            slot.connection.begin_call(),
            Arc::clone(&unread),
            response,
            ResponseEnd::default(),
        );
        let mut body = answer.into_body();
        let mut frame = async || body.frame().await.unwrap().unwrap().into_data().unwrap();
        let first = frame().await;
        assert_eq!(unread.bytes(), 60 * UNIT_BYTES);
        drop(first);
        let rest = frame().await;
        assert!(rest.len() > 20 * UNIT_BYTES, "{}", rest.len());
        assert_eq!(unread.bytes(), 60 * UNIT_BYTES);
        assert!(tokio::time::timeout(QUOTA_WAIT_TIME, frame()).await.is_err());
        assert_eq!(unread.bytes(), 60 * UNIT_BYTES, "the frame was not written yet");
        drop(rest);
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: names of streams and types did not count. A page of events without data could be thirty
/// times as long as its charge.
#[test]
fn event_charge_covers_its_encoded_response() {
    let event = RecordedEvent {
        stream: "s".repeat(1024),
        revision: u64::MAX >> 2,
        position: u64::MAX >> 2,
        id: EventId([1; 16]),
        kind: "k".repeat(1024),
        is_json: false,
        created: u64::MAX >> 2,
        data: Vec::new(),
        metadata: Vec::new(),
    };
    for link in [None, Some(event.clone())] {
        let resolved = ResolvedEvent { event: Some(event.clone()), link };
        let counted = resolved_bytes(&resolved);
        for form in [UuidForm::Structured(()), UuidForm::String(())] {
            let sent = event_response(resolved.clone(), form).encoded_len();
            assert!(counted >= sent && counted < sent + 200, "{counted} for {sent}");
        }
    }
}

/// Story: a list longer than its reservation was charged only the reservation.
#[test]
fn page_over_its_reservation_is_charged_in_full() {
    run_paused(async {
        let unread = Arc::new(OutboundQuota::new(PAGE_BYTES_MAX));
        let call = unread.new_share(None);
        let unsent = call.unsent_page();
        call.charge(call.reserve(UNIT_BYTES).await.unwrap(), 5 * UNIT_BYTES);
        assert_eq!(unread.bytes(), 5 * UNIT_BYTES);
        let frame = unsent.take_frame_charge().unwrap().attach(Bytes::from_static(b"all of it"));
        drop((call, unsent));
        assert_eq!(unread.bytes(), 5 * UNIT_BYTES);
        drop(frame);
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: the reservation of a read whose client had disconnected went to another call before the
/// read began or while it still ran.
#[test]
fn abandoned_read_keeps_its_reservation_until_done() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
    let fixture = TestService::new();
    let unread = Arc::clone(&fixture.service.outbound_quota);
    runtime.block_on(async {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let others = tokio::task::spawn_blocking(move || released.recv());
        let reservation = unread.new_share(None).reserve_page().await.unwrap();
        let (source, direction) = (Source::All, Direction::Forwards);
        let range = ReadRange { source, direction, from: 0, through: Position::END };
        let reader = EventPager::new(range, false);
        let mut read = Box::pin(fixture.service.store.read_page(reader, 100, reservation));
        assert!(tokio::time::timeout(QUOTA_WAIT_TIME / 10, &mut read).await.is_err());
        drop(read);
        tokio::time::sleep(QUOTA_WAIT_TIME / 10).await;
        assert!(unread.bytes() > PAGE_BYTES_MAX - UNIT_BYTES, "{}", unread.bytes());
        release.send(()).unwrap();
        others.await.unwrap().unwrap();
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(unread.bytes(), 0);
    });
}

/// A read whose client has disconnected leaves the queue of the read pool, and releases its
/// reservation at once.
#[test]
fn abandoned_read_leaves_the_read_pool() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let fixture = TestService::new();
    let (store, unread) = (&fixture.service.store, &fixture.service.outbound_quota);
    for _ in 0..3 {
        let event = NewEvent::json(fixture.store.new_id().unwrap(), "Happened", b"{}");
        fixture.store.append("stream", ExpectedVersion::Any, &[event]).unwrap();
    }
    runtime.block_on(async {
        let (source, direction) = (Source::All, Direction::Forwards);
        let range = ReadRange { source, direction, from: 0, through: Position::END };
        let share = unread.new_share(None);
        let reservation = share.reserve_page().await.unwrap();
        let first = store.read_page(EventPager::new(range, false), 1, reservation).await.unwrap();
        let (page, reservation) = first;
        let pager = page.pager.unwrap();
        assert!(pager.is_pooled());
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..1000).map(|_| std::sync::mpsc::channel::<()>()).unzip();
        let jobs = receivers.into_iter().map(|released| {
            store.read_pool().run(move || {
                let _ = released.recv();
            })
        });
        let mut jobs = Box::pin(futures_util::future::join_all(jobs));
        assert!(futures_util::poll!(&mut jobs).is_pending());
        let waiting = || {
            let counts = store.read_pool_counts();
            counts.waiting + counts.running
        };
        assert_eq!(waiting(), 1000);
        let mut read = Box::pin(store.read_page(pager, 1, reservation));
        assert!(futures_util::poll!(&mut read).is_pending());
        assert_eq!(waiting(), 1001);
        assert!(unread.bytes() > PAGE_BYTES_MAX - UNIT_BYTES, "{}", unread.bytes());
        drop(read);
        assert_eq!((waiting(), unread.bytes()), (1000, 0));
        drop(senders);
        assert!(jobs.await.iter().all(Result::is_ok));
    });
}

/// Story: when a disk stalled for some seconds, the server ended connections whose reads waited for
/// the disk.
#[test]
fn connection_waiting_for_the_disk_is_not_closed() {
    run_paused(async {
        let registry = Arc::new(ConnectionRegistry::default());
        let [reading, other] = [(); 2].map(|()| registry.register(None));
        let unread = Arc::new(OutboundQuota::new(PAGE_BYTES_MAX));
        let reservation =
            unread.new_share(Some(Arc::clone(&reading.connection))).reserve_page().await.unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (finish, finished) = tokio::sync::oneshot::channel();
        // A thread of the runtime would stop its clock.
        let read = Env::system().threads.spawn(
            "read",
            Box::new(move || {
                let (_, reservation) = reservation.fill(|| {
                    begin.send(()).unwrap();
                    released.recv()
                });
                let _ = finish.send(reservation);
            }),
        );
        begun.await.unwrap();
        let waiting_share = unread.new_share(Some(Arc::clone(&other.connection)));
        let waiting = tokio::spawn(async move { waiting_share.reserve_page().await.is_ok() });
        tokio::time::sleep(4 * UNREAD_TIME).await;
        assert!(!reading.connection.is_closing());
        release.send(()).unwrap();
        drop(finished.await.unwrap());
        assert!(waiting.await.unwrap());
        drop(read.unwrap());
    });
}
