//! Configures the server, the user and the time-outs: [`RedisConfig`].

use crate::tls::RedisTls;
use std::path::PathBuf;
use std::time::Duration;
use text::percent::decode;
use text::url::host_and_port;

/// Redis's default port.
pub const PORT: u16 = 6379;
/// The default of [`Config::max_reply`], in bytes.
const MAX_REPLY: usize = 32 << 20;

/// Everything that two users of a connection must agree on. Equal configurations can share one.
#[derive(Debug, Clone, PartialEq)]
pub struct RedisConfig {
    pub address: Address,
    /// `None` connects without TLS. Unix sockets ignore it.
    pub tls: Option<RedisTls>,
    /// The number of the database.
    pub db: u32,
    /// A user of Redis's ACL.
    pub username: Option<Vec<u8>>,
    /// The user's password, or the server's (`requirepass`).
    pub password: Option<Vec<u8>>,
    /// Until the connection is open and the server has accepted user and database.
    pub connect_timeout: Duration,
    /// Until the reply to a command is complete.
    pub command_timeout: Duration,
    /// The most bytes of a reply, and of the messages of a subscription that wait. A larger reply closes the connection.
    pub max_reply: usize,
    /// Switch to RESP3.
    pub resp3: bool,
}

/// The server's address.
#[derive(Debug, Clone, PartialEq)]
pub enum Address {
    /// Host name or IP address, and port.
    Tcp(String, u16),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Default for RedisConfig {
    /// Returns database 0 on 127.0.0.1:6379, with time-outs of five seconds, and replies of up to 32 MiB.
    fn default() -> RedisConfig {
        RedisConfig {
            address: Address::Tcp("127.0.0.1".to_owned(), PORT),
            tls: None,
            db: 0,
            username: None,
            password: None,
            connect_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(5),
            max_reply: MAX_REPLY,
            resp3: false,
        }
    }
}

impl RedisConfig {
    /// Sets address, TLS, user, password and database from a URL.
    ///
    /// # Errors
    /// A sentence that describes the mistake and the form of a URL.
    pub fn set_url(&mut self, url: &str) -> Result<(), String> {
        let wrong = |why: &str| {
            format!(
                "{why} in the URL; expected redis://user:password@host:port/db, rediss://… or unix:///path"
            )
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let slash = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(slash);
        let (user, host) =
            authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        if let Some(user) = user {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            let decoded = |text: &str| (!text.is_empty()).then(|| decode(text.as_bytes()).into_owned());
            (self.username, self.password) = (decoded(name), decoded(password));
        }
        // Not quoted: if the password contains an unescaped slash or question mark, this text is a part of it.
        let db = |text: &str| text.parse().map_err(|_| wrong("the database is not a number"));
        match scheme {
            "unix" => {
                if !host.is_empty() || path.len() < 2 {
                    return Err(wrong("no path"));
                }
                let path = String::from_utf8(decode(path.as_bytes()).into_owned())
                    .map_err(|_| wrong("a path that is not UTF-8"))?;
                self.address = Address::Unix(path.into());
            }
            "redis" | "rediss" => {
                let (host, port) = host_and_port(host).ok_or_else(|| wrong("no valid port"))?;
                let port = port.map_or(Ok(PORT), str::parse).ok().filter(|port| *port > 0);
                let port = port.ok_or_else(|| wrong("no valid port"))?;
                let host = if host.is_empty() { "127.0.0.1" } else { host };
                self.address = Address::Tcp(host.to_owned(), port);
                self.tls = (scheme == "rediss").then(RedisTls::default);
                if path.len() > 1 {
                    self.db = db(&path[1..])?;
                }
            }
            // Quoted only if it can be a scheme: a malformed URL may begin with its password.
            _ if scheme.len() <= 12 && scheme.bytes().all(|byte| byte.is_ascii_alphabetic()) => {
                return Err(wrong(&format!("the scheme \"{scheme}\"")));
            }
            _ => return Err(wrong("an unknown scheme")),
        }
        if let Some(number) = query.split('&').find_map(|pair| pair.strip_prefix("db=")) {
            self.db = db(number)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(url: &str) -> Result<RedisConfig, String> {
        let mut config = RedisConfig::default();
        config.set_url(url).map(|()| config)
    }

    #[test]
    fn urls() {
        let config = url("rediss://al%40ice:p%3Aw@example.com:7000/3").unwrap();
        assert_eq!(config.address, Address::Tcp("example.com".to_owned(), 7000));
        assert_eq!((config.db, config.tls), (3, Some(RedisTls::default())));
        assert_eq!(config.username.as_deref(), Some(&b"al@ice"[..]));
        assert_eq!(config.password.as_deref(), Some(&b"p:w"[..]));
        assert_eq!(url("redis://:secret@[::1]").unwrap().address.to_string(), "[::1]:6379");
        assert_eq!(url("redis://:secret@h").unwrap().username, None);
        let unix = url("unix:///run/redis.sock?db=2").unwrap();
        assert_eq!((unix.address, unix.db), (Address::Unix("/run/redis.sock".into()), 2));
    }

    #[test]
    fn invalid_urls_are_rejected() {
        for wrong in [
            "localhost",
            "http://h",
            "redis://h:x",
            "redis://h:0",
            "redis://h/zero",
            "unix://",
            "redis://[::1",
        ] {
            let error = url(wrong).unwrap_err();
            assert!(error.contains("expected redis://"), "{wrong}: {error}");
        }
        for secret in
            ["redis://:open/sesame@h", "redis://h?db=sesame", "open-sesame://h", "redis://:sesame@h:port"]
        {
            let error = url(secret).unwrap_err();
            assert!(!error.contains("sesame"), "{error}");
        }
    }
}
