//! Reads the filters of a table, which follow each other in one region of the file.

use umbel_base::Result;

use crate::filter::resident_filter::{FilterResidency, ResidentFilter};
use crate::filter::resident_prefix_filter::ResidentPrefixFilter;
use crate::format::BlockKind;
use crate::format::footer::{Region, read_metadata_block};
use crate::reader::table_reader::Table;

impl Table {
    /// Reads the filter that `keep` selects. Returns `None` if the table has no such filter, this
    /// build does not know its kind, or the table was opened without the filter's hash function.
    ///
    /// # Errors
    /// [`umbel_base::Error::Corruption`] if the filter is damaged; the file's error if the filter
    /// cannot be read.
    pub fn read_filter(&self, keep: FilterResidency) -> Result<Option<ResidentFilter>> {
        if !self.filter_is_usable() || keep == FilterResidency::Nothing {
            return Ok(None);
        }
        let [plain, second, _] = self.filter_regions();
        match (keep, second) {
            (FilterResidency::Second, Some(second)) => {
                self.decode_filter(second, BlockKind::SecondFilter, 1)
            }
            (keep, _) => {
                let Some(plain) = plain else { return Ok(None) };
                let factor = if let FilterResidency::Plain { factor } = keep { factor } else { 1 };
                self.decode_filter(plain, BlockKind::Filter, factor)
            }
        }
    }

    /// Reads the prefix filter. Returns `None` if the table has none, this build does not know its
    /// kind, or the table was opened without the filter's hash function.
    ///
    /// # Errors
    /// As [`Table::read_filter`].
    pub fn read_prefix_filter(&self) -> Result<Option<ResidentPrefixFilter>> {
        let [.., prefix] = self.filter_regions();
        match prefix.filter(|_| self.filter_is_usable()) {
            Some(region) => self.decode_prefix_filter(region),
            None => Ok(None),
        }
    }

    /// Returns the regions of the plain, the second and the prefix filter.
    pub(crate) fn filter_regions(&self) -> [Option<Region>; 3] {
        let (all, meta) = (self.footer().filter, self.meta());
        let checksums = self.properties().filter_checksums;
        // The last filter has the checksum of all.
        let before_prefix = checksums.before_prefix.unwrap_or(all.checksum);
        let lens =
            [meta.plain_filter_bytes(), meta.second_filter_bytes(), meta.prefix_filter_bytes];
        let sums = [checksums.plain.unwrap_or(before_prefix), before_prefix, all.checksum];
        let mut offset = all.offset;
        std::array::from_fn(|at| {
            let region = Region { offset, len: lens[at], checksum: sums[at] };
            offset += region.len;
            (region.len > 0).then_some(region)
        })
    }

    /// Reads and checks the prefix filter, even if its hash function is not known.
    pub(crate) fn decode_prefix_filter(
        &self,
        region: Region,
    ) -> Result<Option<ResidentPrefixFilter>> {
        let payload =
            read_metadata_block(self.file(), self.footer(), region, BlockKind::PrefixFilter)?;
        ResidentPrefixFilter::decode(payload)
            .map_err(|reason| self.corruption(region.offset, reason))
    }

    /// Reads and checks a filter, even if its hash function is not known.
    pub(crate) fn decode_filter(
        &self,
        region: Region,
        kind: BlockKind,
        factor: u64,
    ) -> Result<Option<ResidentFilter>> {
        let payload = read_metadata_block(self.file(), self.footer(), region, kind)?;
        ResidentFilter::decode(self.pinned_arena(), &payload, self.footer().hash_kind, factor)
            .map_err(|reason| self.corruption(region.offset, reason))
    }
}
