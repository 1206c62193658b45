//! systemd as the service manager: notifications, the watchdog, socket activation. Inactive without systemd.
//!
//! The environment variables of systemd never reach the app ([`settings::SERVICE_MANAGER_VARIABLES`]): an app
//! that used them would speak in the server's name.

pub(crate) mod activation;
pub(crate) mod notify;
