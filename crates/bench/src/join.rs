//! The server's own figures, asked for over its control socket before and after the run.

use std::path::Path;

use control::client::Client;
use settings::{Argument, ControlAddress, ProcessEnvironment};
use stats::ServerSnapshot;

/// Where a server shows who may ask, when it listens on a port.
const TOKEN: &str = "FIREBRICK_CONTROL_TOKEN";

/// Whom to ask: a folder is an app's, whose settings say where its server listens; all else is an address.
///
/// # Errors
/// When the place makes no sense.
pub(crate) fn client(place: &str) -> Result<Client, String> {
    if Path::new(place).is_dir() {
        return of_app(place);
    }
    let address = place.parse::<ControlAddress>().map_err(|mistake| {
        let near = mistake.nearest.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        format!("--control: {place:?} is no control socket: expected its path, the folder of an app, or tcp://127.0.0.1:9293{near}")
    })?;
    Ok(Client::new(address, std::env::var(TOKEN).ok().filter(|token| !token.is_empty())))
}

fn of_app(dir: &str) -> Result<Client, String> {
    let argument = Argument { key: "dir", flag: "--control".to_owned(), values: vec![dir.to_owned()] };
    let loaded = settings::load(&[argument], &ProcessEnvironment).map_err(|errors| {
        let all: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        format!("--control: {}", all.join("; "))
    })?;
    let control = loaded.settings.control;
    let address =
        control.ask.ok_or_else(|| format!("--control: the control socket of {dir} is turned off"))?;
    Ok(Client::new(address, control.token))
}

/// The server's figures now.
///
/// # Errors
/// Why there are none, and what to do.
pub(crate) fn snapshot(client: &Client) -> Result<ServerSnapshot, String> {
    client.stats().map_err(|error| format!("--control: {error}"))
}
