//! Which route has allocated an object, for `firebrick leaks --trace` (`worker/lib/firebrick/heap/tracing.rb`). Costs nothing otherwise.
//!
//! How: while it records, Ruby reports each new object ([`crate::raw::objects`]). The table keeps its address with the number of the request that the
//! thread or fiber serves. The route of a request is known when the app has returned, so numbers get their routes at the end of the request. The child
//! that writes a dump adds the routes to the lines of the objects ([`wire::dump`]), on a thread of its own, while Ruby writes them.
//!
//! Contract:
//! 1. Memory is bounded: by [`MOST_OBJECTS`], and the numbers of requests by the objects and the requests that are served: a number is reused when its
//!    request has ended and none of its objects is left.
//! 2. Code that runs on another thread than the request's, or in a fiber of `Fiber.schedule`, serves no request.
//! 3. After a compaction nothing is known of older objects, because they may have moved.

use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::methods::Module;
use crate::raw::objects::{self, ObjectWatcher};
use crate::raw::os;
use crate::raw::ruby::{self, NIL, Value};
use crate::routes;
use crate::worker::task::{CURRENT, Task};
use rustc_hash::FxBuildHasher;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{IntoRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle};
use wire::dump::{self, RouteAdder};

/// The most objects whose requests are kept, about 24 bytes each. Further ones have no known route.
const MOST_OBJECTS: usize = 8 << 20;
/// The number of bytes of a dump that are read at a time.
const PIECE: usize = 64 << 10;

static RECORDS: AtomicBool = AtomicBool::new(false);
static TABLE: Guarded<Option<Table>> = Guarded::new(None);
/// The thread of a child that adds the routes to its dump.
static ADDING: Guarded<Option<JoinHandle<io::Result<()>>>> = Guarded::new(None);

static WATCHER: ObjectWatcher = ObjectWatcher { created, freed, compacted };

/// The objects that have been allocated since the start.
struct Table {
    /// The numbers of their requests, by address.
    objects: HashMap<usize, u32, FxBuildHasher>,
    /// By number.
    requests: Vec<Allocator>,
    /// The numbers that can be given out again.
    spare: Vec<u32>,
}

/// A request that allocates, or has allocated.
struct Allocator {
    /// One of [`dump`] while no route is known.
    route: u16,
    /// The objects that are left.
    objects: u32,
    /// It is still being served.
    served: bool,
}

/// The number that stands for code which serves no request.
const NO_REQUEST: u32 = 0;

/// Defines the methods.
pub(crate) fn define(module: &Module) {
    module.define(c"record_allocations", record);
    module.define(c"add_routes", add_routes);
    module.define(c"routes_added", routes_added);
}

/// Starts or ends the recording.
fn record(gvl: &mut Gvl, wanted: Value) -> Value {
    match wanted.truthy() {
        true => start(gvl),
        false => drop(stop(gvl)),
    }
    NIL
}

fn start(gvl: &mut Gvl) {
    if RECORDS.swap(true, Relaxed) {
        return;
    }
    Task::all(gvl).iter().for_each(|task| task.allocates.set((0, NO_REQUEST)));
    TABLE.with(gvl, |table| *table = Some(Table::new()));
    objects::follow(gvl, &WATCHER);
}

/// Ends the recording. Returns what it has recorded.
fn stop(gvl: &mut Gvl) -> Option<Table> {
    if RECORDS.swap(false, Relaxed) {
        objects::unfollow(gvl);
    }
    TABLE.with(gvl, Option::take)
}

/// Records that a request has ended.
#[inline]
pub(crate) fn ended(gvl: &Gvl, task: &'static Task) {
    if RECORDS.load(Relaxed) {
        let (serial, number) = task.allocates.replace((0, NO_REQUEST));
        if serial == task.request.get() {
            with(gvl, |table| table.ends(number, task.route.get()));
        }
    }
}

fn with(gvl: &Gvl, work: impl FnOnce(&mut Table)) {
    TABLE.with(gvl, |table| table.as_mut().map(work));
}

fn created(gvl: &Gvl, object: usize) {
    with(gvl, |table| {
        let number = match CURRENT.get().filter(|task| task.active.get()) {
            None => NO_REQUEST,
            Some(task) => match task.allocates.get() {
                (serial, number) if serial == task.request.get() => number,
                _ => {
                    let number = table.begins();
                    task.allocates.set((task.request.get(), number));
                    number
                }
            },
        };
        table.insert(object, number);
    });
}

fn freed(gvl: &Gvl, object: usize) {
    with(gvl, |table| table.remove(object));
}

fn compacted(gvl: &Gvl) {
    with(gvl, Table::forget);
}

