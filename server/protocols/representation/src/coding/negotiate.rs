//! Parses Accept-Encoding (RFC 9110 section 12.5.3).
//!
//! Contract:
//! 1. Nothing is allocated, whatever the field holds. An absent field costs nothing.
//! 2. An item with an invalid weight or an unknown coding is ignored. Of two items for one coding, the
//!    smaller weight counts.
//! 3. `*` stands for the codings that no item names, including identity.
//! 4. Identity is acceptable unless it is excluded, but codings that the client names rank above it.

use super::Coding;

/// The weight that a client gives to each coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preferences {
    /// For each of [`Coding::ALL`]: the weight in units of 0.0005, so that an implicit identity can rank
    /// below the smallest.
    weights: [u16; 4],
}

/// Below the smallest weight that a client can write: identity when no item names it.
const IMPLICIT_IDENTITY: u16 = 1;

impl Preferences {
    /// The preferences of a client without Accept-Encoding: identity.
    pub const NONE: Preferences = Preferences { weights: [0, 0, 0, IMPLICIT_IDENTITY] };

    /// Parses the values of all Accept-Encoding fields of a request (`fields.all("accept-encoding")`).
    /// Without any, only identity is acceptable.
    pub fn read<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Preferences {
        let mut named = [None; 4];
        let mut any = None;
        for item in values.into_iter().flat_map(|value| value.split(|&byte| byte == b',')) {
            let (name, weight) = match item.iter().position(|&byte| byte == b';') {
                Some(at) => (&item[..at], weight(item[at + 1..].trim_ascii())),
                None => (item, Some(2000)),
            };
            let (Some(slot), Some(weight)) = (slot(name.trim_ascii(), &mut named, &mut any), weight) else {
                continue;
            };
            *slot = Some(slot.map_or(weight, |earlier| weight.min(earlier)));
        }
        let weight = |coding: Coding, default| named[coding as usize].or(any).unwrap_or(default);
        Preferences {
            weights: [
                weight(Coding::Br, 0),
                weight(Coding::Zstd, 0),
                weight(Coding::Gzip, 0),
                weight(Coding::Identity, IMPLICIT_IDENTITY),
            ],
        }
    }

    /// Returns whether the client accepts this coding.
    #[inline]
    pub fn accepts(&self, coding: Coding) -> bool {
        self.weights[coding as usize] > 0
    }

    /// Returns the acceptable codings by the client's weight; equal weights in the server's order.
    pub fn ranked(&self) -> impl Iterator<Item = Coding> {
        let mut order = Coding::ALL;
        order.sort_by_key(|&coding| std::cmp::Reverse(self.weights[coding as usize]));
        let acceptable = Coding::ALL.into_iter().filter(|&coding| self.accepts(coding)).count();
        order.into_iter().take(acceptable)
    }

    /// Returns the first of [`Preferences::ranked`] that is `available`. If there is none, RFC 9110 allows a
    /// 415; in practice servers send identity.
    pub fn best(&self, available: impl Fn(Coding) -> bool) -> Option<Coding> {
        self.ranked().find(|&coding| available(coding))
    }
}

/// Returns the codings for a response that is encoded each time it is sent, the best one first. Brotli, which
/// takes five times as long as the others, is used only if the client accepts no other coding. Without `zstd`
/// it is never used, nor is zstd: clients of such a site expect gzip.
pub fn live(preferences: &Preferences, zstd: bool) -> [Coding; 3] {
    let quick =
        |coding| matches!(coding, Coding::Gzip | Coding::Identity) || (coding == Coding::Zstd && zstd);
    let only_br = zstd && preferences.accepts(Coding::Br) && !preferences.accepts(Coding::Gzip);
    let best = match preferences.best(quick) {
        Some(Coding::Identity) | None if only_br => Coding::Br,
        best => best.unwrap_or(Coding::Identity),
    };
    let next = match best {
        Coding::Gzip if zstd && preferences.accepts(Coding::Zstd) => Coding::Zstd,
        Coding::Zstd if preferences.accepts(Coding::Gzip) => Coding::Gzip,
        _ => Coding::Identity,
    };
    [best, next, Coding::Identity]
}

/// Returns the slot for the weight of the coding with that name.
fn slot<'a>(
    name: &[u8],
    named: &'a mut [Option<u16>; 4],
    any: &'a mut Option<u16>,
) -> Option<&'a mut Option<u16>> {
    let coding = match name {
        b"*" => return Some(any),
        name if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => Coding::Gzip,
        name if name.eq_ignore_ascii_case(b"br") => Coding::Br,
        name if name.eq_ignore_ascii_case(b"zstd") => Coding::Zstd,
        name if name.eq_ignore_ascii_case(b"identity") => Coding::Identity,
        _ => return None,
    };
    Some(&mut named[coding as usize])
}

