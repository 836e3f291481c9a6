//! Histories that once broke a rule of the replicated log, one test each.

use std::time::Duration;

use umbel_env::{ObjectName, Objects};
use umbel_slots::{
    ChainEnd, ChainState, CollectionStep, FollowStep, LogId, ProofStep, SLOT_BYTES_MAX,
    SLOT_ENTRIES_MAX, Slot, SlotCollection, SlotEntry, SlotError, SlotFollower, SlotIds,
    SlotResult, SlotSettings, SlotSnapshot, SlotTakeover, SlotTimes, SlotWriter, TakeoverStep,
    WriteStep,
};

use super::explored_objects::naming_all;
use super::explored_store::{ExploredClock, ExploredStore, StoreState, UNIT_MICROS};

pub const STORE: [u8; 16] = [7; 16];
/// Requests within which a state machine reaches its next result.
const STEPS_MAX: usize = 100;

pub fn times() -> SlotTimes {
    let units = |units: u64| Duration::from_micros(units * UNIT_MICROS);
    SlotTimes { fresh: units(10), skew: units(2), keep: units(400) }
}

/// A store, and what its nodes share.
pub struct Script {
    pub store: StoreState,
    /// Units in which the nodes' clocks stood still.
    paused: u64,
    /// Number of uids in use.
    uids: u8,
}

impl Script {
    /// A new replicated log.
    pub fn new() -> Script {
        let mut script = Script { store: StoreState::default(), paused: 0, uids: 0 };
        script.put_snapshot(&ChainState::default());
        script
    }

    pub fn uid(&mut self) -> [u8; 16] {
        self.uids += 1;
        [self.uids; 16]
    }

    /// Lets a node send one request, which has no fault.
    pub fn act<T>(&mut self, action: impl FnOnce(&dyn Objects, &ExploredClock) -> T) -> T {
        let node = self.store.time - self.paused;
        let clock = ExploredClock { node, wall: node };
        let store = ExploredStore::new(std::mem::take(&mut self.store), 0);
        let done = action(&store, &clock);
        self.store = store.finish().0;
        done
    }

    pub fn put_snapshot(&mut self, chain: &ChainState) -> ObjectName {
        let ids = SlotIds { store: STORE, uid: self.uid() };
        let snapshot = SlotSnapshot { ids, chain: chain.clone(), state: Vec::new() };
        self.store.land(snapshot.name().as_str(), &snapshot.encode());
        snapshot.name()
    }

    /// Puts two snapshots of a state: one alone permits no deletion. Returns the name of the first.
    pub fn put_snapshots(&mut self, chain: &ChainState) -> ObjectName {
        let first = self.put_snapshot(chain);
        self.put_snapshot(chain);
        first
    }

    /// Follows to the end.
    pub fn follow(&mut self, takeover: &mut SlotTakeover) -> SlotResult<()> {
        for _ in 0..STEPS_MAX {
            let step = self.act(|store, clock| takeover.step(store, clock))?;
            if matches!(step, TakeoverStep::AtEnd) {
                return Ok(());
            }
        }
        panic!("the node does not reach the end");
    }

    /// Begins an epoch, without the check of the slots above.
    fn fence(&mut self, takeover: &mut SlotTakeover) {
        let begins = SlotEntry::EpochBegins { host: "h".into(), port: 1 };
        assert!(takeover.begin_epoch(self.uid(), 0, vec![begins]).expect("a valid slot"));
        let step = self.act(|store, clock| takeover.step(store, clock)).expect("an answer");
        assert!(matches!(step, TakeoverStep::Again), "{step:?}");
    }

    /// Takes over, from the given state.
    pub fn lead(&mut self, disk: Option<&ChainState>) -> SlotResult<SlotWriter> {
        let mut takeover = candidate(disk);
        self.follow(&mut takeover)?;
        self.fence(&mut takeover);
        for _ in 0..STEPS_MAX {
            let step = self.act(|store, clock| takeover.step(store, clock))?;
            if let TakeoverStep::Leading(writer, _) = step {
                return Ok(*writer);
            }
        }
        panic!("the node does not lead");
    }

