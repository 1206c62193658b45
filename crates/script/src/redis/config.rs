//! Which Redis a client means: from a URL or from options, with clear words for what cannot be.

use super::tls::Tls;
use mruby::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Everything that two clients must agree on to share a connection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) place: Place,
    pub(crate) tls: Option<Tls>,
    pub(crate) db: u32,
    pub(crate) username: Option<Vec<u8>>,
    pub(crate) password: Option<Vec<u8>>,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
    /// Whether RESP3 is asked for.
    pub(crate) resp3: bool,
}

/// Where it listens.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp(host, port) => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

const PORT: u16 = 6379;
const KNOWN: &str = "url, host, port, path, db, username, password, timeout, connect_timeout, read_timeout, \
                     command_timeout, ssl, ssl_params and protocol";
/// Options that are not simply taken in turn.
const APART: [&[u8]; 3] = [b"url", b"timeout", b"ssl_params"];
/// Options of Ruby's clients that mean nothing here.
const IGNORED: [&[u8]; 8] = [
    b"driver",
    b"id",
    b"reconnect_attempts",
    b"write_timeout",
    b"inherit_socket",
    b"custom",
    b"tcp_keepalive",
    b"scheme",
];

impl Config {
    /// From the pairs of `Redis.new`; `default_url` (`REDIS_URL`) counts when they say nothing of a place.
    ///
    /// # Errors
    /// A sentence that names the option.
    pub(crate) fn read(
        pairs: &[(Value<'_>, Value<'_>)],
        default_url: Option<&str>,
    ) -> Result<Config, String> {
        let mut config = Config {
            place: Place::Tcp("127.0.0.1".to_owned(), PORT),
            tls: None,
            db: 0,
            username: None,
            password: None,
            connect_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(5),
            resp3: false,
        };
        let key = |pair: &(Value<'_>, Value<'_>)| pair.0.text().unwrap_or_default().to_vec();
        let given = |name: &[u8]| {
            pairs.iter().find(|pair| key(pair) == name && pair.1 != Value::Nil).map(|pair| &pair.1)
        };
        match given(b"url") {
            Some(url) => config.take_url(&text(b"url", url)?)?,
            None if [&b"host"[..], b"port", b"path"].iter().all(|name| given(name).is_none()) => {
                if let Some(url) = default_url {
                    config.take_url(url).map_err(|error| format!("REDIS_URL: {error}"))?;
                }
            }
            None => {}
        }
        // `timeout` is for both; what is said of one counts more, whatever the order.
        if let Some(value) = given(b"timeout") {
            config.take(b"timeout", value)?;
        }
        for pair in pairs.iter().filter(|pair| pair.1 != Value::Nil) {
            let name = key(pair);
            if !APART.contains(&name.as_slice()) && !IGNORED.contains(&name.as_slice()) {
                config.take(&name, &pair.1)?;
            }
        }
        // They say how, not whether: as in redis-rb.
        if let Some(value) = given(b"ssl_params") {
            let params = ssl_params(value)?;
            config.tls = config.tls.map(|_| params);
        }
        Ok(config)
    }

