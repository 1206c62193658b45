//! The options of `Redis.new`; error messages name the option.

use ::redis::{Address, RedisConfig, RedisTls};
use mruby::TapeValue;
use std::time::Duration;

const PORT: u16 = 6379;
const KNOWN: &str = "url, host, port, path, db, username, password, timeout, connect_timeout, read_timeout, \
                     command_timeout, ssl, ssl_params and protocol";
/// Options that are read before or after the others.
const ORDERED: [&[u8]; 3] = [b"url", b"timeout", b"ssl_params"];
/// Options of other clients that have no effect here.
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

/// Reads the pairs of `Redis.new`. `default_url` (`REDIS_URL`) applies if they name no server.
///
/// # Errors
/// A sentence that names the wrong option.
///
/// `max_reply`: the most bytes of a reply.
pub(super) fn config(
    pairs: &[(TapeValue<'_>, TapeValue<'_>)],
    default_url: Option<&str>,
    max_reply: usize,
) -> Result<RedisConfig, String> {
    let mut config = RedisConfig { max_reply, ..RedisConfig::default() };
    let key = |pair: &(TapeValue<'_>, TapeValue<'_>)| pair.0.text().unwrap_or_default().to_vec();
    let given = |name: &[u8]| {
        pairs.iter().find(|pair| key(pair) == name && pair.1 != TapeValue::Nil).map(|pair| &pair.1)
    };
    match given(b"url") {
        Some(url) => config.set_url(&text(b"url", url)?)?,
        None if [&b"host"[..], b"port", b"path"].iter().all(|name| given(name).is_none()) => {
            if let Some(url) = default_url {
                config.set_url(url).map_err(|error| format!("REDIS_URL: {error}"))?;
            }
        }
        None => {}
    }
    // `timeout` sets both timeouts; an option for one of them overrides it, whatever the order.
    if let Some(value) = given(b"timeout") {
        set(&mut config, b"timeout", value)?;
    }
    for pair in pairs.iter().filter(|pair| pair.1 != TapeValue::Nil) {
        let name = key(pair);
        if !ORDERED.contains(&name.as_slice()) && !IGNORED.contains(&name.as_slice()) {
            set(&mut config, &name, &pair.1)?;
        }
    }
    // As in redis-rb, `ssl_params` do not turn TLS on.
    if let Some(value) = given(b"ssl_params") {
        let params = ssl_params(value)?;
        config.tls = config.tls.map(|_| params);
    }
    Ok(config)
}

fn set(config: &mut RedisConfig, name: &[u8], value: &TapeValue<'_>) -> Result<(), String> {
    match name {
        b"host" => {
            let port = if let Address::Tcp(_, port) = config.address { port } else { PORT };
            config.address = Address::Tcp(text(name, value)?, port);
        }
        b"port" => {
            let port = number(value).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
            let port = port.ok_or("port: expected a number from 1 to 65535, such as 6379")?;
            let host = if let Address::Tcp(host, _) = &config.address { host.as_str() } else { "127.0.0.1" };
            config.address = Address::Tcp(host.to_owned(), port);
        }
        b"path" => config.address = Address::Unix(text(name, value)?.into()),
        b"db" => {
            config.db = number(value)
                .and_then(|db| u32::try_from(db).ok())
                .ok_or("db: expected a number, 0 or more")?
        }
        b"username" => config.username = Some(text(name, value)?.into_bytes()),
        b"password" => config.password = Some(text(name, value)?.into_bytes()),
        b"timeout" => {
            (config.connect_timeout, config.command_timeout) = (seconds(name, value)?, seconds(name, value)?)
        }
        b"connect_timeout" => config.connect_timeout = seconds(name, value)?,
        b"command_timeout" | b"read_timeout" => config.command_timeout = seconds(name, value)?,
        b"ssl" => match value {
            TapeValue::Bool(true) => config.tls = Some(config.tls.take().unwrap_or_default()),
            TapeValue::Bool(false) => config.tls = None,
            _ => return Err("ssl: expected true or false".to_owned()),
        },
        b"protocol" => {
            config.resp3 = match number(value) {
                Some(2) => false,
                Some(3) => true,
                _ => return Err("protocol: expected 2 or 3".to_owned()),
            }
        }
        _ => return Err(format!("unknown option `{}'; known are {KNOWN}", name.escape_ascii())),
    }
    Ok(())
}