    /// Checks that a candidate whose epoch's slot exists ends as overtaken, without an error.
    fn check_overtaken(&mut self, takeover: &mut SlotTakeover) {
        for _ in 0..STEPS_MAX {
            let step = self.act(|store, clock| takeover.step(store, clock)).expect("no damage");
            if !matches!(step, TakeoverStep::Again) {
                assert!(matches!(step, TakeoverStep::Overtaken), "{step:?}");
                return;
            }
        }
        panic!("the candidate is not overtaken");
    }

    pub fn write(&mut self, writer: &mut SlotWriter) -> SlotResult<WriteStep> {
        writer.propose(self.uid(), 0, vec![SlotEntry::Nothing])?;
        self.act(|store, clock| writer.step(store, clock))
    }

    /// Runs rounds of a collection until one deletes nothing.
    pub fn collect(&mut self, collection: &mut SlotCollection) -> SlotResult<()> {
        while self.collect_step(collection)? != CollectionStep::Done {}
        Ok(())
    }

    /// Lets a collection send one request. Slots name all snapshots.
    pub fn collect_step(&mut self, collection: &mut SlotCollection) -> SlotResult<CollectionStep> {
        let table = naming_all(&self.store, 0);
        self.act(|store, clock| collection.step(store, clock, &table))
    }

    /// Lets a collection that has seen all snapshots announce a deletion, and make it.
    pub fn delete_old(&mut self, collection: &mut SlotCollection) -> SlotResult<()> {
        self.announce(collection)?;
        self.store.advance(201);
        self.collect(collection)
    }

    /// Lets a collection that has seen all snapshots announce a deletion.
    pub fn announce(&mut self, collection: &mut SlotCollection) -> SlotResult<()> {
        self.store.advance(201);
        self.collect(collection)?;
        // This round sees what the one before has announced.
        self.collect(collection)
    }

    fn slots(&self) -> Vec<&str> {
        let names = self.store.objects.keys().map(String::as_str);
        names.filter(|name| name.starts_with("slots/")).collect()
    }
}

pub fn candidate(disk: Option<&ChainState>) -> SlotTakeover {
    SlotTakeover::new(STORE, times(), "node", SlotFollower::new(STORE, times(), disk.cloned()))
}

/// Story: a node was paused after it had won its number. Meanwhile another leader wrote, and
/// deleted old slots. The node took the deleted slot after its own for a lost object, and its error
/// advised to restore it.
#[test]
fn paused_candidate_does_not_call_deletions_damage() {
    let mut script = Script::new();
    let mut paused = candidate(None);
    script.follow(&mut paused).expect("the end");
    script.fence(&mut paused);
    let mut writer = script.lead(None).expect("a leader");
    script.put_snapshots(writer.chain());
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.write(&mut writer).expect("a slot");
    script.delete_old(&mut collection).expect("a deletion");
    assert_eq!(script.slots(), ["slots/00000000000000000003"]);
    let step = script.act(|store, clock| paused.step(store, clock));
    assert!(matches!(step, Ok(TakeoverStep::Overtaken)), "{step:?}");
}

/// Story: like the one above, but the other leader had written nothing after its snapshot. The node
/// led, though it had not proved for a long time that it may.
#[test]
fn paused_candidate_does_not_lead() {
    let mut script = Script::new();
    let mut paused = candidate(None);
    script.follow(&mut paused).expect("the end");
    script.fence(&mut paused);
    script.store.advance(11);
    let step = script.act(|store, clock| paused.step(store, clock));
    assert!(matches!(step, Ok(TakeoverStep::Overtaken)), "{step:?}");
}

/// A slot above the node's own one was listed, and deleted with the next one during a pause.
#[test]
fn candidate_paused_after_its_list_does_not_call_deletions_damage() {
    let mut script = Script::new();
    let mut paused = candidate(None);
    script.follow(&mut paused).expect("the end");
    script.fence(&mut paused);
    script.lead(None).expect("a leader");
    let step = script.act(|store, clock| paused.step(store, clock)).expect("a list");
    assert!(matches!(step, TakeoverStep::Again), "{step:?}");
    script.store.advance(401);
    script.store.objects.remove("slots/00000000000000000002").expect("it exists");
    let step = script.act(|store, clock| paused.step(store, clock));
    assert!(matches!(step, Ok(TakeoverStep::Overtaken)), "{step:?}");
}

