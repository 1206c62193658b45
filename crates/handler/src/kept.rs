//! A response body that is sent often.
//!
//! Why: a hot file is requested thousands of times a second, and its responses differ by little but the `Date`. The
//! protocol may keep the encoded response for a while instead of building it again.

use crate::Cache;
use bytes::Bytes;

/// A body in memory that always comes with the same status and the same frozen fields (see [`crate::Fields::freeze`]).
#[derive(Debug)]
pub struct Kept {
    body: Bytes,
    cache: Cache,
}

impl Kept {
    /// Keeps a body.
    pub fn new(body: Bytes) -> Kept {
        Kept { body, cache: Cache::default() }
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// What protocols keep beside it.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}
