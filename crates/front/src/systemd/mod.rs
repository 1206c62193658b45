//! systemd as the service manager: notifications, the watchdog, sockets that it opens. Without it nothing here does anything.
//!
//! The variables by which it is found never reach the app ([`settings::SERVICE_MANAGER_VARIABLES`]): an app that used them would speak in
//! the server's name.

pub(crate) mod activation;
pub(crate) mod notify;
pub(crate) mod passed;