/// Neither a leader nor a candidate uses a number for which the last contact is too old, by the
/// clock of the store or by its own. The slot itself is in the chain.
#[test]
fn stale_contacts_acknowledge_nothing() {
    for pause in [0, 11] {
        let mut script = Script::new();
        let mut stale = candidate(None);
        script.follow(&mut stale).expect("the end");
        let begins = SlotEntry::EpochBegins { host: "h".into(), port: 1 };
        assert!(stale.begin_epoch(script.uid(), 0, vec![begins]).expect("a valid slot"));
        script.store.advance(11);
        script.paused += pause;
        let step = script.act(|store, clock| stale.step(store, clock));
        assert!(matches!(step, Ok(TakeoverStep::Overtaken)), "{step:?}");
        let mut writer = script.lead(None).expect("a leader");
        script.store.advance(11);
        script.paused += pause;
        let step = script.write(&mut writer);
        assert!(matches!(step, Ok(WriteStep::Deposed)), "{step:?}");
        assert_eq!(script.slots().len(), 3);
    }
}

/// Story: a list of a store with several servers lacked the next slot and had the one after it. The
/// node reported a lost object.
#[test]
fn list_without_the_next_slot_is_no_damage() {
    let mut script = Script::new();
    let mut first = candidate(None);
    script.follow(&mut first).expect("the end");
    script.fence(&mut first);
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    script.store.hidden = Some("slots/00000000000000000002".into());
    script.check_overtaken(&mut first);
}

#[test]
fn missing_slot_below_another_is_damage() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    for _ in 0..2 {
        script.write(&mut writer).expect("a slot");
    }
    script.store.objects.remove("slots/00000000000000000002").expect("it exists");
    let error = script.lead(None).expect_err("slot 2 was lost");
    assert!(matches!(error, SlotError::Damaged { .. }), "{error}");
}

/// Story: an object that is no slot stopped every takeover.
#[test]
fn other_objects_beside_the_slots_are_ignored() {
    let mut script = Script::new();
    script.store.land("slots/00000000000000000002.copy", b"x");
    script.lead(None).expect("a leader");
    // The slot above is on a later page than the other object.
    script.store.page_objects = 1;
    let mut first = candidate(None);
    script.follow(&mut first).expect("the end");
    script.fence(&mut first);
    script.lead(None).expect("a leader");
    script.check_overtaken(&mut first);
}

/// Story: a node with a full disk was started with the prefix of an empty bucket. It led there,
/// while the others went on in the right one.
#[test]
fn node_with_a_state_refuses_an_empty_bucket() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    script.store = StoreState::default();
    let error = script.lead(Some(writer.chain())).expect_err("the bucket is empty");
    assert!(matches!(error, SlotError::Refused(_)), "{error}");
    assert!(script.slots().is_empty());
}

/// Story: a bucket was replaced by its replica, which lacked the newest slots. A node that had them
/// wrote after the hole, and no node could follow it.
#[test]
fn node_ahead_of_the_bucket_refuses_it() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    script.store.objects.remove("slots/00000000000000000002").expect("it exists");
    let error = script.lead(Some(writer.chain())).expect_err("slot 2 is missing");
    assert!(matches!(error, SlotError::Damaged { .. }), "{error}");
    assert_eq!(script.slots(), ["slots/00000000000000000001"]);
}

/// Story: like the one above, but the replica took the bucket's place while the node followed.
#[test]
fn candidate_confirms_the_objects_again() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    let mut takeover = candidate(None);
    script.follow(&mut takeover).expect("the end");
    script.store.objects.remove("slots/00000000000000000002").expect("it exists");
    script.store.advance(11);
    takeover.keep_following();
    script.follow(&mut takeover).expect("no later slot");
    let begins = SlotEntry::EpochBegins { host: "h".into(), port: 1 };
    let has_begun = takeover.begin_epoch(script.uid(), 0, vec![begins]);
    assert!(!has_begun.expect("a valid slot"), "the list is old");
    let error = script.follow(&mut takeover).expect_err("slot 2 is missing");
    assert!(matches!(error, SlotError::Damaged { .. }), "{error}");
}

