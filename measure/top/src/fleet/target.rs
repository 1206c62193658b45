//! The servers of a fleet: typed addresses and those of a file. A name stands for all of its addresses.
//!
//! Contract: no text causes a panic. A mistake names the word, or the file and the line, and the expected
//! form. A list that has been read once is kept while the file cannot be read again.

use control::ControlAddress;
use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One word of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A socket of this machine.
    Unix(PathBuf),
    /// A host and a port. A name stands for all of its addresses.
    Tcp { host: String, port: u16 },
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let wrong = || {
            format!(
                "{text:?}: expected HOST:PORT, tcp://HOST:PORT or unix:PATH of a control server, such as 10.0.0.7:9293"
            )
        };
        let bare = !text.contains("://") && !text.starts_with(['/', '.']) && !text.starts_with("unix:");
        let whole = if bare { format!("tcp://{text}") } else { text.to_owned() };
        match whole.parse::<ControlAddress>().map_err(|_| wrong())? {
            ControlAddress::Unix(path) => Ok(Target::Unix(path)),
            ControlAddress::Tcp { port: 0, .. } => Err(wrong()),
            ControlAddress::Tcp { host, port } => Ok(Target::Tcp { host, port }),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A path after `unix:` may begin with two slashes, which would not be read as part of it.
            Target::Unix(path) if path.to_string_lossy().starts_with("//") => {
                write!(f, "unix://{}", path.display())
            }
            Target::Unix(path) => write!(f, "unix:{}", path.display()),
            Target::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Target::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Resolves names.
pub(crate) trait Resolver {
    /// Returns the addresses of a host.
    ///
    /// # Errors
    /// The name is unknown, or no name server answered.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

pub(crate) struct System;

impl Resolver for System {
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok((host, port).to_socket_addrs()?.collect())
    }
}

impl Target {
    /// Returns the servers for the word.
    ///
    /// # Errors
    /// The name has no address; the text names it.
    pub(crate) fn servers(&self, resolver: &impl Resolver) -> Result<Vec<ControlAddress>, String> {
        let (host, port) = match self {
            Target::Unix(path) => return Ok(vec![ControlAddress::Unix(path.clone())]),
            Target::Tcp { host, port } => (host, port),
        };
        let found =
            resolver.resolve(host, *port).map_err(|why| format!("{host} cannot be resolved: {why}"))?;
        let found: BTreeSet<SocketAddr> = found.into_iter().collect();
        if found.is_empty() {
            return Err(format!("{host} has no address"));
        }
        // A single address keeps its name, by which the server may know itself.
        if found.len() == 1 {
            return Ok(vec![ControlAddress::Tcp { host: host.clone(), port: *port }]);
        }
        let by_address =
            |address: SocketAddr| ControlAddress::Tcp { host: address.ip().to_string(), port: *port };
        Ok(found.into_iter().map(by_address).collect())
    }
}

/// The typed words and a file.
#[derive(Clone, Debug)]
pub(crate) struct List {
    typed: Vec<Target>,
    file: Option<PathBuf>,
    from_file: Vec<Target>,
}

impl List {
    /// Reads the words and the file.
    ///
    /// # Errors
    /// A word is not an address, the file cannot be read, or the list is empty.
    pub(crate) fn new(words: &[String], file: Option<&Path>) -> Result<List, String> {
        let typed: Result<Vec<Target>, String> =
            words.iter().map(|word| word.parse().map_err(|why| format!("--fleet {why}"))).collect();
        let from_file = file.map(read).transpose()?.unwrap_or_default();
        let list = List { typed: typed?, file: file.map(Path::to_owned), from_file };
        if list.targets().next().is_none() {
            let file = list.file.as_ref().map(|file| file.display().to_string()).unwrap_or_default();
            return Err(format!("{file} names no server: write one HOST:PORT on a line"));
        }
        Ok(list)
    }

    /// Reads the file again. Returns the message about a mistake; then the old list stays.
    pub(crate) fn reread(&mut self) -> Option<String> {
        match read(self.file.as_ref()?) {
            Ok(targets) => {
                self.from_file = targets;
                None
            }
            Err(why) => Some(why),
        }
    }

    pub(crate) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.typed.iter().chain(&self.from_file)
    }
}

fn read(file: &Path) -> Result<Vec<Target>, String> {
    let text = std::fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
    parse(&text).map_err(|(line, why)| format!("{}:{line}: {why}", file.display()))
}

/// Parses one address per line; `#` begins a comment. A mistake has its line.
fn parse(text: &str) -> Result<Vec<Target>, (usize, String)> {
    let mut targets = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let word = line.split('#').next().unwrap_or_default().trim();
        if !word.is_empty() {
            targets.push(word.parse().map_err(|why| (number, why))?);
        }
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::targets;
    use proptest::prelude::*;

    struct Fixed(Vec<SocketAddr>);

    impl Resolver for Fixed {
        fn resolve(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn addresses_in_all_spellings() {
        let read = |text: &str| text.parse::<Target>().map(|target| target.to_string());
        assert_eq!(read("10.0.0.7:9293").as_deref(), Ok("10.0.0.7:9293"));
        assert_eq!(read("tcp://web-control.shop.svc:9293").as_deref(), Ok("web-control.shop.svc:9293"));
        assert_eq!(read("[::1]:9293").as_deref(), Ok("[::1]:9293"));
        assert_eq!(read("unix:/run/c.sock").as_deref(), Ok("unix:/run/c.sock"));
        assert_eq!(read("/run/c.sock").as_deref(), Ok("unix:/run/c.sock"));
        assert_eq!(read("//").as_deref(), Ok("unix:////"));
        for wrong in ["", "host", "host:0", "host:port", "https://host:1", "tcp://host", ":9293x"] {
            assert!(read(wrong).unwrap_err().contains("expected HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_all_of_its_addresses() {
        let of = |addresses: &[&str]| {
            let found = Fixed(addresses.iter().map(|text| text.parse().unwrap()).collect());
            let servers = targets(&["web:9293"])[0].servers(&found);
            servers.map(|all| all.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(
            of(&["10.0.0.8:9293", "10.0.0.7:9293", "10.0.0.7:9293"]),
            Ok(vec!["tcp://10.0.0.7:9293".to_owned(), "tcp://10.0.0.8:9293".to_owned()])
        );
        assert_eq!(
            of(&["10.0.0.7:9293"]),
            Ok(vec!["tcp://web:9293".to_owned()]),
            "it may know itself by that name"
        );
        assert_eq!(of(&[]), Err("web has no address".to_owned()));
    }

    #[test]
    fn a_file_has_lines_and_mistakes_have_places() {
        assert_eq!(parse("# the shop\nweb:9293 # all\n\n  10.0.0.7:1\n").map(|all| all.len()), Ok(2));
        let (line, why) = parse("web:9293\nweb\n").unwrap_err();
        assert_eq!((line, why.starts_with("\"web\": expected HOST:PORT")), (2, true));
        let missing = List::new(&[], Some(Path::new("/nowhere/list"))).unwrap_err();
        assert!(missing.starts_with("/nowhere/list: "), "{missing}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,40}(\n\\PC{0,40}){0,3}") {
            for target in parse(&text).unwrap_or_default() {
                prop_assert_eq!(target.to_string().parse::<Target>(), Ok(target));
            }
        }
    }
}
