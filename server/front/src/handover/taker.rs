//! The new program's side: receives the sockets, and talks to the old program.
//!
//! Contract:
//! 1. The new program uses no socket before the old one says `go` or exits. If it fails earlier, nothing has changed.
//! 2. If the old program dies, the new one continues: it has the sockets and serves as soon as it can.

use super::channel::{Channel, Packet, on_standard_input, receive_within, send};
use super::message::{Message, SocketKind, VERSION};
use control::orders::Interruptions;
use socket2::Socket;
use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time-out for each of the first messages.
const FIRST_WORDS: Duration = Duration::from_secs(10);
/// The most bytes of the file with the interruptions: a page, escaped as JSON, and the changes of settings.
const LARGEST_FILE: u64 = 64 << 20;
/// The largest number of accepted sockets.
const MOST_SOCKETS: usize = 8192;
/// Time-out for the old program to tell the service manager.
const CONFIRMED: Duration = Duration::from_secs(10);

/// The received sockets that no listener has claimed yet.
#[derive(Debug, Default)]
pub(crate) struct Handed {
    places: Vec<(SocketKind, Vec<OwnedFd>)>,
    token: Option<String>,
    /// Ports of claimed systemd sockets that accept both IPv4 and IPv6.
    both: Vec<u16>,
}

#[derive(Debug)]
pub(crate) struct ReceivedSockets {
    pub(crate) sockets: Vec<Socket>,
    /// Whether systemd opened the sockets and owns their files.
    pub(crate) activated: bool,
}

#[derive(Debug)]
pub(crate) struct Predecessor {
    socket: OwnedFd,
    pid: i32,
    /// Failed and successful upgrades, counted by this program's predecessors.
    upgrades: (u64, u64),
    /// The requests that the old program's clients have made lately.
    recent: RefCell<Option<File>>,
    /// The interruptions in force, once the old program has said `go`.
    interruptions: RefCell<Interruptions>,
}

/// A part of the hub of live pages that the old program passes on.
pub(crate) enum Heirloom {
    /// The streams; `None` if they come from Redis.
    Streams(Option<File>),
    /// Records of clients, and their connections.
    Sockets(File, Vec<OwnedFd>),
    /// Nothing more follows.
    End,
}

/// Receives the sockets of the old program, if it started this one. Must be called before any thread starts:
/// it restores standard input.
///
/// # Errors
/// The text gives the reason. The old program has received it.
pub(crate) fn receive() -> Result<Option<(Handed, Predecessor)>, String> {
    let Some((socket, pid)) = on_standard_input() else { return Ok(None) };
    let mut predecessor = Predecessor::new(socket, pid);
    match predecessor.receive_all() {
        Ok(handed) => Ok(Some((handed, predecessor))),
        Err(why) => {
            predecessor.fail(&why);
            Err(why)
        }
    }
}

/// Reports to the old program, if there is one, that this program cannot take over.
pub fn decline(why: &str) {
    if let Some((socket, _)) = on_standard_input() {
        // An error is harmless: the old program also notices when this process exits.
        let _ = send(socket, &Message::Failed(why.to_owned()), &[]);
    }
}

impl Predecessor {
    fn new(socket: OwnedFd, pid: i32) -> Predecessor {
        Predecessor {
            socket,
            pid,
            upgrades: (0, 0),
            recent: RefCell::default(),
            interruptions: RefCell::default(),
        }
    }