/// Story: like the first one of these, but another node had used the numbers again.
#[test]
fn node_with_another_history_refuses_the_bucket() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    let mut fork = Script::new();
    fork.uids = 100;
    let mut other = fork.lead(None).expect("a leader");
    fork.write(&mut other).expect("a slot");
    let error = fork.lead(Some(writer.chain())).expect_err("another history");
    assert!(matches!(error, SlotError::Damaged { .. }), "{error}");
}

/// Story: like the one above, but an old snapshot had the number of the node's state. The node took
/// the snapshot for one of its own state, and led. No other node could follow it.
#[test]
fn node_with_another_history_refuses_an_old_snapshot_with_its_number() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    for is_deleted in [false, true] {
        let mut fork = Script::new();
        fork.uids = 100;
        let mut other = fork.lead(None).expect("a leader");
        fork.write(&mut other).expect("a slot");
        fork.put_snapshots(other.chain());
        fork.store.advance(401);
        if is_deleted {
            let mut collection = SlotCollection::new(STORE, times());
            fork.collect(&mut collection).expect("a round");
            fork.delete_old(&mut collection).expect("a deletion");
            assert!(fork.slots().is_empty());
        }
        let slots = fork.slots().len();
        let error = fork.lead(Some(writer.chain())).expect_err("another history");
        assert!(matches!(error, SlotError::Damaged { .. }), "{error}");
        assert_eq!(fork.slots().len(), slots);
    }
}

/// Story: a node had the state before the first slot, and was started with the prefix of another
/// log, which had no slot either. The node created the first slot there.
#[test]
fn node_before_the_first_slot_refuses_another_log() {
    let mut script = Script::new();
    script.lead(Some(&ChainState::default())).expect("a leader of its own log");
    let mut other = Script { store: StoreState::default(), ..Script::new() };
    let ids = SlotIds { store: [6; 16], uid: [1; 16] };
    let first = SlotSnapshot { ids, chain: ChainState::default(), state: Vec::new() };
    other.store.land(first.name().as_str(), &first.encode());
    let error = other.lead(Some(&ChainState::default())).expect_err("another log");
    assert!(matches!(error, SlotError::Damaged { .. }), "{error}");
    assert!(other.slots().is_empty());
}

/// A late creation takes the number of a deleted slot. A node with the state of an old snapshot
/// must not take it for the slot at the end of its state.
#[test]
fn late_creation_at_a_deleted_number_is_no_damage() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.put_snapshots(writer.chain());
    let disk = writer.chain().clone();
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.write(&mut writer).expect("a slot");
    script.delete_old(&mut collection).expect("a deletion");
    let late = "slots/00000000000000000001";
    assert!(script.store.land(late, b"a slot of a leader that lost the number"));
    let mut takeover = candidate(Some(&disk));
    script.follow(&mut takeover).expect("the end");
    assert_eq!(takeover.follower().end(), writer.end());
}

/// Story: a collection deleted the newest slots first, and ended early. A late creation took a
/// deleted number. A node whose list lacked the new snapshot applied it after the slot that was
/// left, since an earlier snapshot was left, too.
#[test]
fn collection_that_ends_early_leaves_no_slot_before_a_deleted_one() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    for _ in 0..3 {
        script.write(&mut writer).expect("a slot");
    }
    script.put_snapshots(writer.chain());
    script.write(&mut writer).expect("a slot");
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.announce(&mut collection).expect("a floor");
    script.store.advance(201);
    let mut step = CollectionStep::Again;
    while step != CollectionStep::Done {
        step = script.collect_step(&mut collection).expect("an answer");
        let left = script.slots();
        let expected: Vec<String> =
            (6 - left.len()..6).map(|number| format!("slots/{number:020}")).collect();
        assert_eq!(left, expected);
        let mut snapshots = script.store.objects.keys().filter(|it| it.starts_with("snapshots/"));
        assert!(left.len() == 5 || snapshots.all(|it| !it.contains("/00000000000000000000-")));
    }
    assert_eq!(script.slots(), ["slots/00000000000000000005"]);
}

