//! [`UnsentPage`]: the page of which a call's next frames are made, and the charges of these
//! frames.

use std::sync::{Arc, Mutex};
use umbel_base::ignore_poison::IgnorePoison;

use hyper::body::Bytes;

use crate::resources::outbound_quota::PageCharge;

/// Handle of the pending page for code that makes frames of it.
#[derive(Debug, Clone, Default)]
pub struct UnsentPage(Arc<Mutex<UnsentPageState>>);

/// Pages that the next frames are made of.
#[derive(Debug, Default)]
struct UnsentPageState {
    page: Option<Arc<PageCharge>>,
    /// Whether a frame of the page exists.
    has_frame: bool,
    /// Pages released before they had a frame; the next frame contains their bytes.
    released: Vec<Arc<PageCharge>>,
}

/// Charges of the pages that a frame is made of.
#[derive(Debug, Clone)]
pub struct FrameCharge {
    last: Arc<PageCharge>,
    before: Vec<Arc<PageCharge>>,
}

/// Bytes of pages that are being sent.
#[derive(Debug)]
struct Carried {
    bytes: Bytes,
    charge: FrameCharge,
}

impl UnsentPageState {
    fn release(&mut self) {
        let page = self.page.take().filter(|_| !self.has_frame);
        self.released.extend(page);
    }
}

impl UnsentPage {
    /// Whether a page is held.
    pub fn is_held(&self) -> bool {
        self.locked(|making| making.page.is_some())
    }

    /// Holds a page in place of the last one, with the charge of the bytes beyond its reservation.
    pub fn hold(&self, page: PageCharge, more: Option<PageCharge>) {
        self.locked(|making| {
            making.release();
            (making.page, making.has_frame) = (Some(Arc::new(page)), false);
            making.released.extend(more.map(Arc::new));
        });
    }

    /// Releases the page, except for its frames.
    pub fn release(&self) {
        self.locked(UnsentPageState::release);
    }

    /// Takes the charges of the pages that the next frame is made of; `None` without charges.
    pub fn take_frame_charge(&self) -> Option<FrameCharge> {
        self.locked(|making| {
            let mut before = std::mem::take(&mut making.released);
            making.has_frame = making.page.is_some();
            let last = making.page.clone().or_else(|| before.pop())?;
            Some(FrameCharge { last, before })
        })
    }

    fn locked<T>(&self, work: impl FnOnce(&mut UnsentPageState) -> T) -> T {
        // No panic here can leave the state inconsistent.
        work(&mut self.0.lock().ignore_poison())
    }
}

impl FrameCharge {
    /// Returns the charge of a frame without a reservation.
    pub fn unreserved(charge: PageCharge) -> FrameCharge {
        FrameCharge { last: Arc::new(charge), before: Vec::new() }
    }

    /// Returns the bytes of the frame, which hold the charges until they are written.
    pub fn attach(&self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Carried { bytes, charge: self.clone() })
    }
}

impl AsRef<[u8]> for Carried {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        // Its client took a part of it.
        let FrameCharge { last, before } = &self.charge;
        last.note_write(before);
    }
}
