//! The certificates that the server obtains, and the next planned steps.

use crate::when;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// A certificate that the server obtains itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateSnapshot {
    pub names: Vec<String>,
    /// The issuer; `None` if there is no certificate yet.
    pub issuer: Option<String>,
    /// The first moment of its validity.
    #[serde(default, with = "when::maybe")]
    pub not_before: Option<SystemTime>,
    /// The last moment of its validity.
    #[serde(default, with = "when::maybe")]
    pub not_after: Option<SystemTime>,
    /// When it is ordered or renewed next; in the past while an order is running.
    #[serde(default, with = "when::maybe")]
    pub next_order: Option<SystemTime>,
    /// The failed orders since the last successful one.
    pub failures: u32,
    /// The reason for the last failure; `None` after a success.
    pub error: Option<String>,
    /// The directory URL of the CA.
    pub directory: String,
    /// Where it is stored.
    pub storage: String,
    /// Whether it was ordered because a client asked for its name.
    #[serde(default)]
    pub on_demand: bool,
}

impl CertificateSnapshot {
    /// Returns its state at `now`: `valid`, `expired`, `not yet valid` or `missing`.
    pub fn state(&self, now: SystemTime) -> &'static str {
        match (self.not_before, self.not_after) {
            (Some(from), _) if now < from => "not yet valid",
            (_, Some(until)) if now > until => "expired",
            (_, Some(_)) => "valid",
            (_, None) => "missing",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn states_and_json() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut one = CertificateSnapshot { names: vec!["a.test".to_owned()], ..Default::default() };
        assert_eq!(one.state(at(5)), "missing");
        (one.not_before, one.not_after) = (Some(at(10)), Some(at(20)));
        assert_eq!(
            (one.state(at(5)), one.state(at(15)), one.state(at(25))),
            ("not yet valid", "valid", "expired")
        );
        let json = serde_json::to_string(&one).unwrap();
        assert!(json.contains(r#""not_after":"1970-01-01T00:00:20.000Z""#), "{json}");
        assert_eq!(serde_json::from_str::<CertificateSnapshot>(&json).unwrap(), one);
    }
}
