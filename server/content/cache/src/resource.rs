//! The kept responses of one URL.

use crate::stored::Stored;
use crate::summary::FieldSummary;
use handler::Fields;
use smallvec::SmallVec;
use std::sync::Arc;

/// The cost of an entry besides its key and its responses, in bytes: the table's slot, and the allocator's
/// rounding.
const OVERHEAD: usize = 128;

/// The variants of a resource.
///
/// The weight is fixed when the resource is put: the cache asks again when an entry is replaced, and must get
/// the same value.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) variants: SmallVec<[Arc<Stored>; 1]>,
    weight: u64,
}

impl Resource {
    pub(crate) fn new(key: &[u8], variants: SmallVec<[Arc<Stored>; 1]>) -> Arc<Resource> {
        let stored: usize = variants.iter().map(|stored| stored.bytes() + size_of::<Arc<Stored>>()).sum();
        let weight = (size_of::<Resource>() + key.len() + OVERHEAD + stored) as u64;
        Arc::new(Resource { variants, weight })
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    /// Returns the variant for a request.
    pub(crate) fn variant(&self, request: &Fields, summary: FieldSummary) -> Option<&Arc<Stored>> {
        // The newest matching variant (RFC 9111 section 4.1).
        self.variants
            .iter()
            .rev()
            .find(|stored| stored.selection.matches(request, summary, stored.language()))
    }
}
