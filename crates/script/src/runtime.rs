//! A VM with what surrounds it: preludes, the state behind calls, the pool of tasks.

use crate::fetch;
use crate::kit::{self, Kit};
use crate::ops::{self, Call};
use crate::park::Park;
use crate::script::Limits;
use crate::stdlib;
use crate::watchdog::Watched;
use mruby::{Exception, Interned, Step, Tape, Text, Value, Vm};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Is told what goes wrong outside of any request.
pub type Complain = Rc<dyn Fn(&str)>;

/// What calls work on. The VM is not in it: a call must not use it.
pub(crate) struct State {
    pub(crate) park: Park,
    /// Blocks that were given to `task`, to be started when the VM is free.
    pub(crate) spawned: RefCell<Vec<i64>>,
    pub(crate) complain: Complain,
    pub(crate) fetch: fetch::State,
    pub(crate) stdlib: stdlib::State,
    pub(crate) kit: Kit,
}

/// The calls of all areas. Ruby knows a call as area * 256 + row.
const AREAS: &[&[(&str, Call)]] = &[ops::CALLS, stdlib::CALLS, kit::CALLS, fetch::CALLS];

/// Ruby that every VM begins with, in this order.
const PRELUDES: &[(&str, &str)] = &[
    ("server.rb", include_str!("ruby/server.rb")),
    ("respond.rb", include_str!("ruby/respond.rb")),
    ("http.rb", include_str!("ruby/http.rb")),
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
    broken: Cell<bool>,
    /// Whether it is full of what cannot be collected, such as Symbols: those under way may finish.
    full: Cell<bool>,
    heap: usize,
    watched: Watched,
    /// For tasks that belong to no route: those that load handlers, and blocks given to `task`.
    pub(crate) loosest: Arc<Limits>,
    pub(crate) load_app: Interned,
    pub(crate) run_block: Interned,
}

/// A task's place in the VM, idle when dropped in time.
pub(crate) struct Seat {
    runtime: Rc<Runtime>,
    limits: Arc<Limits>,
    number: u32,
    waits: Cell<bool>,
    /// Heap that its steps have added so far, less what was collected meanwhile.
    held: Cell<usize>,
}

