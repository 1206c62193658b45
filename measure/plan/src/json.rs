//! The result as JSON; described in docs/plan.md.

use std::collections::BTreeMap;

use planner::bill::Bill;
use planner::facts::TrafficFacts;
use planner::sizing::Sizing;
use serde::Serialize;

use crate::options::Inputs;

#[derive(Serialize)]
struct Document<'a> {
    kind: &'static str,
    version: u32,
    facts: &'a TrafficFacts,
    /// By name, such as `response time`.
    facts_from: BTreeMap<&'static str, &'a str>,
    notes: &'a [String],
    /// Best first.
    #[serde(rename = "answers")]
    sizings: &'a [Sizing],
    /// With `--live`.
    #[serde(skip_serializing_if = "Option::is_none")]
    bill: Option<&'a Bill>,
}

/// Returns the document, followed by a newline.
pub(crate) fn document(inputs: &Inputs, sizings: &[Sizing], bill: Option<&Bill>) -> Result<String, String> {
    let facts_from = inputs.origins.iter().map(|(name, known)| (*name, known.from.as_str())).collect();
    let document = Document {
        kind: "firebrick plan",
        version: 1,
        facts: &inputs.facts,
        facts_from,
        notes: &inputs.notes,
        sizings,
        bill,
    };
    serde_json::to_string_pretty(&document)
        .map(|text| text + "\n")
        .map_err(|error| format!("cannot write the result as JSON: {error}"))
}
