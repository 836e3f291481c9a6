//! Damage to the files of a closed filter.

use std::path::PathBuf;

use umbel_sim::{Random, Sim};

use super::FOLDER;

/// Returns the files of the filter.
pub fn files(sim: &Sim) -> Vec<PathBuf> {
    sim.files().into_iter().filter(|path| path.starts_with(FOLDER)).collect()
}

/// Damages one place of the files, or a few.
pub fn damage(random: &mut Random, sim: &Sim, older: &Sim) {
    for _ in 0..1 + random.below(3) {
        damage_once(random, sim, older);
    }
}

fn damage_once(random: &mut Random, sim: &Sim, older: &Sim) {
    let all = files(sim);
    // Most of the bytes are in filter files, most of the traps in the others.
    let filters: Vec<&PathBuf> =
        all.iter().filter(|path| path.extension().is_some_and(|end| end == "filter")).collect();
    if all.is_empty() {
        return;
    }
    let path = match filters.is_empty() || random.once_in(2) {
        true => &all[random.below(all.len() as u64) as usize],
        false => filters[random.below(filters.len() as u64) as usize],
    };
    let len = sim.read(path).len() as u64;
    if len == 0 {
        return;
    }
    let at = random.below(len);
    match random.below(9) {
        0..=2 => sim.flip(path, at, 1 << random.below(8)),
        3 => sim.zero_sector(path, at),
        4 => sim.truncate(path, at),
        5 => sim.remove(path),
        6 => {
            let other = &all[random.below(all.len() as u64) as usize];
            if other != path {
                sim.swap_files(path, other);
            }
        }
        7 if len >= 12_288 => sim.swap_blocks(path, 4096, 8192, 4096),
        _ => {
            // The whole file, or one page of it, as it was at some earlier time.
            if older.has(path) && !older.read(path).is_empty() {
                let was = older.read(path);
                let page = at / 4096 * 4096;
                let both = len.min(was.len() as u64);
                if random.once_in(2) && page + 4096 <= both {
                    sim.restore_block(older, path, page, 4096);
                } else {
                    sim.replace(path, &was);
                }
            }
        }
    }
}