    fn take(&mut self, name: &[u8], value: &Value<'_>) -> Result<(), String> {
        match name {
            b"host" => {
                let port = if let Place::Tcp(_, port) = self.place { port } else { PORT };
                self.place = Place::Tcp(text(name, value)?, port);
            }
            b"port" => {
                let port = number(value).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
                let port = port.ok_or("port: expected a number from 1 to 65535, such as 6379")?;
                let host = if let Place::Tcp(host, _) = &self.place { host.as_str() } else { "127.0.0.1" };
                self.place = Place::Tcp(host.to_owned(), port);
            }
            b"path" => self.place = Place::Unix(text(name, value)?.into()),
            b"db" => {
                self.db = number(value)
                    .and_then(|db| u32::try_from(db).ok())
                    .ok_or("db: expected a number from 0 on")?
            }
            b"username" => self.username = Some(text(name, value)?.into_bytes()),
            b"password" => self.password = Some(text(name, value)?.into_bytes()),
            b"timeout" => {
                (self.connect_timeout, self.command_timeout) = (span(name, value)?, span(name, value)?)
            }
            b"connect_timeout" => self.connect_timeout = span(name, value)?,
            b"command_timeout" | b"read_timeout" => self.command_timeout = span(name, value)?,
            b"ssl" => match value {
                Value::Bool(true) => self.tls = Some(self.tls.take().unwrap_or_default()),
                Value::Bool(false) => self.tls = None,
                _ => return Err("ssl: expected true or false".to_owned()),
            },
            b"protocol" => {
                self.resp3 = match number(value) {
                    Some(2) => false,
                    Some(3) => true,
                    _ => return Err("protocol: expected 2 or 3".to_owned()),
                }
            }
            _ => return Err(format!("unknown option `{}'; known are {KNOWN}", name.escape_ascii())),
        }
        Ok(())
    }

    fn take_url(&mut self, url: &str) -> Result<(), String> {
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
            let decoded = |text: &str| (!text.is_empty()).then(|| decode(text));
            (self.username, self.password) = (decoded(name), decoded(password));
        }
        let db =
            |text: &str| text.parse().map_err(|_| wrong(&format!("the database \"{text}\" is no number")));
        match scheme {
            "unix" => {
                if !host.is_empty() || path.len() < 2 {
                    return Err(wrong("no path"));
                }
                let path = String::from_utf8(decode(path)).map_err(|_| wrong("a path that is not UTF-8"))?;
                self.place = Place::Unix(path.into());
            }
            "redis" | "rediss" => {
                let (host, port) = split_port(host).ok_or_else(|| wrong("no usable port"))?;
                let host = if host.is_empty() { "127.0.0.1" } else { host };
                self.place = Place::Tcp(host.to_owned(), port);
                self.tls = (scheme == "rediss").then(Tls::default);
                if path.len() > 1 {
                    self.db = db(&path[1..])?;
                }
            }
            _ => return Err(wrong(&format!("the scheme \"{scheme}\""))),
        }
        if let Some(number) = query.split('&').find_map(|pair| pair.strip_prefix("db=")) {
            self.db = db(number)?;
        }
        Ok(())
    }
}

fn ssl_params(value: &Value<'_>) -> Result<Tls, String> {
    let Value::Hash(pairs) = value else {
        return Err("ssl_params: expected a Hash, such as { ca_file: '/etc/ca.pem' }".into());
    };
    let mut tls = Tls::default();
    for (key, value) in pairs {
        let file = match key.text() {
            Some(b"ca_file") => &mut tls.ca_file,
            Some(b"cert") => &mut tls.cert,
            Some(b"key") => &mut tls.key,
            _ => {
                return Err(
                    "ssl_params: only ca_file, cert and key are known, each the name of a PEM file; \
                            certificates are always verified"
                        .to_owned(),
                );
            }
        };
        *file = Some(text(b"ssl_params", value)?.into());
    }
    if tls.cert.is_some() != tls.key.is_some() {
        return Err("ssl_params: cert and key go together".to_owned());
    }
    Ok(tls)
}

fn split_port(authority: &str) -> Option<(&str, u16)> {
    let (host, rest) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    match rest.strip_prefix(':') {
        Some(port) => port.parse().ok().filter(|port| *port > 0).map(|port| (host, port)),
        None => rest.is_empty().then_some((host, PORT)),
    }
}

/// `%40` is `@`; what is no such code stands for itself.
fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        let code = digits.and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        decoded.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    decoded
}

fn text(name: &[u8], value: &Value<'_>) -> Result<String, String> {
    let text =
        value.text().and_then(|text| String::from_utf8(text.to_vec()).ok()).filter(|text| !text.is_empty());
    text.ok_or_else(|| format!("{}: expected a String", name.escape_ascii()))
}

/// Numbers may come as text: from the environment.
fn number(value: &Value<'_>) -> Option<i64> {
    value.int().or_else(|| std::str::from_utf8(value.text()?).ok()?.parse().ok())
}

