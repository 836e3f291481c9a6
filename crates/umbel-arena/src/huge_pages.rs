//! Asks for huge pages under memory that somebody else owns.

/// Asks the system to put memory of whole huge pages on such, so that reading it at random places
/// misses fewer translations of addresses. It changes no byte, is best said before the memory is
/// first touched, and does nothing where there is less than a few of them or the system has none.
pub fn wish_for_huge_pages<T>(items: &[T]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        use crate::chunk::HUGE_PAGE_BYTES;
        use rustix::mm::{Advice, madvise};

        let bytes = items.as_ptr_range();
        let start = bytes.start.cast::<u8>();
        let before = start.addr().wrapping_neg() % HUGE_PAGE_BYTES;
        let len = size_of_val(items).saturating_sub(before) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if len > 0 {
            // SAFETY: the range lies within the caller's memory, and the wish changes no contents.
            let _ = unsafe {
                madvise(start.wrapping_add(before).cast_mut().cast(), len, Advice::LinuxHugepage)
            };
        }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = items;
}

#[cfg(test)]
mod tests {
    use super::wish_for_huge_pages;

    #[test]
    fn memory_keeps_what_is_in_it() {
        for count in [0, 1, 1 << 10, 3 << 20] {
            let items: Vec<u64> = (0..count).collect();
            wish_for_huge_pages(&items);
            assert!(items.iter().copied().eq(0..count));
        }
    }
}
