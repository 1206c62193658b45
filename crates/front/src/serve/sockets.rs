//! Everything that is bound before the app is loaded, so that a wrong address shows at once: ports, the control socket,
//! the pid file.

use super::logs::Logs;
use super::observer::Observer;
use crate::control_socket;
use crate::handover::{Handed, Offer};
use crate::leftovers::{self, Leftovers};
use crate::listen::{self, Address, Bound};
use crate::systemd::activation::Activated;
use control::Release;
use settings::Settings;
use std::io;
use std::path::{Path, PathBuf};

/// Bound sockets; their files are removed when this is dropped.
pub(super) struct Sockets {
    ports: Vec<Bound>,
    control: Option<control::Server>,
    /// To hand over the control server's sockets.
    release: Option<Release>,
    /// Whether a generated token has to be printed although there is no banner.
    quiet: bool,
    control_files: Vec<PathBuf>,
    leftovers: Leftovers,
    /// What an old program has given and nothing has claimed.
    unclaimed: Handed,
}

/// What there is before anything is bound.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// By systemd.
    pub(super) activated: Activated,
    /// By an old program.
    pub(super) handed: Handed,
    /// Its process.
    pub(super) old: Option<i32>,
}

impl Sockets {
    /// Binds all of them, but for those that systemd has opened or an old program hands over, and writes the pid file.
    ///
    /// # Errors
    /// The text names the address or file and what to do.
    pub(super) fn bind(settings: &Settings, given: Given, logs: &Logs) -> Result<Sockets, String> {
        let Given { mut activated, mut handed, old } = given;
        let mut leftovers = Leftovers::default();
        let threads = settings.front_threads as usize;
        let mut ports = listen::bind_all(&settings.binds, threads, &mut activated, &mut handed)?;
        activated.finish()?;
        // Browsers do not use HTTP/3 with an authority of development.
        if settings.https.http3 && !settings.tls.development {
            for port in &mut ports {
                port.bind_udp(threads, &mut handed).unwrap_or_else(|off| logs.error.write(&off));
            }
        }
        for (port, file) in ports.iter().filter_map(|port| Some((port, port.file()?))) {
            if port.is_taken() { leftovers.borrow(file) } else { leftovers.add(file) }
        }
        let mut control = control_socket::bind(settings, &logs.error, &mut handed)?;
        if let (Some(control), None) = (&mut control, old) {
            // What there is to adopt is systemd's, and nobody else listens on it.
            control.take_over().map_err(|e| format!("the control socket cannot be used: {e}"))?;
        }
        if let Some(pidfile) = &settings.process.pidfile {
            if leftovers::makes_folders(pidfile, &settings.dir)
                && let Some(folder) = pidfile.parent()
            {
                // Where that fails the file's own error names it.
                let _ = std::fs::create_dir_all(folder);
            }
            leftovers.write_pidfile(pidfile, old)?;
        }
        let no_release = |e: io::Error| format!("the control socket cannot be used: {e}");
        let release = control.as_ref().map(Release::of).transpose().map_err(no_release)?;
        let quiet = settings.process.quiet;
        let control_files = files_of(control.as_ref());
        Ok(Sockets { ports, control, release, quiet, control_files, leftovers, unclaimed: handed })
    }

    /// All files that must not outlive the server.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        // The control server removes its own.
        self.leftovers.files().into_iter().chain(self.control_files.iter().cloned()).collect()
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

    /// An old program hands over: its files are ours from now on, and its control socket is served.
    ///
    /// # Errors
    /// The text names the file.
    pub(super) fn take_over(&mut self, observer: Observer) -> Result<(), String> {
        self.leftovers.take_over()?;
        if let Some(control) = &mut self.control {
            control.take_over().map_err(|e| format!("the control socket cannot be taken over: {e}"))?;
        }
        self.control_files = files_of(self.control.as_ref());
        self.serve_control(observer);
        // Addresses that are not wanted any more.
        self.unclaimed = Handed::default();
        Ok(())
    }

    /// What of the control server is handed over to a new program.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(super) fn offer(&self) -> io::Result<Offer> {
        let Some(release) = &self.release else { return Ok(Offer::default()) };
        let sockets = control_socket::offered(release)?;
        Ok(Offer { sockets, token: release.token().map(str::to_owned), ..Offer::default() })
    }

    /// A new program has taken over, and has these files.
    pub(super) async fn handed_over(&mut self, files: Vec<PathBuf>) {
        self.leftovers.forget(&files);
        if let Some(release) = &mut self.release {
            release.taken_over(files).await;
        }
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

fn files_of(control: Option<&control::Server>) -> Vec<PathBuf> {
    control.into_iter().flat_map(control::Server::files).map(Path::to_owned).collect()
}
