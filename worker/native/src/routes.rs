//! The names of the app's routes: found in the env of a request when the app has returned, each with a number that RESPONSE and END carry.
//!
//! Why: only the app knows what a request is for. Frameworks leave it in the env; nothing has to be added to the app.
//!
//! | framework | what the env has | name |
//! |---|---|---|
//! | any | `firebrick.route`, a String | that |
//! | Grape | `grape.routing_args`, a Hash with `:route_info` | method and path: `GET /posts/:id` |
//! | Sinatra | `sinatra.route`, a String | that: `GET /posts/:id` |
//! | Hanami 2.2 | `hanami.action_instance` | its class: `Books::Show` |
//! | Rails | `action_dispatch.request.path_parameters`, a Hash | `posts#show` |
//! | Rails 7.1 | `action_dispatch.route_uri_pattern`, where no action was found | method and pattern |
//!
//! Places in the app ([`crate::queries`], [`crate::holds`]) have numbers of the same table.
//!
//! The order is that in which one is mounted in another, the innermost first. Only frameworks that are loaded are asked for.
//!
//! Contract: a known name costs the look-ups in the env and one in a table, and allocates nothing. At most [`route::MOST`] names get a number, for as
//! long as the process lives. An object that a framework does not have, or not as expected, is no error.

use crate::names::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::ruby::{self, Value};
use crate::raw::slots::RootSlot;
use crate::repeats::shape;
use crate::worker::task::Task;
use rustc_hash::FxBuildHasher;
use std::collections::HashMap;
use wire::route;

/// The frameworks that are loaded, as `Firebrick::Routes` numbers them.
mod source {
    pub(super) const RAILS: usize = 1;
    pub(super) const SINATRA: usize = 2;
    pub(super) const GRAPE: usize = 4;
    pub(super) const HANAMI: usize = 8;
}

#[derive(Default)]
struct Table {
    /// Bits of [`source`].
    sources: usize,
    /// Names by their numbers less one.
    names: Vec<&'static str>,
    /// Numbers by what the app calls the routes. 0: the name cannot be used, or there are too many.
    numbers: HashMap<Box<[u8]>, u16, FxBuildHasher>,
    /// Numbers by the objects that stand for routes, which are kept alive.
    objects: HashMap<usize, u16, FxBuildHasher>,
}

static TABLE: Guarded<Option<Table>> = Guarded::new(None);

fn table<R>(gvl: &Gvl, work: impl FnOnce(&mut Table) -> R) -> R {
    TABLE.with(gvl, |table| work(table.get_or_insert_with(Table::default)))
}

/// Finds out which frameworks are loaded, and follows their queries. The app is loaded. May raise.
pub(crate) fn look_for_frameworks(gvl: &mut Gvl) {
    let found = ruby::call(gvl, names().routes.get(), names().install, &[]);
    let sources = found.fixnum().and_then(|found| usize::try_from(found).ok()).unwrap_or(0);
    table(gvl, |table| table.sources = sources);
}

/// Returns the name of a route.
pub(crate) fn name(gvl: &Gvl, number: u16) -> &'static str {
    let at = usize::from(number).checked_sub(1);
    table(gvl, |table| at.and_then(|at| table.names.get(at)).copied().unwrap_or_default())
}

/// Returns a number for what a request is for while the app serves it: that of its route if the app's framework has said it, otherwise one of its
/// path without its numbers.
pub(crate) fn key(gvl: &mut Gvl, task: &'static Task) -> u64 {
    let env = task.env.get();
    if !env.is_hash(gvl) {
        return 0;
    }
    match number(gvl, env) {
        0 => {
            let path = ruby::hash_get(gvl, env, names().path_info.get());
            if path.is_string(gvl) { shape(path.bytes(gvl)) } else { 0 }
        }
        number => number.into(),
    }
}

/// Finds the route of a request whose app has returned.
#[inline]
pub(crate) fn find(gvl: &mut Gvl, task: &'static Task) {
    if task.route.get() == 0 && task.env.get().is_hash(gvl) {
        let number = number(gvl, task.env.get());
        task.route.set(number);
    }
}

#[inline]
fn number(gvl: &mut Gvl, env: Value) -> u16 {
    let keys = names();
    let own = ruby::hash_get(gvl, env, keys.own_route.get());
    if own.is_string(gvl) {
        return numbered(gvl, own.bytes(gvl));
    }
    match table(gvl, |table| table.sources) {
        0 => 0,
        sources => of_framework(gvl, env, sources).unwrap_or(0),
    }
}