    fn receive_all(&mut self) -> Result<Handed, String> {
        let socket = &self.socket;
        let next = || match receive_within(socket, FIRST_WORDS) {
            Ok(Some(packet)) => Ok(packet),
            Ok(None) => Err("the old program has ended before it had handed over its sockets".to_owned()),
            Err(error) => Err(format!("the old program does not hand over its sockets: {error}")),
        };
        let (Message::Hello { version, program, upgrades }, files) = next()? else {
            return Err("the old program begins with another message than hello".to_owned());
        };
        let mut files = files.into_iter();
        let null = || File::open("/dev/null").map(OwnedFd::from);
        files
            .next()
            .map_or_else(null, Ok)
            .and_then(|original| Ok(rustix::stdio::dup2_stdin(original)?))
            .map_err(|e| format!("standard input cannot be put back: {e}"))?;
        if version != VERSION {
            return Err(format!(
                "{program} hands over with version {version}, Firebrick {} with version {VERSION}: stop it and start this one",
                crate::VERSION
            ));
        }
        self.recent = RefCell::new(files.next().map(File::from));
        let mut handed = Handed::default();
        let mut count = 0;
        self.upgrades = upgrades;
        loop {
            match next()? {
                (Message::Sockets(place), sockets) => {
                    count += sockets.len();
                    if count > MOST_SOCKETS {
                        return Err(format!("the old program hands over more than {MOST_SOCKETS} sockets"));
                    }
                    handed.add(place, sockets)?;
                }
                (Message::Token(token), _) => handed.token = Some(token),
                (Message::End, _) => return Ok(handed),
                (other, _) => return Err(format!("the old program sent {other:?} among its sockets")),
            }
        }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns the failed and successful upgrades before this one.
    pub(crate) fn upgrades(&self) -> (u64, u64) {
        self.upgrades
    }

    /// Takes the file with recent requests, if there is one.
    pub(crate) fn recent(&self) -> Option<File> {
        self.recent.take()
    }

    /// Announces how long this program needs to become ready.
    pub(crate) fn within(&self, time: Duration) {
        self.say(&Message::Within(time));
    }

    pub(crate) fn step(&self, text: &str) {
        self.say(&Message::Step(text.to_owned()));
    }

    /// Reports that this program cannot take over.
    pub(crate) fn fail(&self, why: &str) {
        self.say(&Message::Failed(why.to_owned()));
    }

    /// Never blocks: a stuck predecessor is ignored, and a dead one shows up in the next receive.
    fn say(&self, message: &Message) {
        let _ = send(&self.socket, message, &[]);
    }

    /// Reports that this program is ready, and waits for `go`. Returns false if the old program has exited.
    ///
    /// # Errors
    /// The old program sent another message.
    pub(crate) async fn ready(&self) -> Result<bool, String> {
        self.say(&Message::Ready);
        loop {
            match self.next().await? {
                Some((Message::Interruptions, fds)) => {
                    let file = fds
                        .into_iter()
                        .next()
                        .ok_or("the old program sent interruptions without their file")?;
                    let read = read_interruptions(File::from(file));
                    self.interruptions.replace(read.map_err(|why| {
                        format!("the interruptions of the old program cannot be read: {why}")
                    })?);
                }
                Some((Message::Go, _)) => return Ok(true),
                None => return Ok(false),
                Some((other, _)) => return Err(format!("the old program sent {other:?} where go belongs")),
            }
        }
    }

    /// Returns the interruptions that were in force when the old program said `go`.
    pub(crate) fn interruptions(&self) -> Interruptions {
        self.interruptions.borrow().clone()
    }

    /// Reports the state of a pause to the old program: it continues for this time, or ends if it is zero.
    pub(crate) fn paused(&self, time: Duration) {
        self.say(&Message::Paused(time));
    }

    /// Reports that this program serves and owns these files, then waits for the confirmation that the
    /// service manager knows this program.
    pub(crate) async fn serving(&self, files: Vec<PathBuf>) {
        self.say(&Message::Serving(files));
        // Any other outcome is ignored: this program serves already.
        let _ = tokio::time::timeout(CONFIRMED, self.next()).await;
    }

    /// Waits until the old program has exited. `kept` gets the file with its kept responses, `invalidated` the keys for which its requests make
    /// kept responses invalid; an empty one stands for all. `hub` gets the parts of the hub of live pages.
    pub(crate) async fn gone(
        &self,
        mut kept: impl FnMut(File),
        invalidated: impl Fn(&[u8]),
        hub: impl Fn(Heirloom),
    ) {
        while let Ok(Some((message, files))) = self.next().await {
            match message {
                Message::Kept => files.into_iter().map(File::from).for_each(&mut kept),
                Message::Invalidated(key) => invalidated(&key),
                Message::HubStreams => hub(Heirloom::Streams(files.into_iter().next().map(File::from))),
                Message::HubSockets => {
                    let mut files = files.into_iter();
                    if let Some(records) = files.next() {
                        hub(Heirloom::Sockets(File::from(records), files.collect()));
                    }
                }
                Message::HubEnd => hub(Heirloom::End),
                _ => {}
            }
        }
        // Also when it has died, or passes nothing on.
        hub(Heirloom::End);
    }

    async fn next(&self) -> Result<Option<Packet>, String> {
        let receive = async {
            let channel = Channel::new(self.socket.try_clone()?)?;
            channel.receive().await
        };
        receive.await.map_err(|e| format!("the old program: {e}"))
    }
}

impl Handed {
    /// # Errors
    /// A descriptor is not a socket at that place.
    pub(crate) fn add(&mut self, place: SocketKind, sockets: Vec<OwnedFd>) -> Result<(), String> {
        if let Some(wrong) = sockets.iter().find(|socket| !is_at(socket, &place)) {
            return Err(format!("the old program hands over {wrong:?} as {place:?}, which it is not"));
        }
        match self.places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, known)) => known.extend(sockets),
            None => self.places.push((place, sockets)),
        }
        Ok(())
    }

    fn take(&mut self, fits: impl Fn(&SocketKind) -> bool) -> Option<(SocketKind, Vec<OwnedFd>)> {
        self.take_with(|place, _| fits(place))
    }

    fn take_with(
        &mut self,
        fits: impl Fn(&SocketKind, &[OwnedFd]) -> bool,
    ) -> Option<(SocketKind, Vec<OwnedFd>)> {
        let is_it = |(place, sockets): &(SocketKind, Vec<OwnedFd>)| {
            !sockets.is_empty() && fits(place, sockets.as_slice())
        };
        let found = self.places.iter().position(is_it)?;
        Some(self.places.remove(found))
    }

    /// Returns the unclaimed places that systemd opened, with one socket of each.
    pub(crate) fn activated(&self) -> impl Iterator<Item = (&SocketKind, &OwnedFd)> {
        let is_activated = |place: &SocketKind| match place {
            SocketKind::Tcp { activated, .. }
            | SocketKind::Unix { activated, .. }
            | SocketKind::ControlUnix { activated, .. }
            | SocketKind::ControlTcp { activated, .. } => *activated,
            SocketKind::Udp { .. } => false,
        };
        let places = self.places.iter().filter(move |(place, _)| is_activated(place));
        places.filter_map(|(place, sockets)| Some((place, sockets.first()?)))
    }

    /// Claims the sockets of a TCP address. Port 0 matches a port that the system chose.
    pub(crate) fn tcp(&mut self, wanted: SocketAddr) -> Option<(SocketAddr, ReceivedSockets)> {
        let fits = |place: &SocketKind, sockets: &[OwnedFd]| match place {
            SocketKind::Tcp { address, chosen, activated, .. } => {
                is_wanted(*address, *chosen, wanted)
                    || *activated && is_covered(wanted, *address) && sockets.iter().any(takes_both)
            }
            _ => false,
        };
        let (place, sockets) = self.take_with(fits)?;
        let SocketKind::Tcp { address, activated, .. } = place else { return None };
        if activated && sockets.iter().any(takes_both) {
            self.both.push(address.port());
        }
        Some((
            address,
            ReceivedSockets { sockets: sockets.into_iter().map(Socket::from).collect(), activated },
        ))
    }

    /// Whether a systemd socket claimed for another address serves this one as well.
    pub(crate) fn covers(&self, wanted: SocketAddr) -> bool {
        wanted.ip().is_unspecified() && self.both.contains(&wanted.port())
    }

    /// Whether there are sockets of exactly this address, and whether systemd opened them. For `[::]`, only
    /// sockets without IPv4 count.
    pub(crate) fn of_one_family(&self, wanted: SocketAddr) -> Option<bool> {
        self.places.iter().find_map(|(place, sockets)| match place {
            SocketKind::Tcp { address, chosen, activated, .. }
                if is_wanted(*address, *chosen, wanted) && !sockets.iter().any(takes_both) =>
            {
                Some(*activated)
            }
            _ => None,
        })
    }

    /// Claims the socket of a path.
    pub(crate) fn unix(&mut self, wanted: &Path) -> Option<ReceivedSockets> {
        let resolved = resolve(wanted);
        let (place, sockets) =
            self.take(|place| matches!(place, SocketKind::Unix { path, .. } if resolve(path) == resolved))?;
        let activated = matches!(place, SocketKind::Unix { activated: true, .. });
        Some(ReceivedSockets { sockets: sockets.into_iter().map(Socket::from).collect(), activated })
    }

    /// Claims the sockets of a UDP address. The old program receives on them until it exits.
    pub(crate) fn udp(&mut self, wanted: SocketAddr) -> Option<Vec<Socket>> {
        let (_, sockets) =
            self.take(|place| matches!(place, SocketKind::Udp { address } if *address == wanted))?;
        Some(sockets.into_iter().map(Socket::from).collect())
    }

    /// Claims the control server's Unix socket. The flag says whether systemd opened it.
    pub(crate) fn control_unix(&mut self, wanted: &Path) -> Option<(OwnedFd, bool)> {
        let fits =
            |place: &SocketKind| matches!(place, SocketKind::ControlUnix { path, .. } if path == wanted);
        let (place, mut sockets) = self.take(fits)?;
        Some((sockets.pop()?, matches!(place, SocketKind::ControlUnix { activated: true, .. })))
    }

    /// Claims the control server's TCP socket. The flag says whether systemd opened it.
    pub(crate) fn control_tcp(&mut self, wanted: SocketAddr) -> Option<(OwnedFd, bool)> {
        let fits = |place: &SocketKind| matches!(place, SocketKind::ControlTcp { address, chosen, .. } if is_wanted(*address, *chosen, wanted));
        let (place, mut sockets) = self.take(fits)?;
        Some((sockets.pop()?, matches!(place, SocketKind::ControlTcp { activated: true, .. })))
    }

    /// Returns the token that the old program's control server generated.
    pub(crate) fn token(&self) -> Option<String> {
        self.token.clone()
    }
}

