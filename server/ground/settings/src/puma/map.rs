//! Maps calls to values of options, and to the table that `firebrick check` prints.

use super::mapping::{Mapped, Mapping, raw, text, truthy, whole};
use super::methods::{Effect, Form};
use super::{Call, CallDescription, CallEffect, CallOutcome, Method};
use crate::raw::Raw;

/// Translates the calls.
pub fn map(calls: &[Call]) -> Mapped {
    let mut mapping = Mapping::new(calls);
    for (index, call) in calls.iter().enumerate() {
        let outcome = mapping.one(index, call);
        let place = (call.file.clone(), call.line);
        mapping.mapped.rows.push(CallDescription {
            call: call.to_string(),
            place,
            outcome,
            conditional: call.conditional,
        });
    }
    mapping.finish()
}

impl Mapping<'_> {
    fn one(&mut self, index: usize, call: &Call) -> CallOutcome {
        let Some(method) = Method::find(&call.method) else { return CallOutcome::Plugins };
        if method.class == CallEffect::Mapped
            && !method.adds_up
            && let Some(later) =
                self.calls[index + 1..].iter().find(|later| method.names().any(|name| name == later.method))
        {
            return CallOutcome::Overruled(later.line);
        }
        self.row = index;
        let outcome = match method.effect {
            Effect::Told => None,
            Effect::By(map) => map(self, call),
            Effect::Sets(key, Form::Switch) => Some(self.set(call, key, Raw::Switch(truthy(call, true)))),
            Effect::Sets(key, form) => call.argument(0).map(|value| {
                let raw = match form {
                    Form::Text => Raw::Word(text(value)),
                    Form::Whole => whole(value),
                    Form::Value | Form::Switch => raw(value),
                };
                self.set(call, key, raw)
            }),
        };
        outcome.unwrap_or_else(|| CallOutcome::Is(method.class, method.text.to_owned()))
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
