//! A VM with what surrounds it: preludes, the state behind calls, the pool of tasks.

use crate::env;
use crate::fetch;
use crate::kit::{self, Kit};
use crate::observed::Observed;
use crate::ops::{self, Call};
use crate::park::{Park, Passing};
use crate::plan::{Limits, Plan};
use crate::redis;
use crate::stdlib;
use crate::subject::{Asked, Kept, Spot};
use crate::tasks;
use crate::watchdog::Watched;
use handler::Request;
use mruby::{Exception, Interned, Step, Tape, Text, Value, Vm};
use stats::HandlerCounts;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// Is told what goes wrong outside of any request.
pub type Complain = Rc<dyn Fn(&str)>;

/// What calls work on. The VM is not in it: a call must not use it.
pub(crate) struct State {
    pub(crate) park: Park,
    pub(crate) passing: Passing,
    /// Blocks that were given to `task`, to be started when the VM is free.
    pub(crate) spawned: RefCell<Vec<i64>>,
    pub(crate) complain: Complain,
    pub(crate) fetch: fetch::State,
    pub(crate) stdlib: stdlib::State,
    pub(crate) kit: Kit,
    pub(crate) redis: redis::Clients,
}

/// The calls of all areas. Ruby knows a call as area * 256 + row.
const AREAS: &[&[(&str, Call)]] = &[ops::CALLS, stdlib::CALLS, kit::CALLS, fetch::CALLS, redis::CALLS];

/// Ruby that every VM begins with, in this order.
const PRELUDES: &[(&str, &str)] = &[
    ("server.rb", include_str!("ruby/server.rb")),
    ("respond.rb", include_str!("ruby/respond.rb")),
    ("http.rb", include_str!("ruby/http.rb")),
    ("net_http.rb", include_str!("ruby/net_http.rb")),
    ("h2o.rb", include_str!("ruby/h2o.rb")),
];

fn call_of(op: u32) -> Option<Call> {
    AREAS.get(op as usize >> 8)?.get(op as usize & 255).map(|(_, call)| *call)
}

/// Ruby that names the calls.
fn numbers() -> String {
    let rows = AREAS.iter().enumerate().flat_map(|(area, calls)| {
        calls.iter().enumerate().map(move |(row, (name, _))| format!("{name} = {}\n", area << 8 | row))
    });
    format!("module Rt\n{}end\n", rows.collect::<String>())
}

/// One VM and its tasks.
pub(crate) struct Runtime {
    vm: RefCell<Vm>,
    pub(crate) state: Rc<State>,
    idle: RefCell<Vec<u32>>,
    tasks: Cell<u32>,
    /// How many tasks that were given up still have their `ensure` to do.
    parting: Cell<usize>,
    broken: Cell<bool>,
    /// Told when it breaks.
    lost: Notify,
    /// Whether it is full of what cannot be collected, such as Symbols: those under way may finish.
    full: Cell<bool>,
    heap: usize,
    watched: Watched,
    pub(crate) counts: HandlerCounts,
    /// Bytes of its heap that have been counted.
    counted: Cell<usize>,
    /// Where the last step was: what it has spawned is of the same handler.
    last: Cell<Spot>,
    /// For tasks that belong to no route: those that load handlers, and blocks given to `task`.
    pub(crate) loosest: Arc<Limits>,
    pub(crate) load_app: Interned,
    pub(crate) run_block: Interned,
}

/// A task's place in the VM, idle when dropped in time.
pub(crate) struct Seat {
    runtime: Rc<Runtime>,
    limits: Arc<Limits>,
    spot: Spot,
    /// Method and target of its request, once it has waited.
    asked: RefCell<Kept>,
    number: u32,
    waits: Cell<bool>,
    /// Heap that its steps have added so far, less what was collected meanwhile.
    held: Cell<usize>,
    /// It has been given up before, and had its time to end.
    parting: bool,
}

