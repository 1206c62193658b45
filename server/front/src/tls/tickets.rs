//! The secret of session tickets: [`find`] takes it from the settings, the group, a file, or generates one
//! for this run. If Redis did not respond at the start, [`join`] fetches the group's secret later.

use super::Encryption;
use crate::error_log::ErrorLog;
use ::tls::TicketSecret;
use settings::Settings;
use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The retry interval for a group's secret that was missed.
const EVERY: Duration = Duration::from_secs(10);

/// Servers that share a secret.
#[derive(Debug, Clone)]
pub(super) struct Group {
    redis: String,
    name: String,
}

/// The secret to start with.
pub(super) struct FirstSecret {
    pub(super) secret: TicketSecret,
    /// The group, if its secret could not be fetched.
    pub(super) missed: Option<Group>,
}

/// Finds the secret. `used`: whether any address uses TLS.
///
/// # Errors
/// The system has no random numbers.
pub(super) fn find(
    settings: &Settings,
    used: bool,
    warnings: &mut Vec<String>,
) -> Result<FirstSecret, String> {
    if let Some(given) = &settings.tls.ticket_secret {
        return Ok(FirstSecret { secret: TicketSecret::new(given), missed: None });
    }
    let redis = settings.shared.redis.as_ref().filter(|_| used);
    let group = redis.map(|redis| Group { redis: redis.clone(), name: settings.shared.group.clone() });
    if let Some(group) = &group {
        match certs::shared_secret(&group.redis, &group.name) {
            Ok(secret) => return Ok(FirstSecret { secret: TicketSecret::new(&secret), missed: None }),
            Err(why) => warnings.push(format!(
                "the secret of session tickets is not the other servers': {why}; until it can be read this server resumes its own sessions only"
            )),
        }
    }
    Ok(FirstSecret { secret: own(settings, used, warnings)?, missed: group })
}

/// Returns a secret that only this server has.
fn own(settings: &Settings, used: bool, warnings: &mut Vec<String>) -> Result<TicketSecret, String> {
    let random =
        || TicketSecret::random().map_err(|why: io::Error| format!("no secret for session tickets: {why}"));
    match settings.tls.ticket_secret_file.as_ref().filter(|_| used) {
        None => random(),
        Some(file) => TicketSecret::kept_in(file).or_else(|why| {
            warnings.push(format!(
                "cannot use the session ticket secret in {}: {why}; TLS sessions cannot be resumed after a restart",
                file.display()
            ));
            random()
        }),
    }
}

/// Retries until it gets the group's secret, which then encrypts tickets. Older sessions cannot be resumed.
pub(super) async fn join(
    encryption: Arc<Encryption>,
    group: Group,
    settings: Arc<Settings>,
    log: Arc<ErrorLog>,
) {
    let secret = loop {
        tokio::time::sleep(EVERY).await;
        if let Ok(secret) = certs::request_shared_secret(&group.redis, &group.name).await {
            break secret;
        }
    };
    *encryption.secret.lock().unwrap_or_else(PoisonError::into_inner) = TicketSecret::new(&secret);
    for address in &encryption.addresses {
        if let Err(why) = encryption.renew(address, &settings) {
            log.write(&format!(
                "{why}\nthe secret of session tickets before this change stays in force there"
            ));
        }
    }
    log.write("the secret of session tickets is the other servers' from now on");
}