/// Story: lists lacked the newest snapshot for hours. A node took that for a proof that the slots
/// after its state are not deleted, and applied a number that a late creation had used again.
#[test]
fn node_before_a_floor_applies_nothing_while_lists_lack_its_snapshot() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    let (disk, bytes) = (writer.chain().clone(), script.store.objects[script.slots()[0]].0.clone());
    for _ in 0..2 {
        script.write(&mut writer).expect("a slot");
    }
    script.put_snapshots(writer.chain());
    let newest = "snapshots/00000000000000000003-";
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.delete_old(&mut collection).expect("a deletion");
    assert!(script.slots().is_empty());
    // Late requests: the first slot again, a snapshot of it, and a slot that another one replaced.
    let (first, second) = ("slots/00000000000000000001", "slots/00000000000000000002");
    let ids = SlotIds { store: STORE, uid: script.uid() };
    let lost = Slot {
        ids,
        number: 2,
        epoch: disk.end.epoch,
        previous: disk.end.uid,
        node: "node".into(),
        wall_micros: 0,
        entries: vec![SlotEntry::Nothing],
    };
    script.store.land(first, &bytes);
    script.store.land(second, &lost.encode());
    script.put_snapshot(&disk);
    for state in [Some(&disk), None] {
        script.store.hidden = Some(newest.to_owned());
        let mut takeover = candidate(state);
        let mut longest = Duration::ZERO;
        for _ in 0..STEPS_MAX {
            let step = script.act(|store, clock| takeover.step(store, clock)).expect("no damage");
            assert!(matches!(step, TakeoverStep::Followed(FollowStep::Again)), "{step:?}");
            longest = longest.max(takeover.wait());
        }
        assert_eq!(longest, times().fresh / 4, "paid requests without progress");
        script.store.hidden = None;
        script.follow(&mut takeover).expect("the end");
        assert_eq!(takeover.follower().end(), writer.end());
    }
}

/// A node's state ends with the floor, so no slot shows whether the objects are the right ones. An
/// older copy of them lacks the floor.
#[test]
fn node_at_a_floor_refuses_an_older_copy() {
    let mut script = Script::new();
    let writer = script.lead(None).expect("a leader");
    script.put_snapshots(writer.chain());
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    let older = script.store.objects.clone();
    script.delete_old(&mut collection).expect("a deletion");
    let mut takeover = candidate(Some(writer.chain()));
    script.follow(&mut takeover).expect("the end");
    script.store.objects = older;
    script.store.objects.remove("slots/00000000000000000001").expect("it exists");
    script.store.advance(101);
    takeover.keep_following();
    let error = script.follow(&mut takeover).expect_err("the floor is missing");
    assert!(matches!(error, SlotError::Damaged { .. }), "{error}");
}

/// A node whose last slot was deleted after a snapshot of it goes on.
#[test]
fn node_at_a_deleted_slot_follows() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.put_snapshots(writer.chain());
    let disk = writer.chain().clone();
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.write(&mut writer).expect("a slot");
    script.delete_old(&mut collection).expect("a deletion");
    assert_eq!(script.slots(), ["slots/00000000000000000002"]);
    let mut takeover = candidate(Some(&disk));
    script.follow(&mut takeover).expect("the end");
    assert_eq!(takeover.follower().end(), writer.end());
}

/// Story: the newest old snapshot was damaged. The leader deleted everything before it by its name.
#[test]
fn damaged_snapshot_makes_nothing_deletable() {
    for is_foreign in [false, true] {
        let mut script = Script::new();
        let mut writer = script.lead(None).expect("a leader");
        script.write(&mut writer).expect("a slot");
        script.put_snapshot(writer.chain());
        let name = match is_foreign {
            false => script.put_snapshot(writer.chain()),
            true => {
                let ids = SlotIds { store: [6; 16], uid: script.uid() };
                let end = ChainEnd { number: 1000, ..writer.end() };
                let chain = ChainState { end, ..writer.chain().clone() };
                let snapshot = SlotSnapshot { ids, chain, state: Vec::new() };
                script.store.land(snapshot.name().as_str(), &snapshot.encode());
                snapshot.name()
            }
        };
        let (bytes, _) = script.store.objects.get_mut(name.as_str()).expect("it exists");
        if !is_foreign {
            *bytes.last_mut().expect("bytes") ^= 1;
        }
        let before = script.store.objects.len();
        let mut collection = SlotCollection::new(STORE, times());
        script.collect(&mut collection).expect("a round");
        script.store.advance(401);
        let error = script.collect(&mut collection).expect_err("the snapshot is damaged");
        assert!(matches!(error, SlotError::Damaged { .. }), "{error}");
        assert_eq!(script.store.objects.len(), before);
    }
}