impl Runtime {
    /// A VM with a heap of so many bytes.
    ///
    /// # Errors
    /// When there is no mruby, no memory, or a prelude fails.
    pub(crate) fn open(heap: usize, loosest: Limits, complain: Complain) -> Result<Rc<Runtime>, String> {
        let state = Rc::new(State {
            park: Park::default(),
            spawned: RefCell::default(),
            fetch: fetch::State::new(complain.clone()),
            complain,
            stdlib: stdlib::State::default(),
            kit: Kit::default(),
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
        let numbers = numbers();
        let preludes = [("calls.rb", numbers.as_str())]
            .into_iter()
            .chain(PRELUDES.iter().copied())
            .chain(stdlib::PRELUDES.iter().copied())
            .chain(kit::PRELUDES.iter().copied());
        for (file, code) in preludes {
            vm.eval(code, &format!("firebrick/{file}"))
                .map_err(|error| format!("firebrick/{file}: {error}"))?;
        }
        let mut name = |name: &str| vm.intern(name.as_bytes()).ok_or("no memory for a Ruby VM".to_owned());
        let (load_app, run_block) = (name("load_app")?, name("run_block")?);
        Ok(Rc::new(Runtime {
            watched: Watched::new(vm.interrupt()),
            loosest: Arc::new(loosest),
            vm: RefCell::new(vm),
            state,
            idle: RefCell::default(),
            tasks: Cell::new(0),
            broken: Cell::new(false),
            full: Cell::new(false),
            heap,
            load_app,
            run_block,
        }))
    }

    /// A place for a task; `None` when as many as its limits allow are taken.
    pub(crate) fn seat(self: &Rc<Self>, limits: &Arc<Limits>) -> Option<Seat> {
        let taken = self.tasks.get() as usize - self.idle.borrow().len();
        if taken >= limits.max_tasks {
            return None;
        }
        let number = self.idle.borrow_mut().pop().unwrap_or_else(|| {
            self.tasks.set(self.tasks.get() + 1);
            self.tasks.get() - 1
        });
        Some(Seat {
            runtime: self.clone(),
            limits: limits.clone(),
            number,
            waits: Cell::new(false),
            held: Cell::new(0),
        })
    }

    pub(crate) fn intern(&self, text: &[u8]) -> Option<Interned> {
        self.vm.borrow_mut().intern(text)
    }

    /// Whether it can be used no more, or should not be.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get() || self.full.get()
    }

    /// What the last step gave.
    pub(crate) fn out<T>(&self, read: impl FnOnce(Value<'_>) -> T) -> T {
        read(self.vm.borrow().out())
    }
}

impl Seat {
    pub(crate) fn start(&self, job: Interned, args: &Tape) -> Step {
        self.step(|vm| vm.start(self.number, job, args))
    }

    pub(crate) fn request<'a>(&self, app: u32, env: impl IntoIterator<Item = (Text<'a>, Text<'a>)>) -> Step {
        self.step(|vm| vm.request(self.number, app, env))
    }

    pub(crate) fn resume(&self, value: &Tape) -> Step {
        self.step(|vm| vm.resume(self.number, value))
    }

    /// What a step may add to a heap of so many bytes. Who holds much leaves the last quarter of the heap to the others.
    fn room(&self, taken: usize) -> usize {
        let (held, heap) = (self.held.get(), self.runtime.heap);
        let own = self.limits.request_heap.saturating_sub(held);
        if held > heap / 8 { own.min((heap / 4 * 3).saturating_sub(taken)) } else { own }
    }

    fn step(&self, run: impl FnOnce(&mut Vm) -> Step) -> Step {
        let mut vm = self.runtime.vm.borrow_mut();
        let before = vm.heap();
        vm.limit_step(self.room(before));
        let (step, ended) = self.runtime.watched.step(self.limits.step_time, || run(&mut vm));
        // What a collection within the step has freed is credited to it, whoever left it: so nobody pays for old garbage.
        self.held.set((self.held.get() + vm.heap()).saturating_sub(before));
        self.waits.set(matches!(step, Step::Wait));
        if matches!(&step, Step::Raised(error) if error.class == "NoMemoryError") {
            vm.collect();
            self.runtime.full.set(vm.heap() > self.runtime.heap / 4 * 3);
        }
        if matches!(step, Step::Broken(_)) {
            self.runtime.broken.set(true);
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

/// How often a task that is given up may wait once more in its `ensure` before it is left to the collector.
const LAST_WAITS: usize = 4;

impl Drop for Seat {
    fn drop(&mut self) {
        if self.runtime.broken.get() {
            return;
        }
        // What runs in its `ensure` needs memory, too.
        self.held.set(0);
        // Nobody wants the answer any more: the task ends by an exception where it waits, so that its `ensure` runs.
        let mut given_up = Tape::new();
        given_up.fault("Rt::GivenUp", "the client has gone, or the time for this request is over");
        for _ in 0..LAST_WAITS {
            if !self.waits.get() || self.runtime.broken.get() {
                break;
            }
            let _ = self.resume(&given_up);
        }
        if self.waits.get() {
            self.runtime.vm.borrow_mut().abandon(self.number);
        }
        self.runtime.idle.borrow_mut().push(self.number);
    }
}

/// An exception as the log shows it: message, class, and the frames that are not ours.
pub(crate) fn in_log(error: &Exception) -> String {
    let frames: Vec<&str> = error
        .backtrace
        .iter()
        .map(String::as_str)
        .filter(|frame| !frame.starts_with("firebrick/"))
        .take(8)
        .collect();
    let place = if frames.is_empty() { String::new() } else { format!(" at {}", frames.join(", ")) };
    format!("mruby raised: {} ({}){place}", error.message, error.class)
}
