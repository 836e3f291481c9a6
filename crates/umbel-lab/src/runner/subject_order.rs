//! Order of the subjects in a round.

/// Returns the order of the turns in a round: each round begins with another subject, and the
/// successor of each subject changes too. The first subject of a round finds another state of the
/// machine than a subject after a large fill. If a subject always followed the same other subject,
/// that subject's effects on the machine would always influence it.
///
/// In as many rounds as subjects, each subject follows each other equally often if the number of
/// subjects is even. If that number is odd, twice as many rounds are needed. In fewer rounds the
/// frequencies are approximately equal. After E. J. Williams, "Experimental designs balanced for
/// the estimation of residual effects of treatments", 1949.
pub(crate) fn subject_order(subjects: usize, round: u32) -> impl Iterator<Item = usize> {
    let begin = round as usize;
    let begins_upwards = subjects.is_multiple_of(2) || round.is_multiple_of(2);
    (0..subjects).map(move |turn| {
        // 0, 1, n - 1, 2, n - 2, …: of an even number all steps are different, of an odd one
        // together with those of the reverse.
        let distance = turn.div_ceil(2);
        let is_upwards = turn.is_multiple_of(2) != begins_upwards;
        (begin + if is_upwards { distance } else { subjects - distance }) % subjects
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: in every round the growing filter came directly after the synced series, and its
    /// first span was slower than all others.
    #[test]
    fn each_subject_follows_each_other_equally_often() {
        for subjects in 1..=8 {
            let rounds = if subjects % 2 == 0 { subjects } else { 2 * subjects };
            let mut begun = vec![0; subjects];
            let mut followed = vec![vec![0; subjects]; subjects];
            for round in 0..rounds {
                let order: Vec<usize> = subject_order(subjects, round as u32).collect();
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..subjects).collect::<Vec<_>>(), "each subject has one turn");
                begun[order[0]] += 1;
                for pair in order.windows(2) {
                    followed[pair[0]][pair[1]] += 1;
                }
            }
            let times = rounds / subjects;
            assert_eq!(begun, vec![times; subjects]);
            for (one, behind) in followed.iter().enumerate() {
                for (other, count) in behind.iter().enumerate() {
                    assert_eq!(*count, if one == other { 0 } else { times }, "{subjects}");
                }
            }
        }
    }
}
