//! The state of all certificates, for other threads: [`CertificateStates`].

use stats::CertificateSnapshot;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct CertificateStates(Arc<Mutex<BTreeMap<String, CertificateSnapshot>>>);

impl CertificateStates {
    /// Returns the state of all certificates, ordered by id.
    pub fn all(&self) -> Vec<CertificateSnapshot> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn show(&self, id: &str, state: CertificateSnapshot) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), state);
    }

    pub(crate) fn remove(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}
