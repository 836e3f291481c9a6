//! Names of nodes belong to their first directory, whatever answers are lost.

use umbel_sim::{FaultRates, ObjectSim};
use umbel_slots::{NodeClaim, SlotError};

/// Histories of the campaign.
const SEEDS: u64 = 300;

fn claim(instance: u8) -> NodeClaim {
    NodeClaim { store: [7; 16], instance: [instance; 16] }
}

#[test]
fn name_belongs_to_its_first_directory() {
    let sim = ObjectSim::new(1);
    let (objects, clock) = (sim.client(1), sim.env().clock);
    let take = |claim: NodeClaim, node: &str| claim.take(&*objects, &*clock, node);
    take(claim(1), "a").expect("free");
    take(claim(1), "a").expect("its own");
    take(claim(2), "b").expect("free");
    let refused = take(claim(2), "a").expect_err("taken").to_string();
    assert!(refused.contains("the node name a belongs to another directory"), "{refused}");
    assert_eq!(sim.objects()["nodes/a"], claim(1).encode());
    assert!(matches!(take(claim(3), "a/b"), Err(SlotError::Refused(_))));
}

#[test]
fn lost_answers_never_give_a_name_twice() {
    for seed in 0..SEEDS {
        let sim = ObjectSim::new(seed);
        sim.set_rates(FaultRates::transient(200));
        let clock = sim.env().clock;
        let mut owners = Vec::new();
        for instance in 1..=3 {
            let objects = sim.client(u64::from(instance));
            if claim(instance).take(&*objects, &*clock, "a").is_ok() {
                owners.push(instance);
            }
        }
        assert!(owners.len() <= 1, "seed {seed}: {owners:?}");
        sim.set_rates(FaultRates::none());
        sim.settle();
        let objects = sim.client(9);
        for instance in owners {
            claim(instance).take(&*objects, &*clock, "a").expect("its own");
        }
    }
}
