//! `firebrick certs`: shows the certificates of a running server, or those in its folder and in the files of
//! the settings.

use std::process::ExitCode;
use std::time::SystemTime;

use control::client::{ControlClient, Error, explain};
use settings::Settings;
use stats::CertificateSnapshot;

use crate::print::print;

/// Prints the certificates that the server obtains and those that it serves from files. Without a running
/// server: the stored certificates.
pub fn certs(settings: &Settings, client: Option<&ControlClient>, json: bool) -> ExitCode {
    match found(settings, client) {
        Ok(certificates) if json => match serde_json::to_string_pretty(&certificates) {
            Ok(text) => print(format!("{text}\n").as_bytes()),
            Err(error) => failed(&error.to_string()),
        },
        Ok(certificates) if certificates.is_empty() => print(
            b"There are no certificates here: name a domain with --domain, or in firebrick.toml under [acme], to obtain one, or give \
              files with tls.cert and tls.key.\n",
        ),
        Ok(certificates) => print(::certs::table(&certificates, SystemTime::now()).as_bytes()),
        Err(why) => failed(&why),
    }
}

fn found(settings: &Settings, client: Option<&ControlClient>) -> Result<Vec<CertificateSnapshot>, String> {
    match client.map(ControlClient::stats) {
        Some(Ok(server)) => {
            let served = server.tls.map(|tls| tls.certificates).unwrap_or_default();
            Ok([server.acme, ::certs::served_from_files(&served)].concat())
        }
        None | Some(Err(Error::NotRunning(_))) => {
            Ok([::certs::stored(&settings.acme)?, ::certs::in_files(settings)].concat())
        }
        Some(Err(error)) => Err(explain(&error, &settings.dir)),
    }
}

fn failed(why: &str) -> ExitCode {
    output::complain(format_args!("firebrick: {why}"));
    ExitCode::FAILURE
}
