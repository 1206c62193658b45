//! Reads the options of `firebrick pause` and `firebrick maintenance`, and checks them before the server is asked.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::arguments::values;
use clap::ArgMatches;
use control::interrupt::MaintenanceAction;
use control::orders::{LARGEST_PAGE, MaintenanceOrder, PauseOrder, is_page};

/// The options of `maintenance on`.
const OF_ON: [&str; 5] = ["page", "retry-after", "allow", "allow-path", "message"];

/// # Errors
/// An option is invalid.
pub(crate) fn pause(given: &ArgMatches) -> Result<PauseOrder, String> {
    let max = text(given, "max").map(|typed| {
        let expected = format!("--max {typed}: expected a number such as 1000");
        typed.parse().map_err(|_| expected)
    });
    let order = PauseOrder { time: text(given, "for"), max: max.transpose()?, paths: list(given, "paths") };
    order.check().map_err(flagged)?;
    Ok(order)
}

/// # Errors
/// An option is invalid, does not belong to the action, or names a page that cannot be read. Relative paths
/// belong to `here`.
pub(crate) fn maintenance(given: &ArgMatches, here: &Path) -> Result<MaintenanceAction, String> {
    let action = text(given, "action");
    if action.as_deref() != Some("on") {
        if let Some(option) = OF_ON.iter().find(|option| given.contains_id(option)) {
            return Err(format!("--{option} is for `firebrick maintenance on`"));
        }
        return Ok(match action.as_deref() {
            Some("off") => MaintenanceAction::Off,
            _ => MaintenanceAction::Status,
        });
    }
    let some = |name: &str| Some(list(given, name)).filter(|entries| !entries.is_empty());
    let order = MaintenanceOrder {
        page: text(given, "page").map(|path| page(&here.join(path))).transpose()?,
        retry_after: text(given, "retry-after"),
        message: text(given, "message"),
        allow: some("allow"),
        allow_paths: some("allow-path"),
    };
    if order.page.is_some() && order.message.is_some() {
        let why = "--message is for the server's own page: leave out --page, or write the text into the file";
        return Err(why.to_owned());
    }
    order.check().map_err(flagged)?;
    Ok(MaintenanceAction::On(order))
}

fn page(path: &Path) -> Result<String, String> {
    let named = |why: String| format!("--page {}: {why}", path.display());
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST_PAGE + 1).read_to_end(&mut bytes));
    read.map_err(|error| named(error.to_string()))?;
    if bytes.len() as u64 > LARGEST_PAGE {
        return Err(named(format!("a page may have {} KiB", LARGEST_PAGE >> 10)));
    }
    is_page(bytes.len() as u64).map_err(named)?;
    String::from_utf8(bytes).map_err(|_| named("the page is not UTF-8".to_owned()))
}

fn text(given: &ArgMatches, name: &str) -> Option<String> {
    given.get_one::<String>(name).cloned()
}

/// Returns the values of an option that may be repeated, and whose values may be lists.
fn list(given: &ArgMatches, name: &str) -> Vec<String> {
    let entries = values(given, name).flat_map(|value| value.split(',')).map(str::trim);
    entries.filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

/// Names the flag instead of the field of the order.
fn flagged(why: String) -> String {
    let (field, rest) = why.split_once(": ").unwrap_or(("", &why));
    let flag = match field {
        "allow_paths" => "allow-path".to_owned(),
        field => field.replace('_', "-"),
    };
    format!("--{flag} {rest}")
}
