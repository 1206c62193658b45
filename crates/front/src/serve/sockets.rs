//! Everything that is bound before the app is loaded, so that a wrong address shows at once: ports, the control socket,
//! the pid file.

use super::logs::Logs;
use super::observer::Observer;
use crate::control_socket;
use crate::leftovers::Leftovers;
use crate::listen::{self, Address, Bound};
use crate::systemd::activation::Activated;
use settings::Settings;
use std::path::{Path, PathBuf};

/// Bound sockets; their files are removed when this is dropped.
pub(super) struct Sockets {
    ports: Vec<Bound>,
    control: Option<control::Server>,
    /// Whether a generated token has to be printed although there is no banner.
    quiet: bool,
    files: Vec<PathBuf>,
    _leftovers: Leftovers,
}

impl Sockets {
    /// Binds all of them, but for those that systemd has opened, and writes the pid file.
    ///
    /// # Errors
    /// The text names the address or file and what to do.
    pub(super) fn bind(
        settings: &Settings,
        mut activated: Activated,
        logs: &Logs,
    ) -> Result<Sockets, String> {
        let mut leftovers = Leftovers::default();
        let mut ports = listen::bind_all(&settings.binds, settings.front_threads as usize, &mut activated)?;
        activated.finish()?;
        // Browsers do not use HTTP/3 with an authority of development.
        if settings.https.http3 && !settings.tls.development {
            for port in &mut ports {
                port.bind_udp().unwrap_or_else(|off| logs.error.write(&off));
            }
        }
        ports.iter().filter_map(Bound::file).for_each(|file| leftovers.add(file));
        let control = control_socket::bind(settings, &logs.error)?;
        if let Some(pidfile) = &settings.process.pidfile {
            leftovers.write_pidfile(pidfile)?;
        }
        // The control server removes its own.
        let mut files = leftovers.files();
        files.extend(control.iter().flat_map(control::Server::files).map(Path::to_owned));
        Ok(Sockets { ports, control, quiet: settings.process.quiet, files, _leftovers: leftovers })
    }

    /// All files that must not outlive the server.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    /// What the banner says about the control server.
    pub(super) fn control_lines(&self) -> Vec<String> {
        self.control.as_ref().map(control_socket::lines).unwrap_or_default()
    }

    /// Starts the control server.
    pub(super) fn serve_control(&mut self, observer: Observer) {
        let Some(control) = self.control.take() else { return };
        if self.quiet {
            control_socket::print_token(&control);
        }
        tokio::task::spawn_local(control.run(observer));
    }

    /// Where the ports are.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.ports.iter().map(Bound::address)
    }

    /// The ports, to be opened when the app can respond.
    pub(super) fn ports(&mut self) -> Vec<Bound> {
        std::mem::take(&mut self.ports)
    }
}
