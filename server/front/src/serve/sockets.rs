//! Binds everything before the app is loaded, so that a wrong address shows at once: ports, the control
//! socket, the pid file.

use super::logs::Logs;
use super::observer::Observer;
use crate::control_socket;
use crate::handover::{Handed, Offer};
use crate::leftovers::{self, Leftovers, OwnFile};
use crate::listen::{self, Address, Bound};
use crate::systemd::activation::Activated;
use control::SocketHandover;
use settings::Settings;
use std::io;
use std::path::{Path, PathBuf};

/// Bound sockets. Dropping this removes their files.
pub(super) struct Sockets {
    ports: Vec<Bound>,
    control: Option<control::Server>,
    /// Duplicates of the control server's sockets, for a handover.
    release: Option<SocketHandover>,
    /// Whether a generated token is printed separately because there is no banner.
    quiet: bool,
    control_files: Vec<PathBuf>,
    leftovers: Leftovers,
    /// Sockets from an old program that no address claims.
    unclaimed: Handed,
}

/// Sockets that existed before this program bound any.
#[derive(Debug, Default)]
pub(super) struct InheritedSockets {
    /// From systemd.
    pub(super) activated: Activated,
    /// From an old program.
    pub(super) handed: Handed,
    /// The process id of the old program.
    pub(super) old: Option<i32>,
}

impl Sockets {
    /// Binds all sockets except those from systemd or an old program, and writes the pid file.
    ///
    /// # Errors
    /// The text names the address or file and a remedy.
    pub(super) fn bind(settings: &Settings, given: InheritedSockets, logs: &Logs) -> Result<Sockets, String> {
        let InheritedSockets { mut activated, mut handed, old } = given;
        let mut leftovers = Leftovers::default();
        let threads = settings.front_threads as usize;
        let mut ports = listen::bind_all(&settings.binds, threads, &mut activated, &mut handed)?;
        activated.finish()?;
        // Browsers do not use HTTP/3 with certificates of a development authority.
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
            // Only a systemd socket can be adopted here, and no other program listens on it.
            control.take_over().map_err(|e| format!("the control socket cannot be used: {e}"))?;
        }
        if let Some(pidfile) = &settings.process.pidfile {
            make_folder(pidfile, settings);
            leftovers.write_pidfile(pidfile, old)?;
        }
        let no_release = |e: io::Error| format!("the control socket cannot be used: {e}");
        let release = control.as_ref().map(control::Server::release).transpose().map_err(no_release)?;
        if let Some(path) = &settings.process.state_path {
            make_folder(path, settings);
            let text = control_socket::puma_state(settings, release.as_ref());
            let mode = Some(settings.process.state_permission);
            leftovers.write(OwnFile { name: "state file", path: path.clone(), text, mode }, old.is_some())?;
        }
        let quiet = settings.process.quiet;
        let control_files = files_of(control.as_ref());
        Ok(Sockets { ports, control, release, quiet, control_files, leftovers, unclaimed: handed })
    }

    /// Returns all files that must not outlive the server.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        // The control server removes its own files.
        self.leftovers.files().into_iter().chain(self.control_files.iter().cloned()).collect()
    }

    /// Returns the banner's lines about the control server.
    pub(super) fn control_lines(&self) -> Vec<String> {
        self.control.as_ref().map(control_socket::lines).unwrap_or_default()
    }

    pub(super) fn serve_control(&mut self, observer: Observer) {
        let Some(control) = self.control.take() else { return };
        if self.quiet {
            control_socket::print_token(&control);
        }
        net::task::spawn_local(control.run(observer));
    }

    /// Takes over from an old program: owns its files from now on, and serves its control socket.
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
        // Closes the sockets of addresses that are no longer configured.
        self.unclaimed = Handed::default();
        Ok(())
    }

    /// Returns the control server's sockets and token for a handover.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(super) fn offer(&self) -> io::Result<Offer> {
        let Some(release) = &self.release else { return Ok(Offer::default()) };
        let sockets = control_socket::offered(release)?;
        Ok(Offer { sockets, token: release.token().map(str::to_owned), ..Offer::default() })
    }

    /// Records that a new program has taken over and owns these files.
    pub(super) async fn handed_over(&mut self, files: Vec<PathBuf>) {
        self.leftovers.forget(&files);
        if let Some(release) = &mut self.release {
            release.taken_over(files).await;
        }
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = &Address> {
        self.ports.iter().map(Bound::address)
    }

    /// Takes the ports, to open them when the app can respond.
    pub(super) fn ports(&mut self) -> Vec<Bound> {
        std::mem::take(&mut self.ports)
    }
}

/// Creates the folder of a file where that is right. On failure, writing the file reports the error.
fn make_folder(file: &Path, settings: &Settings) {
    if leftovers::makes_folders(file, &settings.dir)
        && let Some(folder) = file.parent()
    {
        let _ = std::fs::create_dir_all(folder);
    }
}

fn files_of(control: Option<&control::Server>) -> Vec<PathBuf> {
    control.into_iter().flat_map(control::Server::files).map(Path::to_owned).collect()
}
