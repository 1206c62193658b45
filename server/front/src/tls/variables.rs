//! The variables about a connection and its client certificate for apps, named as in Apache's mod_ssl.
//!
//! Contract: only the handshake sets them. A request header field cannot, because its name in the env begins
//! with `HTTP_`.

use ::tls::TlsSession;
use handler::Variable;
use std::time::SystemTime;

/// Returns the variables of a connection whose client was asked for a certificate.
pub(crate) fn of(session: &TlsSession) -> Vec<Variable> {
    let mut all: Vec<Variable> = Vec::new();
    let mut set = |name: &str, value: &str| all.push((name.as_bytes().into(), value.as_bytes().into()));
    set("SSL_PROTOCOL", session.version.name());
    if !session.cipher.is_empty() {
        set("SSL_CIPHER", session.cipher);
    }
    if let Some(name) = &session.name {
        set("SSL_TLS_SNI", name);
    }
    let Some(client) = &session.client else {
        set("SSL_CLIENT_VERIFY", "NONE");
        return all;
    };
    set("SSL_CLIENT_VERIFY", "SUCCESS");
    set("SSL_CLIENT_S_DN", &client.subject);
    set("SSL_CLIENT_I_DN", &client.issuer);
    if let Some(name) = &client.common_name {
        set("SSL_CLIENT_S_DN_CN", name);
    }
    set("SSL_CLIENT_M_SERIAL", &client.serial.to_ascii_uppercase());
    set("SSL_CLIENT_FINGERPRINT", &client.fingerprint);
    set("SSL_CLIENT_V_START", &time(client.not_before));
    set("SSL_CLIENT_V_END", &time(client.not_after));
    set("SSL_CLIENT_CERT", &client.pem());
    all
}

/// Formats a time as OpenSSL does: `Nov 22 15:04:05 2026 GMT`.
fn time(time: SystemTime) -> String {
    let time = jiff::Timestamp::try_from(time);
    time.map(|time| time.strftime("%b %e %H:%M:%S %Y GMT").to_string()).unwrap_or_default()
}
