//! The named scripts of the crash and fault campaigns.

mod existence_scripts;
mod keyspace_scripts;
mod long_value_scripts;
mod table_scripts;
mod wal_scripts;

use umbel_sim::Random;

use crate::simulation::script::{
    Condition, Op, Script, Write, compressed, delete, delete_range, key, put, roomy, small,
    unlogged, value, with_existence_filter,
};
use crate::support::derived_seed::derive_seed;
use umbel::Durability::{Buffered, Synced};

/// Every named script.
pub fn all() -> Vec<Script> {
    let mut scripts = wal_scripts::scripts();
    scripts.extend(table_scripts::scripts());
    scripts.extend(keyspace_scripts::scripts());
    scripts.extend(long_value_scripts::scripts());
    scripts.extend(existence_scripts::scripts());
    scripts
}

/// Returns the script with this name; `random-N` is generated from the number N.
pub fn named(name: &str) -> Option<Script> {
    if let Some(number) = name.strip_prefix("random-") {
        return number.parse().ok().map(random);
    }
    all().into_iter().find(|script| script.name == name)
}

/// Returns the random script of a number.
pub fn random(number: u64) -> Script {
    let mut random = Random::new(derive_seed(number, 0x5EED));
    let mut script = Script::new(&format!("random-{number}"));
    if random.once_in(4) {
        script.durability = Synced;
    }
    script.mapping = !random.once_in(4);
    if number.is_multiple_of(2) {
        // Some of the values are long values.
        script.inline_value_bytes_max = 150;
    }
    let options = [small(), roomy(), compressed()];
    let [first, second] = [random.below(3), random.below(3)].map(|at| options[at as usize].clone());
    // Not drawn, so that existing numbers keep their meaning.
    let third = number.is_multiple_of(3);
    let filtered = |options| if third { with_existence_filter(options) } else { options };
    script = script
        .keyspace("a", filtered(first))
        .keyspace("b", second)
        .keyspace("n", filtered(unlogged()));
    let steps = 20 + random.below(40);
    for step in 0..steps {
        script = random_step(script, &mut random, step);
    }
    script
}

fn random_write(random: &mut Random, name: &'static str, step: u64) -> Write {
    let number = random.below(40) as usize;
    match random.below(8) {
        0 => delete(name, number),
        1 if random.once_in(3) => {
            delete_range(name, number..number + 1 + random.below(12) as usize)
        }
        _ => {
            let len = [0, 10, 60, 200, 700][random.below(5) as usize];
            put(name, number, &format!("s{step}"), len)
        }
    }
}

fn random_step(script: Script, random: &mut Random, step: u64) -> Script {
    let name = ["a", "b"][random.below(2) as usize];
    let durability = if random.once_in(3) { Synced } else { Buffered };
    match random.below(30) {
        0..=11 => script.op(Op::Single(random_write(random, name, step))),
        12..=16 => {
            let count = 1 + random.below(12);
            let mut writes = Vec::new();
            for _ in 0..count {
                let name = ["a", "b"][random.below(2) as usize];
                writes.push(random_write(random, name, step));
            }
            script.batch(durability, writes)
        }
        17..=18 => {
            let write = random_write(random, "n", step);
            script.marker_batch("n", format!("m{step}").as_bytes(), vec![write])
        }
        19 => script.op(Op::FlushAll(vec!["n"], format!("f{step}").into_bytes())),
        20 => script.op(Op::Flush),
        21 => script.op(Op::FlushOne(name)),
        22 => script.op(Op::Compact(name, None, None)),
        23 => script.op(Op::Sync),
        24 => script.op(Op::Snapshot),
        25 => script.op(Op::Release),
        26 => script.op(Op::Reopen),
        27 => script.op(Op::Kill),
        28 => script.op(Op::PowerCut(random.next())),
        _ => {
            let absent = Condition::Absent(name, key(random.below(40) as usize));
            script.conditional_batch(
                durability,
                vec![absent],
                vec![random_write(random, name, step)],
            )
        }
    }
}

/// Returns a value that no other helper makes.
fn empty_value() -> Vec<u8> {
    value(0, "", 0)[..0].to_vec()
}
