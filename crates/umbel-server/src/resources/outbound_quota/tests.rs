//! What pages hold, for how long, and who is ended for them.

use http_body_util::BodyExt;
use prost::Message;
use tonic::body::Body;
use umbel_env::Env;
use umbel_events::{Direction, EventId, RecordedEvent, ResolvedEvent};
use umbel_proto::kv::GetResponse;
use umbel_proto::streams::read_req::UuidForm;

use super::*;
use crate::answers::in_steps;
use crate::convert::read_event;
use crate::counted::Counted;
use crate::encoded::Encoded;
use crate::peers::Peers;
use crate::reader::{Reader, Source, bytes_of};
use crate::stage::{Stage, run};

const MIB: usize = 1 << 20;

#[test]
fn pages_stay_within_the_budget_and_who_takes_nothing_is_ended() {
    run(async {
        let peers = Arc::new(Peers::default());
        let [stuck, other] = [(); 2].map(|()| peers.place(None));
        let unread = Arc::new(Unread::new(2 * UNREAD_PAGE_BYTES));
        let calls: Vec<Held> =
            (0..20).map(|_| unread.held(Some(Arc::clone(&stuck.peer)))).collect();
        let mut served = 0;
        for call in &calls {
            if let Ok(room) = tokio::time::timeout(ROOM_TIME / 2, call.room()).await {
                call.hold(room.unwrap(), MIB);
                served += 1;
            }
        }
        let page = UNREAD_PAGE_BYTES.div_ceil(MIB);
        assert!(served >= page && served <= 2 * page, "{served}");
        assert!(unread.bytes() <= 2 * UNREAD_PAGE_BYTES);
        let call = unread.held(Some(Arc::clone(&other.peer)));
        let waiting = tokio::spawn(async move {
            let room = call.room().await.unwrap();
            call.hold(room, MIB);
            call
        });
        stuck.peer.ended().await;
        assert!(!other.peer.is_ending());
        drop(calls);
        let call = waiting.await.unwrap();
        assert_eq!(unread.bytes(), MIB);
        drop(call);
        assert_eq!(unread.bytes(), 0);
    });
}

/// The connection takes a frame before its client has room for it, and asks for more. A page
/// whose frames lay there was given back: clients that read nothing had as much read for them
/// as they liked.
#[test]
fn a_page_is_held_until_its_last_frame_was_written() {
    run(async {
        let unread = Arc::new(Unread::new(2 * UNREAD_PAGE_BYTES));
        let call = unread.held(None);
        let unsent = call.unsent();
        let carry = |text| unsent.carrier().unwrap().carry(Bytes::from_static(text));
        assert!(unsent.carrier().is_none());
        call.hold(call.room().await.unwrap(), MIB);
        let frames = [&b"one"[..], b"two"].map(carry);
        assert_eq!((&frames[0][..], unread.bytes()), (&b"one"[..], MIB));
        let room = call.room().await.unwrap();
        call.hold(room, 2 * MIB);
        assert_eq!(unread.bytes(), 3 * MIB, "the first one's frames are there");
        let [one, two] = frames;
        drop((one, two.slice(1..)));
        assert_eq!(unread.bytes(), 3 * MIB);
        drop(two);
        assert_eq!(unread.bytes(), 2 * MIB);
        // The last page is still to be made into frames when its call has no more to read.
        drop(call);
        let last = carry(b"last");
        drop(unsent);
        assert_eq!(unread.bytes(), 2 * MIB);
        drop(last);
        assert_eq!(unread.bytes(), 0);
    });
}

