//! The client that sends an order over the control socket, for people.

use std::fmt;
use std::net::IpAddr;

/// The file with the names of users.
const PASSWD: &str = "/etc/passwd";

/// The client of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlCaller {
    /// The user at the other end of the Unix socket (`SO_PEERCRED`), if known.
    User(Option<u32>),
    /// The address of a client that has sent the token.
    Address(IpAddr),
}

impl fmt::Display for ControlCaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlCaller::User(None) => write!(f, "an unknown user"),
            // Users of a directory service are not in the file.
            ControlCaller::User(Some(uid)) => {
                match std::fs::read_to_string(PASSWD).ok().and_then(|all| name(&all, *uid)) {
                    Some(name) => write!(f, "{name}"),
                    None => write!(f, "uid {uid}"),
                }
            }
            ControlCaller::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Returns the name of a user in the lines of `passwd(5)`.
fn name(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        let is_plain = !name.is_empty() && !name.contains(char::is_control);
        (is_plain && number.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_names_or_numbers() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n\nbroken\n:x:7::\namy:x:1000:1000::/home/amy:/bin/sh\n";
        assert_eq!(name(passwd, 1000).as_deref(), Some("amy"));
        assert_eq!((name(passwd, 7), name(passwd, 9)), (None, None));
        assert_eq!(ControlCaller::User(Some(4_000_000_001)).to_string(), "uid 4000000001");
        assert_eq!(ControlCaller::User(None).to_string(), "an unknown user");
        assert_eq!(ControlCaller::Address([192, 0, 2, 7].into()).to_string(), "192.0.2.7");
    }
}
