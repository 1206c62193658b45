//! A VM with a safe interface: [`Vm`].
//!
//! Contract:
//! 1. A VM and everything borrowed from it stay on the thread that opened it (`!Send`); only [`Interrupt`]
//!    may be sent to others.
//! 2. A task is a number. It is idle or it waits, as its last [`StepResult`] tells. Starting a waiting task
//!    or resuming an idle one panics here and never reaches Ruby.
//! 3. After [`StepResult::Broken`] every further step returns the same; open another VM.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use mruby_sys as sys;

use crate::tape::{Tape, TapeValue};

/// Runs `Rt.call(op, *args)` and writes its result to the tape. Must not use the VM.
pub type Host = Box<dyn FnMut(u32, &[TapeValue<'_>], &mut Tape)>;

/// Limits of a VM and a step, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct VmLimits {
    pub heap: usize,
    /// The most that one step may add to the heap.
    pub step: usize,
}

/// A Ruby exception.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    pub class: String,
    pub message: String,
    /// Innermost frame first; `file:line` for a syntax error.
    pub backtrace: Vec<String>,
    /// Line and column of a syntax error.
    pub place: Option<(i64, i64)>,
}

impl std::fmt::Display for Exception {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(line) = self.backtrace.first() {
            write!(f, "{line}: ")?;
        }
        write!(f, "{} ({})", self.message, self.class)
    }
}

#[derive(Debug)]
pub enum StepResult {
    /// The task has ended; [`Vm::out`] is its result.
    Done,
    /// The task waits; [`Vm::out`] is the Array of the wait and its arguments.
    Wait,
    /// The task raised.
    Raised(Exception),
    /// The VM has become unusable.
    Broken(Exception),
}

/// A text kept in the VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interned(u32);

/// The key or value of an env.
#[derive(Debug, Clone, Copy)]
pub enum Text<'a> {
    Interned(Interned),
    /// A text to copy.
    Bytes(&'a [u8]),
}

pub struct Vm {
    raw: NonNull<sys::fb_vm>,
    host: NonNull<HostCell>,
    waiting: Vec<bool>,
    fields: Vec<sys::fb_field>,
    shared: Arc<Mutex<Option<Raw>>>,
    broken: Option<Exception>,
    _this_thread: PhantomData<*const ()>,
}

struct HostCell {
    host: RefCell<(Host, Tape)>,
}

struct Raw(*mut sys::fb_vm);
// SAFETY: only `fb_interrupt`, `fb_serial` and `fb_stop` are called through it. They may be called from any
// thread while the VM and its thread live, and the mutex around it is emptied on that thread before the VM is
// closed.
unsafe impl Send for Raw {}

/// Interrupts or stops a VM from another thread.
#[derive(Clone)]
pub struct Interrupt(Arc<Mutex<Option<Raw>>>);

impl Interrupt {
    /// Raises in the current step at its next allocation, or at its next instruction if the library has the debug hook.
    pub fn now(&self) {
        // SAFETY: the pointer is set only while the VM is open.
        self.with((), |vm| unsafe { sys::fb_interrupt(vm) });
    }

    /// Returns the number of the current or last step, for [`Interrupt::stop`].
    pub fn serial(&self) -> u32 {
        // SAFETY: the pointer is set only while the VM is open.
        self.with(0, |vm| unsafe { sys::fb_serial(vm) })
    }

    /// Ends that step even if it rescues every exception. Has no effect if another step runs by now. With the
    /// debug hook the step returns [`StepResult::Raised`]. Without it the step returns [`StepResult::Broken`]
    /// with an exception of [`STOPPED`], at the cost of its VM; no effect if the thread is outside of the
    /// interpreter at that moment; then try again.
    pub fn stop(&self, serial: u32) {
        // SAFETY: the pointer is set only while the VM is open and its thread runs.
        self.with((), |vm| unsafe { sys::fb_stop(vm, serial) });
    }

    fn with<T>(&self, closed: T, ask: impl FnOnce(*mut sys::fb_vm) -> T) -> T {
        match &*self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(Raw(vm)) => ask(*vm),
            None => closed,
        }
    }
}

/// The class of the exception of a step that [`Interrupt::stop`] ended.
pub const STOPPED: &str = "Rt::Stopped";

