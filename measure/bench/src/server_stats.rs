//! The server's own statistics, read from its control socket before and after the run.

use std::path::Path;

use control::client::ControlClient;
use settings::{Argument, ControlAddress, ProcessEnvironment, WithoutSecrets};
use stats::ServerSnapshot;

/// Environment variable with the token for a control port.
const TOKEN: &str = "FIREBRICK_CONTROL_TOKEN";

/// Returns the client for `--control`. A folder is an app's, whose settings name the control socket; other
/// texts are addresses.
///
/// # Errors
/// The address is invalid.
pub(crate) fn client(address: &str) -> Result<ControlClient, String> {
    if Path::new(address).is_dir() {
        return of_app(address);
    }
    let parsed = address.parse::<ControlAddress>().map_err(|mistake| {
        let near = mistake.nearest.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        format!("--control: {address:?} is not a control socket: expected its path, the folder of an app, or tcp://127.0.0.1:9293{near}")
    })?;
    Ok(ControlClient::new(parsed, std::env::var(TOKEN).ok().filter(|token| !token.is_empty())))
}

fn of_app(dir: &str) -> Result<ControlClient, String> {
    let argument = Argument { key: "dir", flag: "--control".to_owned(), values: vec![dir.to_owned()] };
    let loaded = settings::load(&[argument], &WithoutSecrets(&ProcessEnvironment)).map_err(|errors| {
        let all: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        format!("--control: {}", all.join("; "))
    })?;
    let control = loaded.settings.control;
    let address = control.ask.ok_or_else(|| format!("--control: the control socket of {dir} is disabled"))?;
    Ok(ControlClient::new(address, control.token))
}

/// Returns the server's current statistics.
///
/// # Errors
/// The reason why they are not available, and the remedy.
pub(crate) fn snapshot(client: &ControlClient) -> Result<ServerSnapshot, String> {
    client.stats().map_err(|error| format!("--control: {error}"))
}