/// Reads the interruptions from their file.
fn read_interruptions(file: File) -> Result<Interruptions, String> {
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Interruptions::read(&bytes)
}

fn is_wanted(address: SocketAddr, chosen: bool, wanted: SocketAddr) -> bool {
    address == wanted || chosen && wanted.port() == 0 && address.ip() == wanted.ip()
}

/// Whether a socket at `[::]` that accepts IPv4 serves this address.
fn is_covered(wanted: SocketAddr, address: SocketAddr) -> bool {
    wanted.is_ipv4()
        && wanted.ip().is_unspecified()
        && address.is_ipv6()
        && address.ip().is_unspecified()
        && address.port() == wanted.port()
}

/// Whether an IPv6 socket accepts IPv4 as well.
pub(crate) fn takes_both(socket: &impl AsFd) -> bool {
    let socket = socket2::SockRef::from(socket);
    let is_ipv6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
    is_ipv6 && !socket.only_v6().unwrap_or(true)
}

/// Resolves symbolic links; returns the path as it is if that fails.
fn resolve(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Whether a descriptor is a socket of the announced place.
fn is_at(socket: impl AsFd, place: &SocketKind) -> bool {
    let socket = socket2::SockRef::from(&socket);
    let Ok(local) = socket.local_addr() else { return false };
    let stream = socket.r#type().is_ok_and(|kind| kind == socket2::Type::STREAM);
    match place {
        SocketKind::Tcp { address, .. } | SocketKind::ControlTcp { address, .. } => {
            stream && local.as_socket() == Some(*address)
        }
        SocketKind::Udp { address } => !stream && local.as_socket() == Some(*address),
        SocketKind::Unix { .. } | SocketKind::ControlUnix { .. } => stream && local.is_unix(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn sockets_are_claimed_by_their_address() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let place = SocketKind::Tcp { address, chosen: true, activated: false, encrypted: false };
        let mut handed = Handed::default();
        handed.add(place.clone(), vec![listener.try_clone().unwrap().into()]).unwrap();
        handed.add(place.clone(), vec![listener.try_clone().unwrap().into()]).unwrap();
        let other = SocketAddr::new(address.ip(), address.port().wrapping_add(1));
        assert!(handed.tcp(other).is_none());
        assert!(handed.udp(address).is_none() && handed.control_tcp(address).is_none());
        let (found, taken) = handed.tcp(SocketAddr::new(address.ip(), 0)).unwrap();
        assert_eq!((found, taken.sockets.len(), taken.activated), (address, 2, false));
        assert!(handed.tcp(address).is_none(), "claimed");
        let wrong = SocketKind::Tcp { address: other, chosen: true, activated: false, encrypted: false };
        let error = handed.add(wrong, vec![listener.into()]).unwrap_err();
        assert!(error.contains("which it is not"), "{error}");
    }

    #[test]
    fn a_port_of_the_settings_is_not_any_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut handed = Handed::default();
        let place = SocketKind::Tcp { address, chosen: false, activated: true, encrypted: false };
        handed.add(place, vec![listener.into()]).unwrap();
        assert!(handed.tcp(SocketAddr::new(address.ip(), 0)).is_none());
        assert!(handed.tcp(address).unwrap().1.activated);
    }

    #[tokio::test]
    async fn an_old_program_of_another_version_is_told() {
        let (theirs, ours) = super::super::packets::pair().unwrap();
        let mut predecessor = Predecessor::new(ours, 1);
        let hello = Message::Hello { version: 2, program: "Firebrick 9".to_owned(), upgrades: (0, 0) };
        let stdin = std::io::stdin();
        send(&theirs, &hello, &[stdin.as_fd()]).unwrap();
        let why = predecessor.receive_all().unwrap_err();
        assert!(why.starts_with("Firebrick 9 hands over with version 2"), "{why}");
        drop(theirs);
        let lost = predecessor.receive_all().unwrap_err();
        assert!(lost.contains("has ended"), "{lost}");
        assert_eq!(predecessor.ready().await, Ok(false), "the old program has died");
        predecessor.gone(drop, |_| {}, drop).await;
    }
}
