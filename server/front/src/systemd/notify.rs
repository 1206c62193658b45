//! Notifies systemd (`sd_notify(3)`): sends datagrams to the socket that `NOTIFY_SOCKET` names.
//!
//! Contract:
//! 1. READY when the ports are open; RELOADING before a reload and READY after it; STOPPING when a signal
//!    stops the server.
//! 2. While the app loads and while requests are finished, systemd's time-out is extended, so that the
//!    server's own time-outs apply.
//! 3. WATCHDOG at half of systemd's watchdog interval, and only if every front thread has answered since the last one.
//! 4. In an upgrade only one program notifies: the old one until it has sent `MAINPID` of the new one, then
//!    the new one.
//! 5. The server never waits for systemd. An unusable socket is logged once.

use crate::error_log::ErrorLog;
use crate::vitals::Vitals;
use net::task::spawn_local;
use rustix::time::{ClockId, clock_gettime};
use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use sys::socket::abstract_address;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

/// While the app loads: how often systemd's time-out is extended, and by how much.
const EXTEND_EVERY: Duration = Duration::from_secs(5);
const EXTEND_BY: Duration = Duration::from_secs(15);
/// Extra time for the shutdown, beyond the server's own time-outs.
const END_SPARE: Duration = Duration::from_secs(10);

/// Notifies systemd. Does nothing without it.
pub(crate) struct Notifier {
    to: Option<(UnixDatagram, SocketAddr)>,
    /// Half of systemd's watchdog interval.
    watchdog: Option<Duration>,
    booting: RefCell<Option<AbortHandle>>,
    status: RefCell<String>,
    log: Arc<ErrorLog>,
    complained: Cell<bool>,
    /// Whether systemd knows that the server is stopping.
    ending: Cell<bool>,
    /// Whether another program notifies for the service.
    silent: Cell<bool>,
}

impl Notifier {
    /// Reads the environment. An invalid address is logged, and nothing is sent. `silent`: sends nothing
    /// until [`Notifier::ready`], for a program that takes over from another one.
    pub(crate) fn new(log: &Arc<ErrorLog>, silent: bool) -> Rc<Notifier> {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let to = var("NOTIFY_SOCKET").and_then(|named| match socket_to(&named) {
            Ok(to) => Some(to),
            Err(why) => {
                log.write(&format!("systemd is not notified: NOTIFY_SOCKET is {}: {why}", named.display()));
                None
            }
        });
        let watchdog = watchdog_of(var("WATCHDOG_USEC"), var("WATCHDOG_PID"), std::process::id());
        Rc::new(Notifier {
            watchdog: watchdog.filter(|_| to.is_some()),
            to,
            booting: RefCell::default(),
            status: RefCell::default(),
            log: log.clone(),
            complained: Cell::new(false),
            ending: Cell::new(false),
            silent: Cell::new(silent),
        })
    }

    /// Extends systemd's time-out until [`Notifier::ready`], while the app is being loaded.
    pub(crate) fn booting(self: &Rc<Notifier>) {
        if self.to.is_none() {
            return;
        }
        let own = self.clone();
        let extend = spawn_local(async move {
            let mut clock = tokio::time::interval(EXTEND_EVERY);
            loop {
                clock.tick().await;
                own.send(&format!(
                    "STATUS=The app is loading\nEXTEND_TIMEOUT_USEC={}\n",
                    EXTEND_BY.as_micros()
                ));
            }
        });
        self.booting.replace(Some(extend.abort_handle()));
    }

    /// Reports that the ports are open. `status` is one line for people.
    pub(crate) fn ready(&self, status: &str) {
        if let Some(extending) = self.booting.take() {
            extending.abort();
        }
        self.status.replace(status.to_owned());
        self.silent.set(false);
        self.send(&format!("READY=1\nMAINPID={}\nSTATUS={status}\n", std::process::id()));
    }

    /// Reports that a reload begins. [`Notifier::reloaded`] must follow, whatever the outcome.
    pub(crate) fn reloading(&self, status: &str) {
        let now = clock_gettime(ClockId::Monotonic);
        let usec = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        if self.ending.get() {
            return;
        }
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={usec}\nSTATUS={status}\n"));
    }