/// The store's clock jumps, and a snapshot looks old. The node has not seen it for as long.
#[test]
fn jump_of_the_stores_clock_deletes_nothing() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    script.put_snapshots(writer.chain());
    let before = script.store.objects.len();
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.store.advance(401);
    script.paused += 401;
    script.collect(&mut collection).expect("a round");
    assert_eq!(script.store.objects.len(), before);
    script.announce(&mut collection).expect("a floor");
    script.store.advance(401);
    script.paused += 401;
    script.collect(&mut collection).expect("a round");
    assert_eq!(script.store.objects.len(), before + 1);
    script.store.advance(201);
    script.collect(&mut collection).expect("a deletion");
    assert!(script.slots().is_empty());
}

/// The node's clock jumps, as that of a machine whose memory was copied from another.
#[test]
fn jump_of_the_nodes_clock_deletes_nothing() {
    let mut script = Script::new();
    script.store.advance(500);
    script.paused = 450;
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    script.put_snapshots(writer.chain());
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.paused = 0;
    script.collect(&mut collection).expect("a round");
    assert_eq!(script.slots().len(), 2);
}

/// Every page of a list counts.
#[test]
fn newest_snapshot_is_found_on_a_later_page() {
    let mut script = Script::new();
    script.store.page_objects = 1;
    let mut writer = script.lead(None).expect("a leader");
    script.write(&mut writer).expect("a slot");
    script.put_snapshots(writer.chain());
    let mut collection = SlotCollection::new(STORE, times());
    script.collect(&mut collection).expect("a round");
    script.announce(&mut collection).expect("a floor");
    script.store.advance(201);
    // A round deletes the slots of one page.
    for number in (0..2).rev() {
        script.collect(&mut collection).expect("a round");
        assert_eq!(script.slots().len(), number);
    }
    script.put_snapshot(&ChainState::default());
    let mut takeover = candidate(None);
    script.follow(&mut takeover).expect("the end");
    assert_eq!(takeover.follower().end(), writer.end());
}

/// Story: a store has several servers, whose clocks differ by a second. A leader gave up because an
/// answer had an earlier time than the one before it, and a follower listed for ever.
#[test]
fn servers_with_other_clocks_depose_no_leader() {
    let mut script = Script::new();
    script.store.time = 100;
    script.store.odd_slots_late = 1;
    let mut writer = script.lead(None).expect("a leader");
    for _ in 0..4 {
        let step = script.write(&mut writer).expect("a slot");
        assert!(matches!(step, WriteStep::Acknowledged(_)), "{step:?}");
    }
    let mut takeover = candidate(None);
    script.follow(&mut takeover).expect("the end");
    assert_eq!(takeover.follower().end(), writer.end());
}

/// Story: one answer of the store had no time, as behind a proxy. The leader gave up its epoch,
/// though its slot was in the chain.
#[test]
fn creation_without_a_time_deposes_no_leader() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    script.store.hides_time = true;
    let step = script.write(&mut writer).expect("an answer");
    assert!(matches!(step, WriteStep::Open), "{step:?}");
    script.store.hides_time = false;
    let step = script.act(|store, clock| writer.step(store, clock)).expect("an answer");
    assert!(matches!(step, WriteStep::Acknowledged(_)), "{step:?}");
    assert_eq!(script.slots().len(), 2);
}

/// Story: a machine was paused, and another leader acknowledged a slot. The first leader answered a
/// read without it, since its lease had not ended by its own clock.
#[test]
fn leader_proves_that_it_leads_before_it_answers() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    let prove = |script: &mut Script, writer: &mut SlotWriter| {
        script.act(|store, clock| writer.prove(store, clock)).expect("an answer")
    };
    let first = writer.arrive();
    assert!(!writer.can_answer(first));
    script.store.hides_time = true;
    assert_eq!(prove(&mut script, &mut writer), ProofStep::Unknown);
    assert!(!writer.can_answer(first));
    script.store.hides_time = false;
    assert_eq!(prove(&mut script, &mut writer), ProofStep::Proven);
    let second = writer.arrive();
    assert!(writer.can_answer(first) && !writer.can_answer(second));
    script.write(&mut writer).expect("a slot");
    assert!(writer.can_answer(second), "a slot is a proof, too");
    let mut stale = writer.clone();
    let mut next = script.lead(Some(writer.chain())).expect("another leader");
    script.write(&mut next).expect("a slot");
    let third = writer.arrive();
    assert_eq!(prove(&mut script, &mut writer), ProofStep::Deposed);
    assert!(!writer.can_answer(third) && !writer.can_answer(second));
    // The next slot is missing, since it was deleted.
    script.store.objects.remove("slots/00000000000000000003").expect("it exists");
    script.store.advance(11);
    assert_eq!(prove(&mut script, &mut stale), ProofStep::Deposed);
}

