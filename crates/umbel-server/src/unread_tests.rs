//! What pages hold, for how long, and who is ended for them.

use super::*;
use crate::peers::Peers;
use crate::stage::run;

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
            call.give_back();
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
