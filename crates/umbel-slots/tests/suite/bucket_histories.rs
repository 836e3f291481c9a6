//! Histories in which the bucket is replaced, and in which a leader writes on after it resigned.
//! Each one shows, too, what a reader without its rule does.

use umbel_slots::{
    ChainState, FollowStep, Slot, SlotCollection, SlotEntry, SlotError, SlotIds, SlotResult,
    SlotTakeover, SlotWriter, TakeoverStep,
};

use super::bucket_exploration::ReadFault;
use super::explored_store::StoreState;
use super::histories::{STORE, Script, candidate, times};

/// Requests within which a node reaches the end, or stops.
const STEPS_MAX: usize = 100;

/// Follows to the end, and reads snapshots with this fault. Returns what the node did.
fn follow(
    script: &mut Script,
    takeover: &mut SlotTakeover,
    fault: ReadFault,
) -> SlotResult<Vec<FollowStep>> {
    let mut done = Vec::new();
    for _ in 0..STEPS_MAX {
        let chain = takeover.follower().chain().clone();
        let mut state = std::mem::take(&mut script.store);
        let step = fault.with_store(&mut state, &chain, |state| {
            script.store = std::mem::take(state);
            let step = script.act(|store, clock| takeover.step(store, clock));
            *state = std::mem::take(&mut script.store);
            step
        });
        script.store = state;
        match step? {
            TakeoverStep::AtEnd => return Ok(done),
            TakeoverStep::Followed(step) => done.push(step),
            other => panic!("{other:?}"),
        }
    }
    panic!("the node does not reach the end");
}

/// The bucket is replaced by an earlier state of it, and time goes on.
fn replace_bucket(script: &mut Script, earlier: StoreState) {
    script.store = StoreState { time: script.store.time, ..earlier };
}

/// Another leader goes on for as many slots, and deletes them after a snapshot. A node behind it
/// must load it.
fn go_on(script: &mut Script, slots: usize) -> SlotWriter {
    let mut writer = script.lead(None).expect("a leader");
    for _ in 1..slots {
        script.write(&mut writer).expect("a slot");
    }
    script.put_snapshots(writer.chain());
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.delete_old(&mut collection).expect("a deletion");
    writer
}

/// Starts a node with this state, which must not drop any of it. Returns the reason why it stopped.
/// Checks that the fault drops the slots.
fn check_stops(script: &mut Script, disk: &ChainState, fault: ReadFault) -> String {
    let error = follow(script, &mut candidate(Some(disk)), ReadFault::None);
    let error = error.expect_err("the bucket lacks slots of the node");
    assert!(matches!(error, SlotError::Damaged { .. }), "{error}");
    let dropped = follow(script, &mut candidate(Some(disk)), fault).expect("a fault");
    assert!(dropped.iter().any(|step| matches!(step, FollowStep::Restart(_))), "{dropped:?}");
    error.to_string()
}

/// Story: a bucket was replaced by its replica, which lacked the newest epoch. Another leader began
/// an epoch with the same number there. A node with the lost epoch was started after a long time,
/// loaded a snapshot, and no node reported the lost slots.
#[test]
fn node_whose_epoch_has_another_first_slot_refuses_a_snapshot() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    let replica = script.store.clone();
    let mut next = script.lead(Some(writer.chain())).expect("a leader of epoch 2");
    script.write(&mut next).expect("a slot");
    replace_bucket(&mut script, replica);
    let other = go_on(&mut script, 4);
    assert_eq!((next.end().epoch, other.end().epoch), (2, 2));
    let reason = check_stops(&mut script, next.chain(), ReadFault::IgnoresOwnEpoch);
    assert!(reason.contains("epoch 2 began with another slot 3 than slot 3"), "{reason}");
    // A node of the epoch before has nothing that is lost.
    let done = follow(&mut script, &mut candidate(Some(writer.chain())), ReadFault::None);
    let done = done.expect("the same history");
    let restarts = done.iter().filter(|step| matches!(step, FollowStep::Restart(_)));
    assert_eq!(restarts.count(), 1, "{done:?}");
}

/// Story: like the one above, but the replica lacked the newest slots of the epoch only. Another
/// leader began the next epoch at the number of a lost slot.
#[test]
fn node_with_lost_slots_of_an_epoch_refuses_a_snapshot() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    let kept = writer.chain().clone();
    let replica = script.store.clone();
    script.write(&mut writer).expect("a slot");
    replace_bucket(&mut script, replica);
    go_on(&mut script, 4);
    let reason = check_stops(&mut script, writer.chain(), ReadFault::IgnoresNextEpoch);
    let expected = "epoch 2 began at slot 3, and this node has slot 3 of epoch 1";
    assert!(reason.contains(expected), "{reason}");
    follow(&mut script, &mut candidate(Some(&kept)), ReadFault::None).expect("the same history");
}

/// Story: a bucket was replaced by a copy in which fewer leaders had been.
#[test]
fn node_with_a_later_epoch_refuses_a_snapshot() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    let replica = script.store.clone();
    for _ in 0..2 {
        writer = script.lead(Some(writer.chain())).expect("a leader");
    }
    replace_bucket(&mut script, replica);
    go_on(&mut script, 4);
    let error = follow(&mut script, &mut candidate(Some(writer.chain())), ReadFault::None);
    let error = error.expect_err("the bucket lacks slots of the node").to_string();
    assert!(error.contains("this node has epoch 3, which has not begun there"), "{error}");
}

/// Story: a leader gave up its epoch, and wrote on. A follower that had begun from a snapshot did
/// not know of the resignation, and applied the slot.
#[test]
fn slot_after_a_resignation_is_refused_after_a_start_from_a_snapshot() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    writer.propose(script.uid(), 0, vec![SlotEntry::Resigned]).expect("a valid slot");
    script.act(|store, clock| writer.step(store, clock)).expect("a slot");
    let resigned = writer.chain().clone();
    script.put_snapshot(&resigned);
    let ChainState { end, .. } = &resigned;
    let late = Slot {
        ids: SlotIds { uid: script.uid(), store: STORE },
        number: end.number + 1,
        epoch: end.epoch,
        previous: end.uid,
        node: "node".into(),
        wall_micros: 0,
        entries: vec![SlotEntry::Nothing],
    };
    script.store.land("slots/00000000000000000003", &late.encode());
    let expected = "its leader gave up epoch 1 with slot 2, and wrote on";
    for disk in [None, Some(&resigned)] {
        let error = follow(&mut script, &mut candidate(disk), ReadFault::None);
        let error = error.expect_err("the leader had resigned");
        assert!(
            matches!(&error, SlotError::Damaged { reason, .. } if reason == expected),
            "{error}"
        );
    }
    let fault = ReadFault::IgnoresResignation;
    let done = follow(&mut script, &mut candidate(None), fault).expect("a fault");
    assert_eq!(done.last(), Some(&FollowStep::Applied(late)));
}
