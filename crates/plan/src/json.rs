//! The answer for programs; docs/plan.md describes it.

use std::collections::BTreeMap;

use planner::facts::Facts;
use planner::sizing::Answer;
use serde::Serialize;

use crate::given::Basis;

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: u32,
    facts: &'a Facts,
    /// By the fact's name, such as `response time`.
    facts_from: BTreeMap<&'static str, &'a str>,
    notes: &'a [String],
    /// Best first.
    answers: &'a [Answer],
}

/// The document, with a line's end.
pub(crate) fn document(basis: &Basis, answers: &[Answer]) -> Result<String, String> {
    let facts_from = basis.origins.iter().map(|(name, known)| (*name, known.from.as_str())).collect();
    let document = Document {
        kind: "firebrick plan",
        version: 1,
        facts: &basis.facts,
        facts_from,
        notes: &basis.notes,
        answers,
    };
    serde_json::to_string_pretty(&document)
        .map(|text| text + "\n")
        .map_err(|error| format!("the answer cannot be written as JSON: {error}"))
}