/// Story: a leader gave up its epoch, and then acknowledged another slot of it. Followers had begun
/// to take over.
#[test]
fn leader_that_resigned_acknowledges_nothing_more() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    writer.propose(script.uid(), 0, vec![SlotEntry::Resigned]).expect("a valid slot");
    let step = script.act(|store, clock| writer.step(store, clock)).expect("a slot");
    assert!(matches!(step, WriteStep::Acknowledged(_)), "{step:?}");
    let step = script.write(&mut writer).expect("no request");
    assert!(matches!(step, WriteStep::Deposed), "{step:?}");
    assert_eq!(script.slots().len(), 2);
}

/// Story: a leader wrote slots that no reader accepts, and acknowledged them. They ended the log
/// for all nodes.
#[test]
fn slots_that_no_reader_accepts_are_not_written() {
    let log = LogId { kind: 1, id: 1 };
    let bytes = vec![0; SLOT_BYTES_MAX as usize];
    let too_long = SlotEntry::Bytes { log, from: 0, bytes };
    let begins = || SlotEntry::EpochBegins { host: "h".into(), port: 1 };
    let too_many = vec![SlotEntry::Nothing; SLOT_ENTRIES_MAX + 1];
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    let resigned = vec![SlotEntry::Resigned, SlotEntry::Nothing];
    for entries in [
        vec![],
        vec![begins()],
        vec![SlotEntry::Nothing, begins()],
        resigned,
        too_many,
        vec![too_long],
    ] {
        let error = writer.propose([99; 16], 0, entries).expect_err("no reader accepts it");
        assert!(matches!(error, SlotError::Refused(_)), "{error}");
        assert!(!writer.is_busy());
    }
    let most = vec![SlotEntry::Nothing; SLOT_ENTRIES_MAX];
    writer.propose([99; 16], 0, most).expect("a valid slot");
    script.act(|store, clock| writer.step(store, clock)).expect("a slot");
    let mut takeover = candidate(None);
    script.follow(&mut takeover).expect("the end");
    assert_eq!(takeover.follower().end(), writer.end());
    takeover.begin_epoch([98; 16], 0, vec![SlotEntry::Nothing]).expect_err("no epoch begins");
    assert!(takeover.is_at_end());
}

/// The settings of the log bind the next slot: its maximum length, and what must not decrease.
#[test]
fn slots_that_the_settings_forbid_are_not_written() {
    let mut script = Script::new();
    let mut writer = script.lead(None).expect("a leader");
    let lower = SlotSettings { slot_bytes_max: 64 << 10, ..SlotSettings::default() };
    let log = LogId { kind: 1, id: 1 };
    let records = |bytes| SlotEntry::Bytes { log, from: 0, bytes: vec![0; bytes] };
    for (entry, is_valid) in [
        (SlotEntry::Settings(lower), true),
        (records(64 << 10), false),
        (records(63 << 10), true),
        (SlotEntry::Settings(SlotSettings { keep_micros: 1, ..lower }), false),
        (SlotEntry::Settings(SlotSettings { derivation: 2, ..SlotSettings::default() }), true),
        (records(64 << 10), true),
    ] {
        let proposed = writer.propose(script.uid(), 0, vec![entry]);
        assert_eq!(proposed.is_ok(), is_valid, "{proposed:?}");
        let step = script.act(|store, clock| writer.step(store, clock)).expect("an answer");
        assert_eq!(matches!(step, WriteStep::Acknowledged(_)), is_valid, "{step:?}");
    }
    let mut takeover = candidate(None);
    script.follow(&mut takeover).expect("the end");
    assert_eq!(takeover.follower().chain(), writer.chain());
}