fn of_framework(gvl: &mut Gvl, env: Value, sources: usize) -> Option<u16> {
    let keys = names();
    if sources & source::GRAPE != 0
        && let args = ruby::hash_get(gvl, env, keys.grape_args.get())
        && args.is_hash(gvl)
        && let route = ruby::hash_get(gvl, args, keys.route_info.get())
        && !route.is_nil()
    {
        return Some(of_object(gvl, route));
    }
    if sources & source::SINATRA != 0
        && let route = ruby::hash_get(gvl, env, keys.sinatra_route.get())
        && route.is_string(gvl)
    {
        return Some(numbered(gvl, route.bytes(gvl)));
    }
    if sources & source::HANAMI != 0
        && let action = ruby::hash_get(gvl, env, keys.hanami_action.get())
        && !action.is_nil()
    {
        let class = ruby::class_of(gvl, action);
        return Some(of_object(gvl, class));
    }
    if sources & source::RAILS != 0 {
        return of_rails(gvl, env);
    }
    None
}

fn of_rails(gvl: &mut Gvl, env: Value) -> Option<u16> {
    let keys = names();
    let parameters = ruby::hash_get(gvl, env, keys.path_parameters.get());
    if parameters.is_hash(gvl) {
        let controller = ruby::hash_get(gvl, parameters, keys.controller.get());
        let action = ruby::hash_get(gvl, parameters, keys.action.get());
        if controller.is_string(gvl) && action.is_string(gvl) {
            return Some(joined(gvl, controller.bytes(gvl), b"#", action.bytes(gvl)));
        }
    }
    let pattern = ruby::hash_get(gvl, env, keys.uri_pattern.get());
    let method = ruby::hash_get(gvl, env, keys.request_method.get());
    let both = pattern.is_string(gvl) && method.is_string(gvl);
    both.then(|| joined(gvl, method.bytes(gvl), b" ", pattern.bytes(gvl)))
}

/// Returns the number of a name of two parts.
fn joined(gvl: &Gvl, first: &[u8], sign: &[u8], second: &[u8]) -> u16 {
    let (mut name, mut len) = ([0; route::LONGEST], 0);
    for part in [first, sign, second] {
        let part = &part[..part.len().min(name.len() - len)];
        name[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    numbered(gvl, &name[..len])
}

/// Returns the number of a name.
#[inline]
pub(crate) fn numbered(gvl: &Gvl, name: &[u8]) -> u16 {
    let name = &name[..name.len().min(route::LONGEST)];
    table(gvl, |table| match table.numbers.get(name) {
        Some(&number) => number,
        None => table.add(name),
    })
}

/// Returns the number of an object that stands for a route. Its name is asked for once.
fn of_object(gvl: &mut Gvl, object: Value) -> u16 {
    if let Some(number) = table(gvl, |table| table.objects.get(&object.id()).copied()) {
        return number;
    }
    name_of_object(gvl, object)
}

#[cold]
fn name_of_object(gvl: &mut Gvl, object: Value) -> u16 {
    if table(gvl, |table| table.objects.len() >= usize::from(route::MOST)) {
        return 0;
    }
    let mut number = 0;
    let named = ruby::protect(gvl, |gvl| {
        let name = ruby::call(gvl, names().routes.get(), names().name, &[object]);
        number = if name.is_string(gvl) { numbered(gvl, name.bytes(gvl)) } else { 0 };
        // The object stays where it is, so that its number is not that of another one.
        RootSlot::leak(gvl, object);
    });
    if named.is_ok() {
        table(gvl, |table| table.objects.insert(object.id(), number));
    }
    number
}

impl Table {
    #[cold]
    fn add(&mut self, name: &[u8]) -> u16 {
        if self.numbers.len() >= usize::from(route::MOST) {
            return 0;
        }
        let clean = cleaned(name);
        let number = match route::is_name(&clean) {
            true => {
                self.names.push(String::leak(clean));
                self.names.len() as u16
            }
            false => 0,
        };
        self.numbers.insert(name.into(), number);
        number
    }
}

/// Returns a name without control characters and what is not UTF-8, as short as names must be.
fn cleaned(name: &[u8]) -> String {
    let mut clean = String::new();
    for sign in String::from_utf8_lossy(name).chars() {
        let sign = if sign.is_control() { ' ' } else { sign };
        if clean.len() + sign.len_utf8() > route::LONGEST {
            break;
        }
        clean.push(sign);
    }
    clean
}