fn span(name: &[u8], value: &Value<'_>) -> Result<Duration, String> {
    let seconds = value.float().or_else(|| std::str::from_utf8(value.text()?).ok()?.parse().ok());
    let span = seconds.filter(|span| *span > 0.0).and_then(|span| Duration::try_from_secs_f64(span).ok());
    span.ok_or_else(|| format!("{}: expected seconds above 0, such as 0.5", name.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, Value<'static>)]) -> Result<Config, String> {
        let pairs: Vec<_> =
            pairs.iter().map(|(key, value)| (Value::Sym(key.as_bytes()), value.clone())).collect();
        Config::read(&pairs, None)
    }

    fn url(url: &'static str) -> Result<Config, String> {
        read(&[("url", Value::Str(url.as_bytes()))])
    }

    #[test]
    fn urls() {
        let config = url("rediss://al%40ice:p%3Aw@example.com:7000/3").unwrap();
        assert_eq!(config.place, Place::Tcp("example.com".to_owned(), 7000));
        assert_eq!((config.db, config.tls), (3, Some(Tls::default())));
        assert_eq!(config.username.as_deref(), Some(&b"al@ice"[..]));
        assert_eq!(config.password.as_deref(), Some(&b"p:w"[..]));
        assert_eq!(url("redis://:secret@[::1]").unwrap().place.to_string(), "[::1]:6379");
        assert_eq!(url("redis://:secret@h").unwrap().username, None);
        let unix = url("unix:///run/redis.sock?db=2").unwrap();
        assert_eq!((unix.place, unix.db), (Place::Unix("/run/redis.sock".into()), 2));
    }

    #[test]
    fn wrong_urls_are_told() {
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
        let error = Config::read(&[], Some("nonsense")).unwrap_err();
        assert!(error.starts_with("REDIS_URL: no scheme"), "{error}");
    }

    #[test]
    fn options_add_to_the_url_and_replace_it() {
        let config = read(&[
            ("timeout", Value::Float(0.5)),
            ("connect_timeout", Value::Int(2)),
            ("db", Value::Str(b"4")),
        ])
        .unwrap();
        assert_eq!(
            (config.connect_timeout.as_millis(), config.command_timeout.as_millis(), config.db),
            (2000, 500, 4)
        );
        let config = Config::read(&[(Value::Sym(b"port"), Value::Int(7))], Some("redis://other/1")).unwrap();
        assert_eq!((config.place.to_string().as_str(), config.db), ("127.0.0.1:7", 0));
        assert_eq!(Config::read(&[], Some("redis://other/1")).unwrap().place.to_string(), "other:6379");
    }

    #[test]
    fn wrong_options_are_named() {
        let error = |name, value| read(&[(name, value)]).unwrap_err();
        assert!(error("hots", Value::Int(1)).contains("unknown option `hots'; known are url, host"));
        assert!(error("port", Value::Int(70_000)).starts_with("port: expected"));
        assert!(error("timeout", Value::Int(0)).starts_with("timeout: expected seconds"));
        assert!(error("db", Value::Int(-1)).starts_with("db: expected"));
        assert!(error("protocol", Value::Int(4)).starts_with("protocol: expected 2 or 3"));
        let params = |pairs: &[&'static str]| {
            Value::Hash(pairs.iter().map(|name| (Value::Sym(name.as_bytes()), Value::Str(b"f"))).collect())
        };
        assert!(error("ssl_params", params(&["cert"])).ends_with("go together"));
        let both = [("ssl", Value::Bool(true)), ("ssl_params", params(&["cert", "key"]))];
        assert_eq!(read(&both).unwrap().tls.and_then(|tls| tls.key), Some("f".into()));
        assert_eq!(read(&both[1..]).unwrap().tls, None);
        assert!(
            error("ssl_params", Value::Hash(vec![(Value::Sym(b"verify_mode"), Value::Int(0))]))
                .contains("always verified")
        );
    }
}
