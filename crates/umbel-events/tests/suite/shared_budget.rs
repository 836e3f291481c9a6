//! Event stores that share a memory budget.

use std::path::Path;

use umbel_events::{MemoryBudget, Store, StoreOptions};
use umbel_sim::Sim;

use crate::suite::support::{all, append, options};

fn sharing(budget: &MemoryBudget, sim: &Sim, background_threads: usize) -> StoreOptions {
    StoreOptions {
        memory_bytes: None,
        memory_budget: Some(budget.clone()),
        background_threads,
        ..options(sim)
    }
}

#[test]
fn two_event_stores_share_a_budget() {
    for threads in [0, 1] {
        let (sim, budget) = (Sim::new(1), MemoryBudget::new(6 << 20).expect("a budget"));
        let open = |name: &str| {
            let path = format!("/events/{name}");
            Store::open(path, sharing(&budget, &sim, threads)).expect("opened")
        };
        let (one, two) = (open("one"), open("two"));
        for batch in 0..40 {
            append(&one, "a", batch * 250..(batch + 1) * 250);
            append(&two, &format!("b{batch}"), batch * 250..(batch + 1) * 250);
        }
        let stats = budget.stats();
        assert_eq!(stats.stores, 2);
        assert!(stats.held_bytes <= stats.budget_bytes / 10 * 11, "{stats}");
        let shared = one.stats().expect("numbers").index.memory.shared.expect("it is shared");
        assert_eq!(shared.budget_bytes, 6 << 20);
        one.close().expect("closed");
        assert_eq!(budget.stats().stores, 1);
        append(&two, "c", 10_000..10_100);
        two.close().expect("closed");
        let (one, two) = (open("one"), open("two"));
        assert_eq!((all(&one).len(), all(&two).len()), (10_000, 10_100));
    }
}

#[test]
fn event_store_over_the_shared_budget_is_rejected() {
    let (sim, budget) = (Sim::new(1), MemoryBudget::new(6 << 20).expect("a budget"));
    let both = StoreOptions { memory_bytes: Some(8 << 20), ..sharing(&budget, &sim, 0) };
    let refused = Store::open("/events", both).expect_err("both are given").to_string();
    assert!(refused.contains("memory_budget and memory_bytes are both given"), "{refused}");
    let stores_max = budget.stats().stores_max;
    let open = |number: usize| Store::open(format!("/events/{number}"), sharing(&budget, &sim, 0));
    let _stores: Vec<Store> = (0..stores_max).map(|number| open(number).expect("opened")).collect();
    let refused = open(stores_max).expect_err("the budget is full").to_string();
    assert!(refused.contains("is too small for another: close one of them"), "{refused}");
    assert!(!sim.env().files.exists(Path::new(&format!("/events/{stores_max}"))).expect("checked"));
}