impl Runtime {
    /// A VM for the handlers of `plan`.
    ///
    /// # Errors
    /// When there is no mruby, no memory, or a prelude fails.
    pub(crate) fn open(
        plan: &Arc<Plan>,
        complain: Complain,
        observed: Observed,
    ) -> Result<Rc<Runtime>, String> {
        let heap = plan.heap;
        let loosest = Limits::loosest(plan.routes.iter().map(|route| &*route.limits));
        let Observed { counts, alarm } = observed;
        counts.limits(heap as u64, loosest.max_tasks as u64);
        let state = Rc::new(State {
            park: Park::default(),
            passing: Passing::default(),
            spawned: RefCell::default(),
            fetch: fetch::State::new(complain.clone()),
            complain,
            stdlib: stdlib::State::default(),
            kit: Kit::default(),
            redis: redis::Clients::default(),
        });
        let host = {
            let state = state.clone();
            Box::new(move |op: u32, args: &[Value<'_>], tape: &mut Tape| match call_of(op) {
                Some(call) => call(&state, args, tape),
                None => {
                    tape.fault("NotImplementedError", format!("the server knows no call {op}"));
                }
            })
        };
        let mut vm = Vm::open(mruby::Limits { heap, step: heap }, host)?;
        let (numbers, template) = (numbers(), env::template());
        let preludes = [("calls.rb", numbers.as_str()), ("env.rb", template.as_str())]
            .into_iter()
            .chain(PRELUDES.iter().copied())
            .chain(stdlib::PRELUDES.iter().copied())
            .chain(redis::PRELUDES.iter().copied())
            .chain(kit::PRELUDES.iter().copied());
        for (file, code) in preludes {
            vm.eval(code, &format!("firebrick/{file}"))
                .map_err(|error| format!("firebrick/{file}: {error}"))?;
        }
        let mut name = |name: &str| vm.intern(name.as_bytes()).ok_or("no memory for a Ruby VM".to_owned());
        let (load_app, run_block) = (name("load_app")?, name("run_block")?);
        let taken = vm.heap();
        counts.heap(0, taken);
        Ok(Rc::new(Runtime {
            watched: Watched::new(vm.interrupt(), plan.clone(), alarm),
            counts,
            counted: Cell::new(taken),
            last: Cell::default(),
            loosest: Arc::new(loosest),
            vm: RefCell::new(vm),
            state,
            idle: RefCell::default(),
            tasks: Cell::new(0),
            parting: Cell::new(0),
            broken: Cell::new(false),
            lost: Notify::new(),
            full: Cell::new(false),
            heap,
            load_app,
            run_block,
        }))
    }

    /// A place for a task of the handler at `spot`; `None` when as many as its limits allow are taken.
    pub(crate) fn seat(self: &Rc<Self>, limits: &Arc<Limits>, spot: Spot) -> Option<Seat> {
        // Those that were given up keep nobody out.
        if self.under_way() - self.parting.get() >= limits.max_tasks {
            return None;
        }
        let number = self.idle.borrow_mut().pop().unwrap_or_else(|| {
            self.tasks.set(self.tasks.get() + 1);
            self.tasks.get() - 1
        });
        self.counts.began();
        Some(Seat {
            runtime: self.clone(),
            limits: limits.clone(),
            spot,
            asked: RefCell::default(),
            number,
            waits: Cell::new(false),
            held: Cell::new(0),
            parting: false,
        })
    }

    /// Where the last step was, for what it has begun.
    pub(crate) fn last_spot(&self) -> Spot {
        self.last.get()
    }

    /// Counts the heap as it is now.
    fn count_heap(&self, now: usize) {
        self.counts.heap(self.counted.replace(now), now);
    }

    pub(crate) fn intern(&self, text: &[u8]) -> Option<Interned> {
        self.vm.borrow_mut().intern(text)
    }

    /// Whether it can be used no more, or should not be.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get() || self.full.get()
    }

    /// What the last step gave, unread.
    pub(crate) fn tape<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        read(self.vm.borrow().tape())
    }

    /// How many tasks have a seat.
    pub(crate) fn under_way(&self) -> usize {
        self.tasks.get() as usize - self.idle.borrow().len()
    }

    /// Ready when it can be used no more: what waits in it will never go on.
    pub(crate) async fn lost(&self) -> Exception {
        let told = self.lost.notified();
        if !self.broken.get() {
            told.await;
        }
        Exception {
            class: mruby::STOPPED.to_owned(),
            message: "another request broke this thread's VM, in which this one waited".to_owned(),
            backtrace: Vec::new(),
            place: None,
        }
    }

    /// What the last step gave.
    pub(crate) fn out<T>(&self, read: impl FnOnce(Value<'_>) -> T) -> T {
        read(self.vm.borrow().out())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.count_heap(0);
    }
}

impl Seat {
    pub(crate) fn start(&self, job: Interned, args: &Tape) -> Step {
        self.step([b"", b""], |vm| vm.start(self.number, job, args))
    }