    /// Reports that the reload has succeeded or failed.
    pub(crate) fn reloaded(&self) {
        if self.ending.get() {
            // The shutdown has ended the reload, so the server does not become ready again.
            return;
        }
        self.send(&format!("READY=1\nSTATUS={}\n", self.status.borrow()));
    }

    /// Names another process as the service's main process. This one sends nothing any more.
    pub(crate) fn handed_over(&self, pid: u32) {
        self.send(&format!("MAINPID={pid}\nSTATUS=Handing over to process {pid}\n"));
        self.silent.set(true);
    }

    /// Reports that the server stops, within about `within`.
    pub(crate) fn stopping(&self, status: &str, within: Duration) {
        self.ending.set(true);
        let usec = (within + END_SPARE).as_micros();
        self.send(&format!("STOPPING=1\nSTATUS={status}\nEXTEND_TIMEOUT_USEC={usec}\n"));
    }

    /// Sends WATCHDOG from now on, as long as the front threads answer.
    pub(crate) fn keep_alive(self: &Rc<Notifier>, vitals: &Arc<Vitals>) {
        let Some(half) = self.watchdog else { return };
        let (own, vitals) = (self.clone(), vitals.clone());
        spawn_local(async move {
            let mut clock = tokio::time::interval(half);
            clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                clock.tick().await;
                vitals.all_answer().await;
                own.send("WATCHDOG=1\n");
            }
        });
    }

    fn send(&self, text: &str) {
        let Some((socket, address)) = self.to.as_ref().filter(|_| !self.silent.get()) else { return };
        if let Err(error) = socket.send_to_addr(text.as_bytes(), address)
            && !self.complained.replace(true)
        {
            self.log.write(&format!("warning: systemd cannot be notified: {error}"));
        }
    }
}

/// Returns a socket, and the address in `NOTIFY_SOCKET`: a path, or `@` and an abstract name.
fn socket_to(named: &OsStr) -> Result<(UnixDatagram, SocketAddr), String> {
    let address = match named.as_bytes() {
        [b'@', name @ ..] => abstract_address(name),
        [b'/', ..] => SocketAddr::from_pathname(named),
        _ => return Err("expected a path or, for an abstract socket, @NAME".to_owned()),
    };
    let open = || -> io::Result<_> {
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok((socket, address?))
    };
    open().map_err(|error| error.to_string())
}

/// Returns half of the watchdog interval, if it applies to this process.
fn watchdog_of(usec: Option<OsString>, pid: Option<OsString>, own: u32) -> Option<Duration> {
    let number = |text: OsString| text.to_str().and_then(|text| text.parse::<u64>().ok());
    let usec = usec.and_then(number).filter(|usec| *usec >= 2)?;
    let meant = pid.is_none_or(|pid| number(pid) == Some(own.into()));
    meant.then(|| Duration::from_micros(usec / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_for_the_process_that_it_names() {
        let text = |text: &str| Some(OsString::from(text));
        let half = Some(Duration::from_secs(15));
        assert_eq!(watchdog_of(text("30000000"), text("7"), 7), half);
        assert_eq!(watchdog_of(text("30000000"), None, 7), half);
        assert_eq!(watchdog_of(text("30000000"), text("8"), 7), None);
        for wrong in ["", "0", "1", "30s"] {
            assert_eq!(watchdog_of(text(wrong), None, 7), None, "{wrong}");
        }
        assert_eq!(watchdog_of(None, text("7"), 7), None);
    }

    #[test]
    fn addresses_are_paths_and_abstract_names() {
        let (_, address) = socket_to(OsStr::new("/run/systemd/notify")).unwrap();
        assert_eq!(address.as_pathname(), Some(std::path::Path::new("/run/systemd/notify")));
        match socket_to(OsStr::new("@/org/example")) {
            Ok((_, address)) => assert!(address.as_pathname().is_none() && !address.is_unnamed()),
            Err(why) => assert!(why.contains("no abstract sockets"), "{why}"),
        }
        assert!(socket_to(OsStr::new("vsock:2:1234")).unwrap_err().starts_with("expected a path"));
        assert!(socket_to(OsStr::new(&format!("/{}", "x".repeat(200)))).is_err());
    }
}