impl Table {
    fn new() -> Table {
        let nobody = Allocator { route: dump::NO_REQUEST, objects: 0, served: true };
        Table { objects: HashMap::default(), requests: vec![nobody], spare: Vec::new() }
    }

    /// Returns the number of a request that begins to allocate.
    fn begins(&mut self) -> u32 {
        let request = Allocator { route: dump::NO_ROUTE, objects: 0, served: true };
        match self.spare.pop() {
            Some(number) => {
                self.requests[number as usize] = request;
                number
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        }
    }

    /// `route`: 0: it has none.
    fn ends(&mut self, number: u32, route: u16) {
        let request = &mut self.requests[number as usize];
        request.served = false;
        if route != 0 {
            request.route = route;
        }
        self.reuse(number);
    }

    fn reuse(&mut self, number: u32) {
        let request = &self.requests[number as usize];
        if !request.served && request.objects == 0 {
            self.spare.push(number);
        }
    }

    fn insert(&mut self, object: usize, number: u32) {
        // Its end may have been missed.
        self.remove(object);
        if self.objects.len() < MOST_OBJECTS {
            self.objects.insert(object, number);
            self.requests[number as usize].objects += 1;
        }
    }

    fn remove(&mut self, object: usize) {
        if let Some(number) = self.objects.remove(&object) {
            self.requests[number as usize].objects -= 1;
            self.reuse(number);
        }
    }

    fn forget(&mut self) {
        for number in std::mem::take(&mut self.objects).into_values() {
            self.requests[number as usize].objects -= 1;
            self.reuse(number);
        }
    }

    /// Returns the route of an object; `None`: it is not recorded.
    fn route(&self, object: u64) -> Option<u16> {
        let number = self.objects.get(&usize::try_from(object).ok()?)?;
        Some(self.requests[*number as usize].route)
    }
}

/// Starts the thread that copies a dump to the descriptor `to`, with the routes of the objects. Returns the descriptor to write the dump to. Only
/// in the child that writes it: this ends the recording.
fn add_routes(gvl: &mut Gvl, to: Value) -> Value {
    let to = to.fixnum().and_then(|fd| RawFd::try_from(fd).ok()).unwrap_or(-1);
    find_routes(gvl);
    let table = stop(gvl).unwrap_or_else(Table::new);
    let routes: HashSet<u16> = table.requests.iter().map(|request| request.route).collect();
    let mut names: Vec<(u16, &'static str)> =
        routes.into_iter().map(|route| (route, routes::name(gvl, route))).collect();
    names.sort_unstable();
    let begun = os::set_blocking(to).and_then(|()| os::duplicate(to)).and_then(|to| {
        let (from, dump) = io::pipe()?;
        let thread = Builder::new().spawn(move || copy(from, to, &table, &names))?;
        Ok((thread, dump))
    });
    match begun {
        Ok((thread, dump)) => {
            ADDING.with(gvl, |adding| *adding = Some(thread));
            ruby::integer(gvl, i64::from(dump.into_raw_fd()))
        }
        Err(error) => raise(gvl, &error),
    }
}

/// Waits for the end of the copy, after the descriptor of [`add_routes`] was closed.
fn routes_added(gvl: &mut Gvl) -> Value {
    let copied = match ADDING.with(gvl, Option::take).map(JoinHandle::join) {
        Some(Ok(copied)) => copied,
        Some(Err(_)) => Err(io::Error::other("the thread that adds the routes has failed")),
        None => Ok(()),
    };
    match copied {
        Ok(()) => NIL,
        Err(error) => raise(gvl, &error),
    }
}

fn raise(gvl: &mut Gvl, error: &io::Error) -> ! {
    let class = ruby::runtime_error(gvl);
    ruby::raise(gvl, class, error.to_string())
}

/// Finds the routes of the requests that are being served, as far as the app's framework has told them.
fn find_routes(gvl: &mut Gvl) {
    for task in Task::all(gvl) {
        let (serial, number) = task.allocates.get();
        if task.active.get() && serial == task.request.get() {
            routes::find(gvl, task);
            with(gvl, |table| table.ends(number, task.route.get()));
        }
    }
}

fn copy(mut from: impl Read, mut to: File, table: &Table, names: &[(u16, &str)]) -> io::Result<()> {
    let (mut adder, mut piece, mut out) = (RouteAdder::default(), vec![0; PIECE], Vec::new());
    names.iter().for_each(|(route, name)| dump::define(*route, name, &mut out));
    loop {
        to.write_all(&out)?;
        out.clear();
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(len) => adder.copy(&piece[..len], |object| table.route(object), &mut out),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
