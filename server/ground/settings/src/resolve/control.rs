//! Addresses of the control server, and the one that its clients use.

use std::collections::BTreeSet;

use super::ResolveContext;
use super::listen::fits_a_socket;
use crate::kind::lists::ControlPart;
use crate::origin::ValueSource;
use crate::settings::Control;
use crate::table::listen::{CONTROL, CONTROL_TOKEN};
use crate::table::taker::{CheckedValue, Taker};
use crate::value::control::ControlAddress;

/// Keeps the Unix socket of the directory unless another one or `off` is written: it costs nothing and needs no token.
pub(super) fn control(taker: &Taker<'_>, facts: &ResolveContext) -> Control {
    let CheckedValue { value: parts, origin } = taker.take(&CONTROL);
    let auto = ControlAddress::Unix(facts.control.clone());
    let written: Vec<ControlAddress> = parts
        .iter()
        .filter_map(|part| match part {
            ControlPart::Auto => Some(auto.clone()),
            ControlPart::Off => None,
            ControlPart::At(address) => Some(address.clone()),
        })
        .collect();
    check(taker, &parts, &written);
    let unix = |address: &ControlAddress| matches!(address, ControlAddress::Unix(_));
    let implied = !parts.contains(&ControlPart::Off) && !written.iter().any(unix);
    let typed_auto = facts.typed_control.as_ref().filter(|_| implied || written.contains(&auto));
    let elsewhere = facts.control_elsewhere.clone().filter(|_| implied || written.contains(&auto));
    let mut listen: Vec<ControlAddress> = implied.then_some(auto).into_iter().collect();
    listen.extend(written.iter().filter(|address| unix(address)).cloned());
    listen.extend(written.iter().filter(|address| !unix(address)).cloned());
    // Clients use the typed address, not one that the server would add to it.
    let typed = matches!(origin, ValueSource::Flag(_)).then(|| written.first().cloned()).flatten();
    let by_link = typed_auto.filter(|link| link.exists).map(|link| ControlAddress::Unix(link.path.clone()));
    let ask = typed.or(by_link).or(elsewhere.map(ControlAddress::Unix)).or_else(|| listen.first().cloned());
    let link = typed_auto.map(|link| link.path.clone());
    Control { listen, link, ask, token: taker.take(&CONTROL_TOKEN).value }
}

fn check(taker: &Taker<'_>, parts: &[ControlPart], written: &[ControlAddress]) {
    for (index, address) in written.iter().enumerate() {
        if written[..index].iter().any(|known| known.clashes_with(address)) {
            taker.conflict(&CONTROL.about, format!("{address} is there twice"));
        }
        if let ControlAddress::Unix(path) = address {
            fits_a_socket(taker, &CONTROL.about, path);
        }
    }
    let names = taker.written(&CONTROL).iter().filter_map(|written| match &written.origin {
        ValueSource::Flag(name) => Some(name),
        _ => None,
    });
    if names.collect::<BTreeSet<_>>().len() > 1 {
        taker.conflict(&CONTROL.about, "--control and --control-url are the same; write all of them as one");
    }
    if parts.contains(&ControlPart::Off) && written.iter().any(|one| matches!(one, ControlAddress::Unix(_))) {
        taker.conflict(&CONTROL.about, "\"off\" turns the Unix socket off, and another part asks for one");
    }
}