unsafe extern "C" fn answer(host: *mut c_void, op: u32, args: sys::fb_bytes) -> sys::fb_bytes {
    // SAFETY: `host` is the `HostCell` that `Vm::open` created and that lives as long as the VM.
    let cell = unsafe { &*host.cast::<HostCell>() };
    // SAFETY: the shim's buffer, which does not change before the next entry.
    let given = unsafe { slice(args) };
    let mut host = cell.host.borrow_mut();
    let (host, tape) = &mut *host;
    tape.clear();
    // A panic must not cross C.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match TapeValue::read(given) {
        Some(TapeValue::Array(args)) => host(op, &args, tape),
        _ => drop(tape.fault("ArgumentError", "arguments that cannot be read")),
    }));
    if done.is_err() {
        tape.clear().fault("RuntimeError", "the server failed in this call");
    }
    let bytes = tape.as_bytes();
    sys::fb_bytes { data: bytes.as_ptr(), length: bytes.len() }
}

/// # Safety
/// The bytes must live as long as the result is used.
unsafe fn slice<'a>(bytes: sys::fb_bytes) -> &'a [u8] {
    if bytes.data.is_null() || bytes.length == 0 {
        return &[];
    }
    // SAFETY: see above.
    unsafe { std::slice::from_raw_parts(bytes.data, bytes.length) }
}

fn lent(bytes: &[u8]) -> sys::fb_bytes {
    sys::fb_bytes { data: bytes.as_ptr(), length: bytes.len() }
}

const TASK: &str = include_str!("ruby/task.rb");

impl Vm {
    /// Opens a VM with the prelude of tasks.
    ///
    /// # Errors
    /// There is not enough memory, or the library does not match its headers.
    pub fn open(limits: VmLimits, host: Host) -> Result<Vm, String> {
        let cell = Box::new(HostCell { host: RefCell::new((host, Tape::new())) });
        let host = NonNull::from(Box::leak(cell));
        let config = sys::fb_config {
            host: host.as_ptr().cast(),
            call: answer,
            heap_limit: limits.heap,
            task_limit: limits.step,
        };
        let mut reason: *const c_char = std::ptr::null();
        // SAFETY: both pointers are valid for the call; the host outlives the VM.
        let raw = unsafe { sys::fb_open(&config, &mut reason) };
        let Some(raw) = NonNull::new(raw) else {
            // SAFETY: there is no VM that uses the host.
            drop(unsafe { Box::from_raw(host.as_ptr()) });
            // SAFETY: the shim returns static texts.
            return Err(unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned());
        };
        let mut vm = Vm {
            raw,
            host,
            waiting: Vec::new(),
            fields: Vec::new(),
            shared: Arc::new(Mutex::new(Some(Raw(raw.as_ptr())))),
            broken: None,
            _this_thread: PhantomData,
        };
        vm.eval(TASK, "firebrick/task.rb").map_err(|error| error.to_string())?;
        Ok(vm)
    }

