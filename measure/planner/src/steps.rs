//! Formulas with numbers filled in: the steps of a calculation.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The computed value, such as `requests in service at once`.
    pub what: String,
    /// The formula with symbols: `A = λ x S`.
    pub formula: String,
    /// The formula with numbers: `6.25/s x 0.007 s`.
    pub filled_in: String,
    /// The result with its unit.
    pub result: String,
    /// The source, such as `Little (1961)`.
    pub source: String,
}

impl Step {
    pub fn new(what: &str, formula: &str, filled_in: String, result: String, source: &str) -> Step {
        let text = str::to_owned;
        Step { what: text(what), formula: text(formula), filled_in, result, source: text(source) }
    }
}
