//! The routes in a heap dump: the worker's child adds them to the lines that Ruby writes about objects.
//!
//! Why: Ruby does not know requests. Its lines begin with the address of the object, by which the worker knows the route.
//!
//! Contract:
//! 1. `{"address":"0x7f10", …}` becomes `{"address":"0x7f10", "route":3, …}`; all other bytes stay as they are, in whatever pieces they come.
//! 2. Before that, lines such as `{"route":3, "name":"posts#show"}` say which route has which number.
//! 3. Nothing is kept of a line but the number in its address.

/// The number that stands for objects which no request has allocated.
pub const NO_REQUEST: u16 = 0;
/// The number that stands for requests without a route.
pub const NO_ROUTE: u16 = u16::MAX;

/// The names of [`NO_REQUEST`] and [`NO_ROUTE`], which no route of an app has: these have no parentheses around them.
const NO_REQUEST_NAME: &str = "(none)";
const NO_ROUTE_NAME: &str = "(other)";

/// The beginning of the line of an object, up to the digits of its address.
const BEGINNING: &[u8] = b"{\"address\":\"0x";

/// Appends the line that names a route. Only [`NO_REQUEST`] and [`NO_ROUTE`] have names of their own.
pub fn define(route: u16, name: &str, out: &mut Vec<u8>) {
    let name = match route {
        NO_REQUEST => NO_REQUEST_NAME,
        NO_ROUTE => NO_ROUTE_NAME,
        _ => name,
    };
    out.extend_from_slice(format!("{{\"route\":{route}, \"name\":\"").as_bytes());
    for letter in name.chars().filter(|letter| !letter.is_control()) {
        if matches!(letter, '"' | '\\') {
            out.push(b'\\');
        }
        out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    }
    out.extend_from_slice(b"\"}\n");
}

/// Copies a dump and adds the routes.
pub struct RouteAdder(At);

/// The place in a line.
#[derive(Clone, Copy)]
enum At {
    /// So many bytes of [`BEGINNING`] have come.
    Beginning(usize),
    /// In the digits of an address, which are this number so far.
    Address(u64),
    /// Behind that, or in a line that is not about an object.
    Rest,
}

impl Default for RouteAdder {
    fn default() -> Self {
        RouteAdder(At::Beginning(0))
    }
}

impl RouteAdder {
    /// Appends the next bytes of the dump to `out`, with the routes. `route`: that of the object at an address, `None` if it is not known.
    pub fn copy(&mut self, mut bytes: &[u8], route: impl Fn(u64) -> Option<u16>, out: &mut Vec<u8>) {
        while let Some((&byte, behind)) = bytes.split_first() {
            if matches!(self.0, At::Rest) {
                let end = bytes.iter().position(|&byte| byte == b'\n');
                out.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
                bytes = end.map_or(&[], |end| &bytes[end..]);
                self.0 = if end.is_some() { At::Beginning(0) } else { At::Rest };
                if end.is_some() {
                    out.push(b'\n');
                    bytes = &bytes[1..];
                }
                continue;
            }
            out.push(byte);
            bytes = behind;
            self.0 = match (self.0, byte) {
                (_, b'\n') => At::Beginning(0),
                (At::Beginning(count), _) if byte == BEGINNING[count] => match count + 1 {
                    all if all == BEGINNING.len() => At::Address(0),
                    count => At::Beginning(count),
                },
                (At::Address(address), b'"') => {
                    if let Some(route) = route(address) {
                        out.extend_from_slice(format!(", \"route\":{route}").as_bytes());
                    }
                    At::Rest
                }
                (At::Address(address), _) if address >> 60 == 0 => match char::from(byte).to_digit(16) {
                    Some(digit) => At::Address(address << 4 | u64::from(digit)),
                    None => At::Rest,
                },
                _ => At::Rest,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DUMP: &str = "{\"type\":\"ROOT\", \"references\":[\"0x10\"]}\n\
        {\"address\":\"0x10\", \"type\":\"STRING\", \"value\":\"{\\\"address\\\":\\\"0x10\\\"\"}\n\
        {\"address\":\"0x2f\", \"type\":\"OBJECT\"}\n{\"address\":\"0x11\", \"type\":\"OBJECT\"}\n\
        {\"address\":\"0xg10\"}\n{\"address\":\"0x0000000000000000010\"}\n{\"address\":\"0x10";

    fn added(dump: &[u8], piece: usize) -> Vec<u8> {
        let (mut adder, mut out) = (RouteAdder::default(), Vec::new());
        let route = |address| match address {
            0x10 => Some(3),
            0x2f => Some(NO_ROUTE),
            _ => None,
        };
        dump.chunks(piece.max(1)).for_each(|part| adder.copy(part, route, &mut out));
        out
    }

    #[test]
    fn the_lines_of_known_objects_get_their_routes() {
        let expected = DUMP
            .replace("{\"address\":\"0x10\", \"type", "{\"address\":\"0x10\", \"route\":3, \"type")
            .replace("{\"address\":\"0x2f\",", "{\"address\":\"0x2f\", \"route\":65535,")
            .replace("0000010\"}", "0000010\", \"route\":3}");
        assert_eq!(String::from_utf8(added(DUMP.as_bytes(), usize::MAX)).unwrap(), expected);
    }

    #[test]
    fn routes_are_named() {
        let mut out = Vec::new();
        define(NO_REQUEST, "", &mut out);
        define(3, "GET /\"a\\b\"/é", &mut out);
        define(NO_ROUTE, "", &mut out);
        let expected = "{\"route\":0, \"name\":\"(none)\"}\n{\"route\":3, \"name\":\"GET /\\\"a\\\\b\\\"/é\"}\n{\"route\":65535, \"name\":\"(other)\"}\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(piece in 1usize..40) {
            prop_assert_eq!(added(DUMP.as_bytes(), piece), added(DUMP.as_bytes(), usize::MAX));
        }

        #[test]
        fn other_bytes_stay_as_they_are(lines in "(\\PC|\n|\\{\"address\":\"0x[0-9a-f]{1,3}\"){0,40}", piece in 1usize..40) {
            let routes = ["", ", \"route\":3", ", \"route\":65535"];
            let text = String::from_utf8(added(lines.as_bytes(), piece)).unwrap();
            let bare = routes[1..].iter().fold(text, |text, route| text.replace(route, ""));
            let given = routes[1..].iter().fold(lines, |text, route| text.replace(route, ""));
            prop_assert_eq!(bare, given);
        }
    }
}
