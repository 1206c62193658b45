//! Secrets of `firebrick.toml` that are in variables: `secret = "${CABLE_SECRET}"`.
//!
//! Why: the file is kept with the app, and a secret must not be.
//!
//! Contract:
//! 1. Only values of secret settings are replaced, and only if the reference is the whole value. Other texts may contain `${…}`.
//! 2. A variable that is not set, or empty, is an error that names it. Commands that only ask a running server go on with another secret:
//!    the variable may be set for the server alone. The control token is not replaced, because these commands show it.

use crate::environment::Environment;
use crate::raw::Raw;
use crate::table::{self, AnyEntry, listen};

/// Secrets that stand for unknown ones; each kind of secret accepts one of them.
const STAND_INS: [&str; 3] =
    ["00000000000000000000000000000000", "redis://127.0.0.1:1", "authorization=unknown"];

/// Returns the value of the setting `key`, with its reference replaced; `None` if the setting counts as not written.
///
/// # Errors
/// The problem with the variable.
pub(crate) fn resolved(key: &str, raw: Raw, environment: &dyn Environment) -> Result<Option<Raw>, String> {
    let entry = table::entries().find(|entry| entry.about().key == key && entry.about().secret);
    let (Some(entry), Raw::Text(text)) = (entry, &raw) else { return Ok(Some(raw)) };
    let Some(name) = name(text) else { return Ok(Some(raw)) };
    match environment.var(name).filter(|value| !value.is_empty()) {
        Some(value) => Ok(Some(Raw::Text(value))),
        None if environment.needs_secrets() || key == listen::CONTROL_TOKEN.about.key => {
            Err(format!("the variable {name} is not set; set it for the server, or write the secret itself"))
        }
        None => Ok(stand_in(entry)),
    }
}

fn stand_in(entry: &dyn AnyEntry) -> Option<Raw> {
    STAND_INS.into_iter().map(|text| Raw::Text(text.to_owned())).find(|raw| entry.check(raw).is_ok())
}

/// Returns the name in `${NAME}`.
fn name(text: &str) -> Option<&str> {
    let name = text.strip_prefix("${")?.strip_suffix('}')?;
    let usable = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!name.is_empty() && name.bytes().all(usable)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::WithoutSecrets;
    use crate::testing::Fake;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn read(key: &str, text: &str, environment: &dyn Environment) -> Result<Option<String>, String> {
        let raw = resolved(key, Raw::Text(text.to_owned()), environment)?;
        Ok(raw.and_then(|raw| raw.text().map(str::to_owned)))
    }

    #[test]
    fn a_variable_is_the_secret() {
        let set = Fake::new(&[("CABLE_SECRET", SECRET), ("EMPTY", "")]);
        assert_eq!(read("hub.secret", "${CABLE_SECRET}", &set), Ok(Some(SECRET.to_owned())));
        for text in ["$CABLE_SECRET", "x${CABLE_SECRET}", "${CABLE-SECRET}", "${}", SECRET] {
            assert_eq!(read("hub.secret", text, &set), Ok(Some(text.to_owned())), "is as it is written");
        }
        assert_eq!(read("hub.path", "${CABLE_SECRET}", &set), Ok(Some("${CABLE_SECRET}".to_owned())));
        for name in ["EMPTY", "ELSEWHERE"] {
            let error = read("hub.secret", &format!("${{{name}}}"), &set).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
    }

    #[test]
    fn commands_that_ask_a_server_do_without_any_secret_but_the_token() {
        let nothing = Fake::new(&[]);
        for entry in table::entries().filter(|entry| entry.about().secret && entry.about().in_file) {
            let key = entry.about().key;
            let raw = resolved(key, Raw::Text("${UNKNOWN}".to_owned()), &WithoutSecrets(&nothing));
            match key == listen::CONTROL_TOKEN.about.key {
                true => assert!(raw.is_err(), "{key}"),
                false => assert_eq!(
                    raw.map(|raw| raw.is_some_and(|raw| entry.check(&raw).is_ok())),
                    Ok(true),
                    "{key}"
                ),
            }
        }
    }
}
