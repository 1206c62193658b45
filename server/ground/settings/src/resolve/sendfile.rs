//! The `[sendfile]` table.

use super::ResolveContext;
use crate::error::Error;
use crate::raw::Raw;
use crate::table::taker::Taker;
use crate::value::sendfile::{SendfileRule, fault};
use crate::written::WrittenValues;

/// Returns all rules, longest prefix first.
pub(super) fn rules(taker: &Taker<'_>, given: &WrittenValues, facts: &ResolveContext) -> Vec<SendfileRule> {
    let mut rules: Vec<SendfileRule> = Vec::new();
    for (prefix, written) in &given.sendfile {
        let refuse = |problem: &str| {
            let name = format!("sendfile.{prefix:?}");
            taker.refuse(Error {
                origin: written.origin.clone(),
                written: match &written.raw {
                    Raw::Other(_) => name,
                    raw => format!("{name} = {raw}"),
                },
                problem: problem.to_owned(),
                nearest: None,
            });
        };
        if let Some(problem) = fault(prefix) {
            refuse(problem);
            continue;
        }
        let Some(folder) = written.raw.text().filter(|text| !text.is_empty() && !text.contains('\0')) else {
            refuse("expected a folder, such as \"/srv/files\" or \"storage\"");
            continue;
        };
        rules.push(SendfileRule { prefix: prefix.clone(), folder: facts.base.join(folder) });
    }
    rules.sort_by(|one, other| (other.prefix.len(), &one.prefix).cmp(&(one.prefix.len(), &other.prefix)));
    rules
}