fn ssl_params(value: &TapeValue<'_>) -> Result<RedisTls, String> {
    let TapeValue::Hash(pairs) = value else {
        return Err("ssl_params: expected a Hash, such as { ca_file: '/etc/ca.pem' }".into());
    };
    let mut tls = RedisTls::default();
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

fn text(name: &[u8], value: &TapeValue<'_>) -> Result<String, String> {
    let text =
        value.text().and_then(|text| String::from_utf8(text.to_vec()).ok()).filter(|text| !text.is_empty());
    text.ok_or_else(|| format!("{}: expected a String", name.escape_ascii()))
}

/// Reads a number, also as text, because environment variables are text.
fn number(value: &TapeValue<'_>) -> Option<i64> {
    value.int().or_else(|| std::str::from_utf8(value.text()?).ok()?.parse().ok())
}

fn seconds(name: &[u8], value: &TapeValue<'_>) -> Result<Duration, String> {
    let seconds = value.float().or_else(|| std::str::from_utf8(value.text()?).ok()?.parse().ok());
    let duration = seconds
        .filter(|seconds| *seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| format!("{}: expected seconds above 0, such as 0.5", name.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&'static str, TapeValue<'static>)]) -> Result<RedisConfig, String> {
        let pairs: Vec<_> =
            pairs.iter().map(|(key, value)| (TapeValue::Sym(key.as_bytes()), value.clone())).collect();
        config(&pairs, None, 1 << 20)
    }

    #[test]
    fn urls() {
        let config = read(&[("url", TapeValue::Str(b"rediss://ann@h:7/3"))]).unwrap();
        assert_eq!((config.address.to_string().as_str(), config.db), ("h:7", 3));
        assert!(read(&[("url", TapeValue::Str(b"http://h"))]).unwrap_err().contains("expected redis://"));
        let error = super::config(&[], Some("nonsense"), 1).unwrap_err();
        assert!(error.starts_with("REDIS_URL: no scheme"), "{error}");
    }

    #[test]
    fn options_extend_and_override_the_url() {
        let config = read(&[
            ("timeout", TapeValue::Float(0.5)),
            ("connect_timeout", TapeValue::Int(2)),
            ("db", TapeValue::Str(b"4")),
        ])
        .unwrap();
        assert_eq!(
            (config.connect_timeout.as_millis(), config.command_timeout.as_millis(), config.db),
            (2000, 500, 4)
        );
        let config =
            super::config(&[(TapeValue::Sym(b"port"), TapeValue::Int(7))], Some("redis://other/1"), 1)
                .unwrap();
        assert_eq!((config.address.to_string().as_str(), config.db), ("127.0.0.1:7", 0));
        assert_eq!(
            super::config(&[], Some("redis://other/1"), 1 << 20).unwrap().address.to_string(),
            "other:6379"
        );
    }

    #[test]
    fn invalid_options_are_named() {
        let error = |name, value| read(&[(name, value)]).unwrap_err();
        assert!(error("hots", TapeValue::Int(1)).contains("unknown option `hots'; known are url, host"));
        assert!(error("port", TapeValue::Int(70_000)).starts_with("port: expected"));
        assert!(error("timeout", TapeValue::Int(0)).starts_with("timeout: expected seconds"));
        assert!(error("db", TapeValue::Int(-1)).starts_with("db: expected"));
        assert!(error("protocol", TapeValue::Int(4)).starts_with("protocol: expected 2 or 3"));
        let params = |pairs: &[&'static str]| {
            TapeValue::Hash(
                pairs.iter().map(|name| (TapeValue::Sym(name.as_bytes()), TapeValue::Str(b"f"))).collect(),
            )
        };
        assert!(error("ssl_params", params(&["cert"])).ends_with("go together"));
        let both = [("ssl", TapeValue::Bool(true)), ("ssl_params", params(&["cert", "key"]))];
        assert_eq!(read(&both).unwrap().tls.and_then(|tls| tls.key), Some("f".into()));
        assert_eq!(read(&both[1..]).unwrap().tls, None);
        assert!(
            error("ssl_params", TapeValue::Hash(vec![(TapeValue::Sym(b"verify_mode"), TapeValue::Int(0))]))
                .contains("always verified")
        );
    }
}