/// The story: a call whose client takes nothing is not asked again how it gets on. Room that was
/// given to it while it waited belonged to nobody who was known, and others waited for ever.
#[test]
fn room_for_a_call_that_nobody_asks_is_known_and_comes_back() {
    run(async {
        let peers = Arc::new(Peers::default());
        let [first, stuck, other] = [(); 3].map(|()| peers.place(None));
        let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
        let held = |of: &crate::peers::Place| unread.held(Some(Arc::clone(&of.peer)));
        let one = held(&first).room().await.unwrap();
        let [two, three, four] = [held(&stuck), held(&stuck), held(&other)];
        let mut nobody = Box::pin(two.room());
        assert!(tokio::time::timeout(ROOM_TIME / 2, &mut nobody).await.is_err());
        drop(one);
        tokio::time::sleep(ROOM_TIME).await;
        assert_eq!(unread.bytes(), UNREAD_PAGE_BYTES / UNIT_BYTES * UNIT_BYTES);
        let waiting = tokio::spawn(async move { four.room().await.is_ok() });
        stuck.peer.ended().await;
        assert!(!other.peer.is_ending());
        drop(nobody);
        assert!(waiting.await.unwrap());
        // Nor was another call of its connection in its turn.
        assert!(three.room().await.is_ok());
        unread.close();
        assert!(held(&other).room().await.is_err());
    });
}

/// The story: a page of few bytes was given back before there was a frame of it, because the
/// next one is asked for first; a client that took nothing had as many as he liked.
#[test]
fn a_page_that_is_given_back_before_its_frame_goes_along_with_it() {
    run(async {
        let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
        let call = unread.held(None);
        let unsent = call.unsent();
        for _ in 0..3 {
            call.hold(call.room_for(UNIT_BYTES).await.unwrap(), 10);
            call.give_back().await;
        }
        assert_eq!(unread.bytes(), 3 * UNIT_BYTES);
        let frame = unsent.carrier().unwrap().carry(Bytes::from_static(b"all three"));
        assert!(unsent.carrier().is_none());
        assert_eq!(unread.bytes(), 3 * UNIT_BYTES);
        drop(frame);
        assert_eq!(unread.bytes(), 0);
    });
}

#[test]
fn what_took_no_room_ends_the_connection_that_has_the_most_of_it() {
    run(async {
        let peers = Arc::new(Peers::default());
        let [much, little] = [(); 2].map(|()| peers.place(None));
        let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
        let frame = |of: &crate::peers::Place| {
            let bytes = Bytes::from(vec![0; MIB]);
            unread.beside(&bytes, &of.peer).map(|carrier| carrier.carry(bytes))
        };
        assert!(unread.beside(&Bytes::from_static(b"few"), &much.peer).is_none());
        let mut frames: Vec<_> = (0..UNREAD_PAGE_BYTES / MIB).map(|_| frame(&much)).collect();
        frames.push(frame(&little));
        assert!(unread.bytes() >= UNREAD_PAGE_BYTES / MIB * MIB);
        tokio::time::sleep(UNREAD_TIME).await;
        assert!(!much.peer.is_ending());
        frames.push(frame(&little));
        assert!(much.peer.is_ending() && !little.peer.is_ending());
        drop(frames);
        assert_eq!(unread.bytes(), 0);
    });
}

/// A thousand calls of one connection stood in front of whoever came next: he waited until each
/// had had its page, and for its end.
#[test]
fn many_calls_of_a_connection_wait_as_one() {
    run(async {
        let peers = Arc::new(Peers::default());
        let [many, one] = [(); 2].map(|()| peers.place(None));
        let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
        let first = unread.held(Some(Arc::clone(&many.peer)));
        let room = first.room().await.unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for (name, peer) in [("many", &many), ("many", &many), ("many", &many), ("one", &one)] {
            let call = unread.held(Some(Arc::clone(&peer.peer)));
            let order = Arc::clone(&order);
            waiting.push(tokio::spawn(async move {
                let room = call.room().await.unwrap();
                order.lock().unwrap().push(name);
                drop(room);
            }));
            tokio::task::yield_now().await;
        }
        drop(room);
        for call in waiting {
            call.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), ["many", "one", "many", "many"]);
    });
}

