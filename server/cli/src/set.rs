//! Reads the options of `firebrick set`, and checks them before the server is asked.

use clap::ArgMatches;
use control::changes::{SetOrder, UndoOrder};
use control::set::SetAction;

use crate::arguments::values;

/// # Errors
/// An option is invalid, or does not belong to the others.
pub(crate) fn set(given: &ArgMatches) -> Result<SetAction, String> {
    let words: Vec<String> = values(given, "setting").map(str::to_owned).collect();
    let text = |name: &str| given.get_one::<String>(name).cloned();
    let [undo, history, dry_run] = ["undo", "history", "dry-run"].map(|name| given.get_flag(name));
    let only_set = ["for", "why"].into_iter().find(|name| given.contains_id(name));
    if undo && history {
        return Err("--undo and --history are two commands: give one of them".to_owned());
    }
    if undo {
        if let Some(option) = only_set {
            return Err(format!("--{option} is for a change: firebrick set KEY=VALUE --{option} …"));
        }
        let expected = |typed: &str| {
            format!(
                "--undo {typed}: expected the number of one change, such as 3 (`firebrick set` lists them)"
            )
        };
        let change = match words.as_slice() {
            [] => None,
            [one] => Some(one.parse().map_err(|_| expected(one))?),
            more => return Err(expected(&more.join(" "))),
        };
        return Ok(SetAction::Undo(UndoOrder { change, dry_run }));
    }
    let [first, ..] = words.as_slice() else {
        if let Some(option) = only_set.or(dry_run.then_some("dry-run")) {
            return Err(format!("--{option} is for a change: firebrick set KEY=VALUE --{option}"));
        }
        return Ok(if history { SetAction::History } else { SetAction::Show });
    };
    if history {
        return Err(format!("{first}: --history changes nothing: leave one of them out"));
    }
    let order = SetOrder { values: words, time: text("for"), why: text("why"), dry_run };
    order.check().map_err(|why| {
        let field = ["for: ", "why: "].into_iter().find(|field| why.starts_with(field));
        field.map_or(why.clone(), |field| {
            why.replacen(field, &format!("--{} ", field.trim_end_matches(": ")), 1)
        })
    })?;
    Ok(SetAction::Set(order))
}
