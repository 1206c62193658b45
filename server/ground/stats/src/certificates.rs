//! The certificates that the server obtains, and the next planned steps.

use crate::figures::figures;
use crate::when;
use std::time::SystemTime;

figures! {
    /// A certificate that the server obtains itself.
    #[derive(Default, Eq)]
    #[serde(default)]
    pub struct CertificateSnapshot {
        /// Its names.
        names: Vec<String>,
        /// The issuer of the served certificate; null if there is none yet.
        issuer: Option<String>,
        /// The beginning of its validity, or null.
        #[serde(with = "when::maybe")]
        not_before: Option<SystemTime>,
        /// The end of its validity, or null.
        #[serde(with = "when::maybe")]
        not_after: Option<SystemTime>,
        /// When it is ordered or renewed next; in the past while an order runs or waits for another machine's.
        #[serde(with = "when::maybe")]
        next_order: Option<SystemTime>,
        /// Failed orders since the last success.
        failures: u32,
        /// The reason of the last failure; null after a success.
        error: Option<String>,
        /// The directory of the CA.
        directory: String,
        /// The folder or Redis where it is kept.
        storage: String,
        /// It was ordered because a client asked for its name.
        on_demand: bool,
    }
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