    pub(crate) fn request<'a>(
        &self,
        app: u32,
        request: &Request,
        env: impl IntoIterator<Item = (Text<'a>, Text<'a>)>,
        more: bool,
    ) -> Step {
        let asked = [request.method(), request.target()];
        let step = self.step(asked, |vm| vm.request(self.number, app, env, more));
        if matches!(step, Step::Wait) {
            *self.asked.borrow_mut() = Kept::new(asked);
        }
        step
    }

    pub(crate) fn resume(&self, value: &Tape) -> Step {
        self.step(self.asked.borrow().asked(), |vm| vm.resume(self.number, value))
    }

    /// What a step may add to a heap of so many bytes. Who holds much leaves the last quarter of the heap to the others.
    fn room(&self, taken: usize) -> usize {
        let (held, heap) = (self.held.get(), self.runtime.heap);
        let own = self.limits.request_heap.saturating_sub(held);
        if held > heap / 8 { own.min((heap / 4 * 3).saturating_sub(taken)) } else { own }
    }

    /// Says whether it waits.
    fn wait(&self, waits: bool) {
        if self.waits.replace(waits) != waits {
            let counts = &self.runtime.counts;
            if waits { counts.suspended() } else { counts.resumed() }
        }
    }

    fn step(&self, asked: Asked<'_>, run: impl FnOnce(&mut Vm) -> Step) -> Step {
        let mut vm = self.runtime.vm.borrow_mut();
        self.runtime.last.set(self.spot);
        self.wait(false);
        let before = vm.heap();
        vm.limit_step(self.room(before));
        let (step, ended) =
            self.runtime.watched.step(self.limits.step_time, self.spot, asked, || run(&mut vm));
        // What a collection within the step has freed is credited to it, whoever left it: so nobody pays for old garbage.
        self.held.set((self.held.get() + vm.heap()).saturating_sub(before));
        self.wait(matches!(step, Step::Wait));
        if matches!(&step, Step::Raised(error) if error.class == "NoMemoryError") {
            vm.collect();
            self.runtime.full.set(vm.heap() > self.runtime.heap / 4 * 3);
        }
        self.runtime.count_heap(vm.heap());
        if matches!(step, Step::Broken(_)) {
            self.runtime.broken.set(true);
            self.runtime.lost.notify_waiters();
        }
        match step {
            // Without the debug hook it looks like a lack of memory.
            Step::Raised(error) if ended => Step::Raised(Exception {
                class: TOO_LONG.to_owned(),
                message: "it computed for longer than mruby.step_time without waiting".to_owned(),
                ..error
            }),
            Step::Broken(error) if ended && error.class == mruby::STOPPED => Step::Broken(Exception {
                message: "it computed for longer than mruby.step_time and could not be interrupted: this thread's VM is \
                          replaced, and what waited in it is lost"
                    .to_owned(),
                ..error
            }),
            step => step,
        }
    }
}

/// Class of the exception that ends a step which takes too long.
const TOO_LONG: &str = "Rt::Interrupted";

/// How often a task that does not let go of its wait hears that it is given up before it is left to the collector.
const LAST_WORDS: usize = 4;

impl Seat {
    /// Nobody wants the answer any more: an exception where it waits, so that its `ensure` runs.
    pub(crate) fn give_up(&self) -> Step {
        // What runs there needs memory, too.
        self.held.set(0);
        let mut given_up = Tape::new();
        given_up.fault("Rt::GivenUp", "the client has gone, or the time for this request is over");
        self.resume(&given_up)
    }

    /// Whether its `ensure` may wait: not again and again, not when as many do so already as may be under way, and not where no
    /// loop runs any more.
    fn may_part(&self) -> bool {
        let others = self.runtime.parting.get();
        !self.parting && others < self.limits.max_tasks && tokio::runtime::Handle::try_current().is_ok()
    }

    /// The same task, given up.
    fn parting(&self) -> Seat {
        self.runtime.parting.update(|count| count + 1);
        self.runtime.counts.began();
        self.runtime.counts.suspended();
        Seat {
            runtime: self.runtime.clone(),
            limits: self.limits.clone(),
            spot: self.spot,
            asked: RefCell::new(self.asked.take()),
            number: self.number,
            waits: Cell::new(true),
            held: Cell::new(0),
            parting: true,
        }
    }

    /// Gives its place back, or leaves it to the same task once more.
    fn leave(&self) {
        self.runtime.counts.ended();
        if self.runtime.broken.get() {
            return;
        }
        if self.waits.get() && self.may_part() {
            return tasks::see_off(&self.runtime, self.parting());
        }
        if self.waits.get() {
            self.abandon();
        }
        self.runtime.idle.borrow_mut().push(self.number);
    }

    /// Ends it for good, whatever it still wants.
    fn abandon(&self) {
        for _ in 0..LAST_WORDS {
            let _ = self.give_up();
            if !self.waits.get() || self.runtime.broken.get() {
                return;
            }
        }
        self.runtime.vm.borrow_mut().abandon(self.number);
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.parting {
            self.runtime.parting.update(|count| count - 1);
        }
        self.leave();
        self.wait(false);
    }
}

/// An exception as the log shows it: message, class, and the frames that are not ours.
pub(crate) fn in_log(error: &Exception) -> String {
    let frames: Vec<&str> = error
        .backtrace
        .iter()
        .map(String::as_str)
        .filter(|frame| !frame.starts_with("firebrick/"))
        // A handler's file is evaluated: so are all its blocks.
        .map(|frame| frame.strip_suffix(":in eval").unwrap_or(frame))
        .take(8)
        .collect();
    let place = if frames.is_empty() { String::new() } else { format!(" at {}", frames.join(", ")) };
    format!("mruby raised: {} ({}){place}", error.message, error.class)
}
