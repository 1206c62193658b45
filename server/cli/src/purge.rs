//! Reads the options of `firebrick cache`, and checks them before the server is asked.

use crate::arguments::values;
use clap::ArgMatches;
use control::cache::{CacheAction, PurgeOrder};

/// # Errors
/// An option is invalid, or does not belong to the action.
pub(crate) fn cache(given: &ArgMatches) -> Result<CacheAction, String> {
    let list = |name: &str| values(given, name).map(str::to_owned).collect::<Vec<_>>();
    let order = PurgeOrder { all: given.get_flag("all"), paths: list("path"), tags: list("tag") };
    if given.get_one::<String>("action").map(String::as_str) != Some("purge") {
        return match order == PurgeOrder::default() {
            true => Ok(CacheAction::Show),
            false => Err("--all, --tag and paths are for `firebrick cache purge`".to_owned()),
        };
    }
    order.check().map_err(|why| format!("{why}\nUsage: firebrick cache purge PATH… | --tag TAG | --all"))?;
    Ok(CacheAction::Purge(order))
}