/// A call took room, and its client none of what came before: so nobody had the call go on and
/// read its page. What was no page yet could not be taken away, and 32 such calls kept others
/// from reading for as long as their client liked.
#[test]
fn room_that_is_taken_and_not_used_is_taken_away() {
    run(async {
        let peers = Arc::new(Peers::default());
        let [stuck, other] = [(); 2].map(|()| peers.place(None));
        let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
        let call = unread.held(Some(Arc::clone(&stuck.peer)));
        let room = call.room().await.unwrap();
        let call = unread.held(Some(Arc::clone(&other.peer)));
        let waiting = tokio::spawn(async move { call.room().await.is_ok() });
        let ended = tokio::time::timeout(2 * UNREAD_TIME, stuck.peer.ended()).await;
        assert!(ended.is_ok() && !other.peer.is_ending());
        drop(room);
        assert!(waiting.await.unwrap());
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: who took one small frame every few seconds kept all of the room for as long as he liked.
#[test]
fn who_takes_a_little_from_time_to_time_does_not_keep_others_waiting() {
    run(async {
        let peers = Arc::new(Peers::default());
        let [slow, other] = [(); 2].map(|()| peers.place(None));
        let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
        let call = unread.held(Some(Arc::clone(&slow.peer)));
        call.hold(call.room().await.unwrap(), UNREAD_PAGE_BYTES);
        let unsent = call.unsent();
        let take = async || {
            drop(unsent.carrier().unwrap().carry(Bytes::from_static(b"a small event")));
            tokio::time::sleep(UNREAD_TIME - ROOM_TIME).await;
        };
        // While nobody waits he may be as slow as he is.
        for _ in 0..20 {
            take().await;
        }
        assert!(!slow.peer.is_ending());
        let wants = unread.held(Some(Arc::clone(&other.peer)));
        let waiting = tokio::spawn(async move { wants.room().await.is_ok() });
        for _ in 0..3 {
            take().await;
        }
        assert!(slow.peer.is_ending() && !other.peer.is_ending());
        drop((call, unsent));
        assert!(waiting.await.unwrap());
    });
}

/// Story: each of those who waited had a connection end, although the room of one was enough for
/// all of them.
#[test]
fn no_more_connections_end_than_give_the_room_that_is_waited_for() {
    run(async {
        let peers = Arc::new(Peers::default());
        let [much, little] = [(); 2].map(|()| peers.place(None));
        let unread = Arc::new(Unread::new(6 * UNREAD_PAGE_BYTES));
        let held = |of: &crate::peers::Place| unread.held(Some(Arc::clone(&of.peer)));
        let mut rooms = Vec::new();
        for _ in 0..5 {
            rooms.push(held(&much).room().await.unwrap());
        }
        let one = held(&little).room().await.unwrap();
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let place = peers.place(None);
            let call = held(&place);
            waiting.push(tokio::spawn(async move {
                let _place = place;
                call.room().await.is_ok()
            }));
        }
        much.peer.ended().await;
        tokio::time::sleep(ROOM_TIME / 2).await;
        drop(rooms);
        for call in waiting {
            assert!(call.await.unwrap());
        }
        assert!(!little.peer.is_ending());
        drop(one);
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: what was left of a page behind its first frame went into the next one after the page had
/// been given back, and counted for nothing.
#[test]
fn all_of_a_page_is_in_frames_before_it_is_given_back() {
    run(async {
        let peers = Arc::new(Peers::default());
        let place = peers.place(None);
        let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
        let held = unread.held(Some(Arc::clone(&place.peer)));
        let unsent = held.unsent();
        let answers = in_steps((true, held), |(is_first, held): (bool, Held)| async move {
            if !is_first {
                held.give_back().await;
                std::future::pending::<()>().await;
            }
            let room = held.room().await.unwrap();
            let answer = GetResponse { value: Some(vec![7; UNIT_BYTES].into()) };
            held.hold(room, 60 * UNIT_BYTES);
            (vec![Ok(answer); 60], Some((false, held)))
        });
        let mut response = hyper::Response::new(Body::new(Encoded::new(answers)));
        response.extensions_mut().insert(unsent);
        let answer = Counted::of(place.peer.call(), Arc::clone(&unread), response, None);
        let mut body = answer.into_body();
        let mut frame = async || body.frame().await.unwrap().unwrap().into_data().unwrap();
        let first = frame().await;
        assert_eq!(unread.bytes(), 60 * UNIT_BYTES);
        drop(first);
        let rest = frame().await;
        assert!(rest.len() > 20 * UNIT_BYTES, "{}", rest.len());
        assert_eq!(unread.bytes(), 60 * UNIT_BYTES);
        assert!(tokio::time::timeout(ROOM_TIME, frame()).await.is_err());
        assert_eq!(unread.bytes(), 60 * UNIT_BYTES, "it was not written yet");
        drop(rest);
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: names of streams and types were not counted. A page of events without data could be
/// thirty times as long as it counted.
#[test]
fn an_event_counts_as_much_as_its_answer_has() {
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
        let counted = bytes_of(&resolved);
        for form in [UuidForm::Structured(()), UuidForm::String(())] {
            let sent = read_event(resolved.clone(), form).encoded_len();
            assert!(counted >= sent && counted < sent + 200, "{counted} for {sent}");
        }
    }
}

/// Story: a list that was longer than the room for one counted as that.
#[test]
fn what_is_longer_than_its_room_counts_as_long_as_it_is() {
    run(async {
        let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
        let call = unread.held(None);
        let unsent = call.unsent();
        call.hold(call.room_for(UNIT_BYTES).await.unwrap(), 5 * UNIT_BYTES);
        assert_eq!(unread.bytes(), 5 * UNIT_BYTES);
        let frame = unsent.carrier().unwrap().carry(Bytes::from_static(b"all of it"));
        drop((call, unsent));
        assert_eq!(unread.bytes(), 5 * UNIT_BYTES);
        drop(frame);
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: the room of a read whose client had gone was given to somebody else while the read went
/// on, or before it had begun.
#[test]
fn a_read_keeps_its_room_until_it_is_done() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
    let stage = Stage::new();
    let unread = Arc::clone(&stage.service.unread);
    runtime.block_on(async {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let others = tokio::task::spawn_blocking(move || released.recv());
        let room = unread.held(None).room().await.unwrap();
        let reader = Reader::new(Source::All, Direction::Forwards, 0, false);
        let mut read = Box::pin(stage.service.store.page(reader, 100, room));
        assert!(tokio::time::timeout(ROOM_TIME / 10, &mut read).await.is_err());
        drop(read);
        tokio::time::sleep(ROOM_TIME / 10).await;
        assert!(unread.bytes() > UNREAD_PAGE_BYTES - UNIT_BYTES, "{}", unread.bytes());
        release.send(()).unwrap();
        others.await.unwrap().unwrap();
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        assert_eq!(unread.bytes(), 0);
    });
}

/// Story: a disk that stood still for some seconds had the connections end whose reads waited for
/// it.
#[test]
fn who_waits_for_the_disk_is_not_ended() {
    run(async {
        let peers = Arc::new(Peers::default());
        let [reading, other] = [(); 2].map(|()| peers.place(None));
        let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
        let room = unread.held(Some(Arc::clone(&reading.peer))).room().await.unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (finish, finished) = tokio::sync::oneshot::channel();
        // A thread of the runtime would keep its clock from going on.
        let read = Env::system().threads.spawn(
            "read",
            Box::new(move || {
                let (_, room) = room.during(|| {
                    begin.send(()).unwrap();
                    released.recv()
                });
                let _ = finish.send(room);
            }),
        );
        begun.await.unwrap();
        let wants = unread.held(Some(Arc::clone(&other.peer)));
        let waiting = tokio::spawn(async move { wants.room().await.is_ok() });
        tokio::time::sleep(4 * UNREAD_TIME).await;
        assert!(!reading.peer.is_ending());
        release.send(()).unwrap();
        drop(finished.await.unwrap());
        assert!(waiting.await.unwrap());
        drop(read.unwrap());
    });
}
