//! The parts of a running server, and the operations of its start, end and upgrades that concern several of
//! them.

use super::interruptions::Interruptions;
use super::logs::Logs;
use super::observer::Observer;
use super::reload::Reloads;
use super::sockets::Sockets;
use super::threads::Threads;
use crate::banner::Banner;
use crate::boot::RunningWorkers;
use crate::handover::SocketKind;
use crate::hub::Publishing;
use crate::listen::{Address, LaterUdp, Listener};
use crate::release::Releases;
use crate::services::Services;
use crate::systemd::notify::Notifier;
use crate::tls::Encryption;
use crate::vitals::Vitals;
use stats::ServerState;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use workers::supervisor::Command;

pub(super) struct Server<'a> {
    pub(super) releases: &'a Releases,
    pub(super) logs: &'a Logs,
    pub(super) encryption: &'a Encryption,
    pub(super) vitals: &'a Arc<Vitals>,
    pub(super) systemd: Rc<Notifier>,
    pub(super) observer: Observer,
    pub(super) interruptions: Interruptions,
    pub(super) sockets: Sockets,
    pub(super) workers: RunningWorkers,
    pub(super) reloads: Reloads,
    /// The front threads; `None` once they have drained.
    pub(super) threads: Option<Threads>,
    /// The socket of the hub; `None` if it is off.
    pub(super) publishing: Option<Publishing>,
    pub(super) services: Services,
    pub(super) banner: Banner,
}

/// Ports that listen. Nothing accepts on them yet.
pub(super) type Ports = Vec<(Address, Vec<Listener>)>;

/// The sockets and addresses that upgrades pass on.
#[derive(Default)]
pub(super) struct Kept {
    /// Duplicates of all listening sockets.
    pub(super) copies: Vec<(SocketKind, Vec<OwnedFd>)>,
    /// UDP sockets that the old program still uses.
    pub(super) later: Vec<LaterUdp>,
}

impl Server<'_> {
    /// Makes the ports listen.
    ///
    /// # Errors
    /// The text names the address.
    pub(super) fn listen(&mut self) -> Result<(Ports, Kept), String> {
        let (mut ports, mut kept) = (Ports::new(), Kept::default());
        let keepalive = self.releases.settings().timeouts.tcp_keepalive;
        for bound in self.sockets.ports() {
            bound.prepare(keepalive);
            let address = bound.address().clone();
            let failed = |e| format!("cannot listen on {address}: {e}");
            kept.copies.extend(bound.copies().map_err(failed)?);
            let (listeners, later) = bound.listen().map_err(failed)?;
            kept.later.extend(later);
            ports.push((address, listeners));
        }
        Ok((ports, kept))
    }

    /// Hands the listeners to the threads.
    pub(super) fn accept(&self, ports: Ports) -> Vec<Address> {
        let mut addresses = Vec::new();
        for (address, listeners) in ports {
            if let Some(threads) = &self.threads {
                threads.listen(listeners);
            }
            addresses.push(address);
        }
        addresses
    }

    /// Announces that the ports are open, and starts the services. Returns the status line for the service manager.
    pub(super) fn opened(&mut self, addresses: &[Address]) -> String {
        self.vitals.enter(ServerState::Serving);
        self.observer.opened(addresses);
        let interrupted = self.interruptions.described();
        self.banner.print(&self.releases.in_force().sites, addresses, &interrupted);
        self.encryption.opened();
        self.services.start(&self.releases.settings());
        let places: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("Serving {}", places.join(", "))
    }

    /// Sends the supervisor an order.
    pub(super) async fn order(&self, command: Command) {
        // The send fails if the pool has ended.
        let _ = self.workers.commands.send(command).await;
    }
}
