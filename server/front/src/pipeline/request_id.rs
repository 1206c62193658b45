//! Request ids: taken from the request if it has a valid one, else generated.

use handler::{Fields, Request};
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};

/// The longest id accepted from a request, in bytes. Longer ones would fill the log.
const LONGEST: usize = 255;

pub(crate) struct RequestIds {
    header: String,
    random: RefCell<fastrand::Rng>,
}

impl RequestIds {
    /// Ids are in the field `header`. Each thread and process generates different ones.
    pub(crate) fn new(header: &str) -> RequestIds {
        let seed = RandomState::new().hash_one((std::process::id(), std::time::SystemTime::now()));
        RequestIds { header: header.to_owned(), random: RefCell::new(fastrand::Rng::with_seed(seed)) }
    }

    /// Returns the request's own id, or generates one and adds it to the header fields.
    pub(crate) fn identify(&self, request: &mut Request) -> Id {
        match request.fields.get(&self.header) {
            Some(own) if is_sane(own) => {
                let own: Box<[u8]> = own.into();
                if request.fields.lists("connection", &self.header) {
                    // The field becomes the server's own, so that the client's `Connection` cannot remove it.
                    self.replace(request, &own);
                }
                return Id::Own(own);
            }
            None => {}
            Some(_) => {
                let id = self.next();
                self.replace(request, id.as_bytes());
                return id;
            }
        }
        let id = self.next();
        request.fields.push(self.header.as_bytes(), id.as_bytes());
        id
    }

    fn replace(&self, request: &mut Request, id: &[u8]) {
        let header = self.header.as_bytes();
        request.fields.retain(|name, _| !name.eq_ignore_ascii_case(header));
        request.fields.push(header, id);
    }

    /// Adds the id to a response, unless the app has set one.
    pub(crate) fn mark(&self, fields: &mut Fields, id: &Id) {
        if fields.get(&self.header).is_none() {
            fields.push(self.header.as_bytes(), id.as_bytes());
        }
    }

    /// Generates [`DIGITS`] digits of base 32: unique, not secret.
    fn next(&self) -> Id {
        let mut digits = [0; DIGITS];
        let words = self.random.borrow_mut().u128(..);
        for (at, digit) in digits.iter_mut().enumerate() {
            *digit = BASE32[(words >> (5 * at)) as usize & 31];
        }
        Id::Made(digits)
    }
}

const BASE32: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
/// 115 bits. Also the longest text that CRuby embeds in a String object.
const DIGITS: usize = 23;

/// An id, kept from the request to the response.
pub(crate) enum Id {
    Made([u8; DIGITS]),
    Own(Box<[u8]>),
}

impl Id {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Id::Made(digits) => digits,
            Id::Own(text) => text,
        }
    }
}

fn is_sane(id: &[u8]) -> bool {
    !id.is_empty()
        && id.len() <= LONGEST
        && id.iter().all(|&byte| byte.is_ascii_alphanumeric() || b"-_.:/+=@".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ids_differ() {
        let (one, other) = (RequestIds::new("X-Request-Id"), RequestIds::new("X-Request-Id"));
        let ids: HashSet<Vec<u8>> = (0..1000)
            .flat_map(|_| [one.next().as_bytes().to_vec(), other.next().as_bytes().to_vec()])
            .collect();
        assert_eq!(ids.len(), 2000);
        assert!(ids.iter().all(|id| id.len() == DIGITS));
    }

    #[test]
    fn invalid_ids_are_replaced() {
        assert!(is_sane(b"4f1c-Ab_9"));
        for odd in [&b""[..], b"a b", b"a\"b", b"a\x7f", &[b'a'; 256]] {
            assert!(!is_sane(odd), "{odd:?}");
        }
    }
}
