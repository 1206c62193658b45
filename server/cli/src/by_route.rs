//! Reads the options of `firebrick routes`, and checks them before the server is asked.

use clap::ArgMatches;
use control::by_route::{RoutePrice, RoutesOrder};
use stats::RouteOrder;

/// # Errors
/// An option is invalid, or does not go with another one.
pub(crate) fn wish(given: &ArgMatches) -> Result<RoutesOrder, String> {
    let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
    let sort = match text("sort") {
        None => RouteOrder::default(),
        Some(word) => RouteOrder::named(word)
            .ok_or_else(|| format!("--sort {word}: expected one of {}", RouteOrder::names()))?,
    };
    let limit = text("limit").map(|text| match text::count::parse(text) {
        Ok(count) if count > 0 => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        _ => Err(format!("--limit {text}: expected a number from 1, such as 20")),
    });
    let wish = RoutesOrder {
        sort,
        limit: limit.transpose()?,
        json: given.get_flag("json"),
        watch: given.get_flag("watch"),
        reset: given.get_flag("reset"),
        price: text("price").map(price).transpose()?,
    };
    if wish.reset && wish != (RoutesOrder { reset: true, ..RoutesOrder::default() }) {
        return Err("--reset goes with no other option of `firebrick routes`".to_owned());
    }
    if wish.json && wish.price.is_some() {
        return Err(
            "--price is for the table: --json has the routes' shares, from which money follows".to_owned()
        );
    }
    Ok(wish)
}

#[cfg(feature = "measuring")]
fn price(text: &str) -> Result<RoutePrice, String> {
    let (per_month, currency) = plan::price(text).map_err(|why| format!("--price: {why}"))?;
    Ok(RoutePrice { per_month, currency })
}

#[cfg(not(feature = "measuring"))]
fn price(_: &str) -> Result<RoutePrice, String> {
    Err("--price: this program was built without plan, which reads prices; `make` builds it with it"
        .to_owned())
}