/// Parses `q=` and a number from 0 to 1 with at most three digits after the point (RFC 9110 section 12.4.2), doubled.
fn weight(parameter: &[u8]) -> Option<u16> {
    let ([b'q' | b'Q', b'='], number) = parameter.split_at_checked(2)? else { return None };
    let (&whole, rest) = number.split_first()?;
    let digits = match rest {
        [] => rest,
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    let add = |sum: u16, digit: &u8| digit.is_ascii_digit().then(|| sum * 10 + u16::from(digit - b'0'));
    let thousandths = digits.iter().try_fold(0, add)? * [1000, 100, 10, 1][digits.len()];
    match whole {
        b'0' => Some(thousandths * 2),
        b'1' if thousandths == 0 => Some(2000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Coding::{Br, Gzip, Identity, Zstd};
    use proptest::prelude::*;

    fn ranked(value: &str) -> Vec<Coding> {
        Preferences::read([value.as_bytes()]).ranked().collect()
    }

    #[test]
    fn without_the_field_only_identity() {
        assert_eq!(Preferences::read([]), Preferences::NONE);
        assert_eq!(Preferences::NONE.ranked().collect::<Vec<_>>(), [Identity]);
        assert_eq!(ranked(""), [Identity]);
    }

    #[test]
    fn browsers() {
        assert_eq!(ranked("gzip, deflate, br, zstd"), [Br, Zstd, Gzip, Identity]);
        assert_eq!(ranked("gzip, deflate"), [Gzip, Identity]);
        assert_eq!(ranked("GZIP,BR"), [Br, Gzip, Identity]);
        assert_eq!(ranked("x-gzip"), [Gzip, Identity]);
    }

    #[test]
    fn weights_order_and_exclude() {
        assert_eq!(ranked("br;q=0.5, gzip;q=0.501"), [Gzip, Br, Identity]);
        assert_eq!(ranked("br;q=0, gzip ; Q=0.001"), [Gzip, Identity]);
        assert_eq!(ranked("identity, gzip;q=0.5"), [Identity, Gzip]);
        assert_eq!(ranked("identity;q=0.5, gzip;q=0.5"), [Gzip, Identity]);
        assert_eq!(ranked("gzip;q=1.000, zstd;q=0.999, br;q=1."), [Br, Gzip, Zstd, Identity]);
        assert_eq!(ranked("gzip;q=0.000"), [Identity]);
        assert_eq!(ranked("identity;q=0"), []);
        assert_eq!(ranked("gzip;q=0, identity;q=0, br;q=0.1"), [Br]);
    }

    #[test]
    fn a_star_stands_for_the_others() {
        assert_eq!(ranked("*"), [Br, Zstd, Gzip, Identity]);
        assert_eq!(ranked("*;q=0"), []);
        assert_eq!(ranked("gzip, *;q=0"), [Gzip]);
        assert_eq!(ranked("*;q=0, identity;q=0.1"), [Identity]);
        assert_eq!(ranked("br;q=0, *;q=0.5, gzip"), [Gzip, Zstd, Identity]);
    }

    #[test]
    fn several_fields_are_one_list() {
        let both = Preferences::read([&b"gzip;q=0.3"[..], b"br;q=0.2, gzip"]);
        assert_eq!(both.ranked().collect::<Vec<_>>(), [Gzip, Br, Identity]);
        assert_eq!(both.best(|coding| coding != Gzip), Some(Br));
        assert_eq!(Preferences::read([&b"identity;q=0, br"[..]]).best(|coding| coding == Identity), None);
    }

    #[test]
    fn invalid_items_are_ignored() {
        for odd in [
            "gzip;q=2",
            "gzip;q=-1",
            "gzip;q=1.001",
            "gzip;q=0.1234",
            "gzip;q=",
            "gzip;q",
            "gzip;",
            "gzip;x=1",
            "gzip;q=.5",
            "gzip;q=0.5;x",
            "gzip q=1",
            "gzi p",
            ";;;",
            ",,,",
            "gzip;q=nan",
        ] {
            assert_eq!(ranked(odd), [Identity], "{odd}");
            assert_eq!(ranked(&format!("{odd}, br"))[0], Br, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_accepted(values: Vec<Vec<u8>>) {
            let read = Preferences::read(values.iter().map(Vec::as_slice));
            prop_assert!(read.ranked().all(|coding| read.accepts(coding)));
        }

        #[test]
        fn order_follows_the_weights(br in 0_u32..=1000, zstd in 0_u32..=1000, gzip in 0_u32..=1000) {
            let number = |q: u32| format!("{}.{:03}", q / 1000, q % 1000);
            let value = format!("gzip;q={}, zstd;q={}, br;q={}", number(gzip), number(zstd), number(br));
            let mut wanted = vec![(br, Br), (zstd, Zstd), (gzip, Gzip)];
            wanted.retain(|(q, _)| *q > 0);
            wanted.sort_by_key(|(q, _)| std::cmp::Reverse(*q));
            let wanted: Vec<Coding> = wanted.into_iter().map(|(_, coding)| coding).chain([Identity]).collect();
            prop_assert_eq!(ranked(&value), wanted);
        }
    }
}
