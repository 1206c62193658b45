//! The requests that `firebrick deaths --replay` repeats, from the server that keeps them.

use crate::client::{ControlClient, value};
use stats::{Death, KeptRequest, ServerSnapshot};
use std::path::Path;

/// Returns the requests that are kept of the death with this number.
///
/// # Errors
/// No server runs for `dir`; it has no such record; nothing is kept of it. The text says which.
pub fn kept(dir: &Path, client: &ControlClient, number: u64) -> Result<Vec<KeptRequest>, String> {
    let deaths: Vec<Death> = value(dir, client, "/deaths")?;
    let death = deaths.iter().find(|death| death.number == number);
    let death = death.ok_or_else(|| match deaths.first() {
        Some(newest) => format!(
            "there is no record {number}: `firebrick deaths` lists them; the newest is no. {}",
            newest.number
        ),
        None => format!("there is no record {number}: no worker has ended"),
    })?;
    if death.in_flight.is_empty() {
        return Err(format!(
            "worker {} (no. {number}) was serving no request when it ended, so there is none to repeat",
            death.worker
        ));
    }
    match death.kept {
        0 => Err(format!(
            "no request of no. {number} is kept: deaths.keep_requests is 0, or newer ones have taken its place, or its head is longer than \
             128 KiB; set deaths.keep_requests higher for the next ones"
        )),
        _ => value(dir, client, &format!("/deaths?kept={number}")),
    }
}

/// Returns the environment that the server gives its app: `production`.
///
/// # Errors
/// No server runs for `dir`.
pub fn environment(dir: &Path, client: &ControlClient) -> Result<String, String> {
    Ok(value::<ServerSnapshot>(dir, client, "/stats")?.environment)
}

/// Returns the payload of a kept request.
///
/// # Errors
/// The digits are not those of bytes.
pub fn payload(request: &KeptRequest) -> Result<Vec<u8>, String> {
    let digits = request.payload.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits
        .iter()
        .map(byte)
        .collect::<Option<_>>()
        .ok_or_else(|| "the server's copy of the request cannot be read".to_owned())
}

/// Describes a request that is about to be repeated.
pub fn describe(request: &KeptRequest) -> String {
    let mut text = format!("{} {}", request.method, request.target);
    match (request.body_bytes, request.body_kept) {
        (0, _) => {}
        (bytes, true) => text += &format!(", with its body of {bytes} bytes"),
        (bytes, false) => {
            text += &format!(", WITHOUT its body of {bytes} bytes, which is too long to be kept")
        }
    }
    if !request.masked.is_empty() {
        text += &format!(
            "\n  secrets are overwritten, so the app may take another way: {}",
            request.masked.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_described_and_its_bytes_are_read() {
        let (method, target) = ("POST".to_owned(), "/a?token=***".to_owned());
        let masked = vec!["query".to_owned(), "cookie".to_owned()];
        let request = KeptRequest {
            method,
            target,
            masked,
            body_bytes: 9,
            body_kept: false,
            payload: "00ff1a".to_owned(),
        };
        let text = describe(&request);
        assert!(text.starts_with("POST /a?token=***, WITHOUT its body of 9 bytes"), "{text}");
        assert!(text.ends_with("another way: query, cookie"), "{text}");
        assert_eq!(payload(&request), Ok(vec![0, 255, 26]));
        assert!(payload(&KeptRequest { payload: "0x".to_owned(), ..request }).is_err());
    }
}
