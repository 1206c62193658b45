//! A response body that is sent often.
//!
//! Why: a hot file is requested thousands of times a second, and its responses differ in little except
//! `Date`. The protocol may keep the encoded response for a while instead of building it again.

use crate::Cache;
use bytes::Bytes;

/// A body in memory that is always sent with the same status and the same frozen fields (see
/// [`crate::Fields::freeze`]).
#[derive(Debug)]
pub struct Kept {
    body: Bytes,
    cache: Cache,
}

impl Kept {
    pub fn new(body: Bytes) -> Kept {
        Kept { body, cache: Cache::default() }
    }

    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// Returns the cache for the protocols' encoded forms.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}