    /// Returns the version of mruby: `3.1.0`; `None` if this program was built without it.
    pub fn version() -> Option<String> {
        // SAFETY: no conditions.
        let text = unsafe { sys::fb_version() };
        // SAFETY: the shim returns static texts.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }

    /// Returns whether the library has the debug hook, so that any code can be interrupted.
    pub fn has_hook() -> bool {
        // SAFETY: no conditions.
        unsafe { sys::fb_has_hook() != 0 }
    }

    /// Returns whether [`Interrupt::stop`] has an effect. Known after the first VM has been opened.
    pub fn can_stop() -> bool {
        // SAFETY: no conditions.
        unsafe { sys::fb_can_stop() != 0 }
    }

    /// Returns a handle for a watchdog.
    pub fn interrupt(&self) -> Interrupt {
        Interrupt(Arc::clone(&self.shared))
    }

    /// Evaluates code that cannot wait, such as preludes.
    ///
    /// # Errors
    /// The exception that the code raised.
    pub fn eval(&mut self, code: &str, file: &str) -> Result<(), Exception> {
        self.source(code, file, sys::fb_eval)
    }

    /// Parses code without running it.
    ///
    /// # Errors
    /// The first syntax error.
    pub fn check(&mut self, code: &str, file: &str) -> Result<(), Exception> {
        self.source(code, file, sys::fb_check)
    }

    fn source(
        &mut self,
        code: &str,
        file: &str,
        entry: unsafe extern "C" fn(*mut sys::fb_vm, *const u8, usize, *const c_char) -> c_int,
    ) -> Result<(), Exception> {
        self.usable()?;
        let name = CString::new(file.replace('\0', "")).unwrap_or_default();
        // SAFETY: the VM is open, code and name live through the call.
        match unsafe { entry(self.raw.as_ptr(), code.as_ptr(), code.len(), name.as_ptr()) } {
            sys::FB_DONE => Ok(()),
            _ => {
                let mut exception = exception(self.out());
                if let Some((line, _)) = exception.place {
                    exception.backtrace = vec![format!("{file}:{line}")];
                }
                Err(exception)
            }
        }
    }

    /// Interns a text in the VM. `None` if memory is short.
    pub fn intern(&mut self, text: &[u8]) -> Option<Interned> {
        self.usable().ok()?;
        // SAFETY: the VM is open, the text lives through the call.
        let number = unsafe { sys::fb_intern(self.raw.as_ptr(), text.as_ptr(), text.len()) };
        (number != u32::MAX).then_some(Interned(number))
    }

    /// Starts `Rt.<job>(*args)`; `args` is a tape of an Array.
    ///
    /// # Panics
    /// The task waits.
    pub fn start(&mut self, task: u32, job: Interned, args: &Tape) -> StepResult {
        if let Some(why) = &self.broken {
            return StepResult::Broken(why.clone());
        }
        self.claim(task);
        // SAFETY: the VM is open, the tape lives through the call.
        let state = unsafe { sys::fb_start(self.raw.as_ptr(), task, job.0, lent(args.as_bytes())) };
        self.step(task, state)
    }

    /// Gives a request to handler number `app`: `Rt.respond(handler, env, more)`. The env is the template of
    /// `Rt.env` with these pairs; `more` is passed as 2 or 1.
    ///
    /// # Panics
    /// The task waits.
    pub fn request<'a>(
        &mut self,
        task: u32,
        app: u32,
        env: impl IntoIterator<Item = (Text<'a>, Text<'a>)>,
        more: bool,
    ) -> StepResult {
        if let Some(why) = &self.broken {
            return StepResult::Broken(why.clone());
        }
        self.claim(task);
        self.fields.clear();
        self.fields.extend(env.into_iter().map(|(key, value)| {
            let ((key, key_length), (value, value_length)) = (raw_text(key), raw_text(value));
            sys::fb_field { key, value, key_length, value_length }
        }));
        let (fields, count) = (self.fields.as_ptr(), self.fields.len());
        // SAFETY: the VM is open, the fields and what they point to live through the call.
        let state = unsafe { sys::fb_request(self.raw.as_ptr(), task, app, fields, count, more.into()) };
        self.step(task, state)
    }

    /// Continues a waiting task.
    ///
    /// # Panics
    /// The task does not wait.
    pub fn resume(&mut self, task: u32, value: &Tape) -> StepResult {
        if let Some(why) = &self.broken {
            return StepResult::Broken(why.clone());
        }
        assert!(self.waiting.get(task as usize) == Some(&true), "task {task} does not wait");
        // SAFETY: the VM is open, the tape lives through the call.
        let state = unsafe { sys::fb_resume(self.raw.as_ptr(), task, lent(value.as_bytes())) };
        self.step(task, state)
    }

    /// Drops the fiber of a waiting task. Its number may be used again; its `ensure` clauses never run.
    pub fn abandon(&mut self, task: u32) {
        if self.broken.is_some() {
            return;
        }
        // SAFETY: the VM is open.
        unsafe { sys::fb_abandon(self.raw.as_ptr(), task) };
        if let Some(waits) = self.waiting.get_mut(task as usize) {
            *waits = false;
        }
    }

    /// Returns the result of the last step.
    pub fn out(&self) -> TapeValue<'_> {
        TapeValue::read(self.tape()).unwrap_or(TapeValue::Nil)
    }

    /// Returns the result of the last step as a tape.
    pub fn tape(&self) -> &[u8] {
        // SAFETY: the buffer changes with the next entry only, which needs `&mut self`.
        unsafe { slice(sys::fb_out(self.raw.as_ptr())) }
    }

    /// Sets the bytes that a step may add to the heap from now on.
    pub fn limit_step(&mut self, bytes: usize) {
        // SAFETY: the VM is open.
        unsafe { sys::fb_limit(self.raw.as_ptr(), bytes) };
    }

    /// Returns the size of the heap in bytes.
    pub fn heap(&self) -> usize {
        // SAFETY: the VM is open.
        unsafe { sys::fb_heap(self.raw.as_ptr()) }
    }

    /// Runs a full collection.
    pub fn collect(&mut self) {
        if self.broken.is_some() {
            return;
        }
        // SAFETY: the VM is open.
        unsafe { sys::fb_collect(self.raw.as_ptr()) };
    }

    fn usable(&self) -> Result<(), Exception> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    fn claim(&mut self, task: u32) {
        let index = task as usize;
        if self.waiting.len() <= index {
            self.waiting.resize(index + 1, false);
        }
        assert!(!self.waiting[index], "task {task} waits");
    }

    fn step(&mut self, task: u32, state: c_int) -> StepResult {
        self.waiting[task as usize] = state == sys::FB_WAIT;
        match state {
            sys::FB_WAIT => StepResult::Wait,
            sys::FB_DONE => match raised(self.tape()) {
                Some(exception) => StepResult::Raised(exception),
                None => StepResult::Done,
            },
            stopped_or_broken => {
                let why =
                    if stopped_or_broken == sys::FB_STOPPED { stopped() } else { exception(self.out()) };
                self.broken = Some(why.clone());
                StepResult::Broken(why)
            }
        }
    }
}

fn stopped() -> Exception {
    Exception {
        class: STOPPED.to_owned(),
        message: "it computed for too long and could not be interrupted".to_owned(),
        backtrace: Vec::new(),
        place: None,
    }
}

fn raw_text(text: Text<'_>) -> (*const u8, u32) {
    match text {
        Text::Interned(Interned(number)) => (std::ptr::null(), number),
        Text::Bytes(bytes) => (bytes.as_ptr(), bytes.len() as u32),
    }
}

/// Reads `[class, message, backtrace]`, or for a syntax error `[class, message, [line, column]]`.
fn exception(value: TapeValue<'_>) -> Exception {
    let parts = value.array().unwrap_or_default();
    let text = |value: &TapeValue<'_>| String::from_utf8_lossy(value.text().unwrap_or_default()).into_owned();
    let rest = parts.get(2).and_then(TapeValue::array).unwrap_or_default();
    Exception {
        class: parts.first().map(text).unwrap_or_default(),
        message: parts.get(1).map(text).unwrap_or_default(),
        backtrace: rest.iter().filter(|line| line.text().is_some()).map(text).collect(),
        place: match rest {
            [TapeValue::Int(line), TapeValue::Int(column)] => Some((*line, *column)),
            _ => None,
        },
    }
}

/// Returns the exception that ended a task: `[:raised, class, message, backtrace]`.
fn raised(tape: &[u8]) -> Option<Exception> {
    // Nearly all results start otherwise and are not read here.
    tape.get(ARRAY_HEAD).filter(|tag| **tag == b':')?;
    match TapeValue::read(tape)? {
        TapeValue::Array(parts) => match parts.as_slice() {
            [TapeValue::Sym(b"raised"), rest @ ..] => Some(exception(TapeValue::Array(rest.to_vec()))),
            _ => None,
        },
        _ => None,
    }
}

/// Bytes of a tape before the first element of an Array: its tag and count.
const ARRAY_HEAD: usize = 5;

impl Drop for Vm {
    fn drop(&mut self) {
        *self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
        if self.broken.is_some() {
            // mruby cannot close a broken VM.
            // SAFETY: nothing else uses the VM: interrupts were cut off above, and no step runs.
            unsafe { sys::fb_discard(self.raw.as_ptr()) };
        } else {
            // SAFETY: as above.
            unsafe { sys::fb_close(self.raw.as_ptr()) };
        }
        // SAFETY: created by `Box::leak` in `open`; the VM that used it is closed.
        drop(unsafe { Box::from_raw(self.host.as_ptr()) });
    }
}
