//! Tests of tasks on a real VM: results, waits and limits.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use mruby::{Exception, Interned, StepResult, Tape, TapeValue, Text, Vm, VmLimits};

const RESPOND: &str =
    "module Rt; def self.respond(app, env, _); response = app.call(env); plain(response) || response; end; end
     module Kernel; def sleep(n); Rt.wait!(:sleep, n); end; end";

/// Opens a VM whose host returns its arguments; `None` in a build without mruby.
pub(crate) fn open() -> Option<Vm> {
    Vm::version()?;
    let limits = VmLimits { heap: 64 << 20, step: 32 << 20 };
    let echo = |_: u32, args: &[TapeValue<'_>], tape: &mut Tape| {
        tape.value(&TapeValue::Array(args.to_vec()));
    };
    let mut vm = Vm::open(limits, Box::new(echo)).unwrap();
    vm.eval(RESPOND, "respond.rb").unwrap();
    Some(vm)
}

fn load(vm: &mut Vm, code: &str) -> StepResult {
    let job = vm.intern(b"load_app").unwrap();
    let mut args = Tape::new();
    args.array(2).str(code).str("handler.rb");
    vm.start(0, job, &args)
}

pub(crate) fn app(vm: &mut Vm, code: &str) -> u32 {
    let step = load(vm, code);
    assert!(matches!(step, StepResult::Done), "{step:?}");
    vm.out().int().unwrap() as u32
}

pub(crate) fn raised(step: StepResult) -> Exception {
    match step {
        StepResult::Raised(exception) => exception,
        other => panic!("{other:?} instead of an exception"),
    }
}

pub(crate) fn body(vm: &Vm) -> String {
    let out = vm.out();
    let text = out.array().unwrap()[2].array().unwrap()[0].text().unwrap();
    String::from_utf8_lossy(text).into_owned()
}

#[test]
fn a_handler_responds() {
    let Some(mut vm) = open() else { return };
    let code = "class App; def call(env); [200, {'a' => 'b'}, [env['PATH_INFO'], 'x']]; end; end; App.new";
    let app = app(&mut vm, code);
    let key = vm.intern(b"PATH_INFO").unwrap();
    for _ in 0..3 {
        let step = vm.request(1, app, [(Text::Interned(key), Text::Bytes(b"/a"))], false);
        assert!(matches!(step, StepResult::Done), "{step:?}");
        let [fields, parts] = [["a", "b"], ["/a", "x"]].map(|texts| {
            TapeValue::Array(texts.iter().map(|text| TapeValue::Str(text.as_bytes())).collect())
        });
        assert_eq!(vm.out(), TapeValue::Array(vec![TapeValue::Int(200), fields, parts]));
    }
}

#[test]
fn concurrent_tasks_get_their_own_results() {
    let Some(mut vm) = open() else { return };
    let app = app(&mut vm, "lambda { |env| a = sleep(0.5); [200, {}, [a.to_s]] }");
    for task in 0..3 {
        assert!(matches!(vm.request(task, app, [], false), StepResult::Wait));
        assert_eq!(vm.out(), TapeValue::Array(vec![TapeValue::Sym(b"sleep"), TapeValue::Float(0.5)]));
    }
    for task in [2, 0, 1] {
        let mut answer = Tape::new();
        answer.int(i64::from(task));
        assert!(matches!(vm.resume(task, &answer), StepResult::Done));
        assert_eq!(body(&vm), task.to_string());
    }
}

#[test]
fn an_exception_is_raised_where_the_task_waits() {
    let Some(mut vm) = open() else { return };
    let app =
        app(&mut vm, "lambda { |env| begin; sleep 1; rescue KeyError => e; [200, {}, [e.message]]; end }");
    assert!(matches!(vm.request(1, app, [], false), StepResult::Wait));
    let mut answer = Tape::new();
    answer.fault("KeyError", "no such key");
    assert!(matches!(vm.resume(1, &answer), StepResult::Done));
    assert_eq!(body(&vm), "no such key");
    assert!(matches!(vm.request(1, app, [], false), StepResult::Wait));
    answer.clear().fault("No::Such", "odd");
    let error = raised(vm.resume(1, &answer));
    assert_eq!((error.class.as_str(), error.message.as_str()), ("RuntimeError", "No::Such: odd"));
}

#[test]
fn tasks_can_wait_in_fibers_and_enumerators_of_the_handler() {
    let Some(mut vm) = open() else { return };
    let code = "lambda { |env|
        f = Fiber.new { |x| y = sleep(x); Fiber.yield(y + 1); y + 2 }
        e = Enumerator.new { |out| out << sleep(5); out << sleep(6) }
        [200, {}, [[f.resume(4), f.resume, e.next, e.next].inspect]]
      }";
    let app = app(&mut vm, code);
    let mut step = vm.request(1, app, [], false);
    let mut answer = Tape::new();
    for seconds in [4, 5, 6] {
        assert!(matches!(step, StepResult::Wait), "{step:?}");
        assert_eq!(vm.out(), TapeValue::Array(vec![TapeValue::Sym(b"sleep"), TapeValue::Int(seconds)]));
        step = vm.resume(1, answer.clear().int(seconds * 10));
    }
    assert!(matches!(step, StepResult::Done), "{step:?}");
    assert_eq!(body(&vm), "[41, 42, 50, 60]");
}

#[test]
fn a_wait_in_a_c_call_raises_a_clear_error() {
    let Some(mut vm) = open() else { return };
    let app = app(&mut vm, "lambda { |env| Hash.new { |_, _| sleep 1 }[1] }");
    let error = raised(vm.request(1, app, [], false));
    assert_eq!(error.class, "FiberError");
    assert!(error.message.starts_with("cannot wait here"), "{error}");
    assert!(error.backtrace.iter().any(|frame| frame.starts_with("handler.rb:1")), "{error:?}");
}

#[test]
fn exceptions_have_class_message_and_backtrace() {
    let Some(mut vm) = open() else { return };
    let app = app(&mut vm, "lambda { |env|\n  raise ArgumentError, 'boom'\n}");
    let error = raised(vm.request(1, app, [], false));
    assert_eq!((error.class.as_str(), error.message.as_str()), ("ArgumentError", "boom"));
    assert!(error.backtrace[0].starts_with("handler.rb:2"), "{error:?}");
    let error = raised(load(&mut vm, "raise 'at boot'"));
    assert_eq!(error.message, "at boot");
    let error = raised(load(&mut vm, "42"));
    assert_eq!(
        (error.class.as_str(), error.message.contains("not callable")),
        ("TypeError", true),
        "{error}"
    );
    let error = vm.check("def a\n  1 +\nend end", "x.rb").unwrap_err();
    assert_eq!((error.class.as_str(), error.place.map(|(line, _)| line)), ("SyntaxError", Some(3)));
}

#[test]
fn exceeding_limits_affects_only_the_own_task() {
    let Some(mut vm) = open() else { return };
    let bomb = app(&mut vm, "lambda { |env| a = []; while true; a << 'x' * 1000; end }");
    let deep = app(&mut vm, "def deep; deep; end; lambda { |env| deep }");
    let fine = app(&mut vm, "lambda { |env| [200, {}, ['fine']] }");
    for (task, class) in [(bomb, "NoMemoryError"), (deep, "SystemStackError")] {
        assert_eq!(raised(vm.request(1, task, [], false)).class, class);
        assert!(matches!(vm.request(1, fine, [], false), StepResult::Done));
        assert_eq!(body(&vm), "fine");
    }
    vm.collect();
    assert!(vm.heap() < 4 << 20, "{}", vm.heap());
}

#[test]
fn more_tasks_can_wait_than_mruby_counts_procs() {
    let Some(vm) = open() else { return };
    drop(vm);
    let nothing = |_: u32, _: &[TapeValue<'_>], tape: &mut Tape| {
        tape.nil();
    };
    let mut vm = Vm::open(VmLimits { heap: 1 << 30, step: 32 << 20 }, Box::new(nothing)).unwrap();
    vm.eval(RESPOND, "respond.rb").unwrap();
    let app = app(&mut vm, "lambda { |env| sleep 1; [200, {}, ['slept']] }");
    let none: [(Text<'_>, Text<'_>); 0] = [];
    for task in 0..70_000 {
        let step = vm.request(task, app, none, false);
        assert!(matches!(step, StepResult::Wait), "task {task}: {step:?}");
    }
    let mut answer = Tape::new();
    answer.nil();
    for task in 0..70_000 {
        assert!(matches!(vm.resume(task, &answer), StepResult::Done));
    }
}

#[test]
fn the_depth_of_nested_fibers_is_limited() {
    let Some(mut vm) = open() else { return };
    let code = "lambda do |env|
                  nest = lambda { |n| n == 0 ? Rt.wait!(:there) : Fiber.new { nest.call(n - 1) }.resume }
                  [200, {}, [nest.call(99).inspect, nest.call(env['n'].to_i).inspect]]
                end";
    let app = app(&mut vm, code);
    let none: [(Text<'_>, Text<'_>); 0] = [];
    let mut answer = Tape::new();
    answer.int(7);
    for _ in 0..3 {
        let deep = [(Text::Bytes(b"n"), Text::Bytes(b"1000000"))];
        assert!(matches!(vm.request(1, app, deep, false), StepResult::Wait));
        assert!(matches!(vm.request(2, app, none, false), StepResult::Wait));
        let error = raised(vm.resume(1, &answer));
        assert!(error.class == "FiberError" && error.message.contains("nested too deeply"), "{error}");
        let mut step = vm.resume(2, &answer);
        while let StepResult::Wait = step {
            step = vm.resume(2, &answer);
        }
        assert!(matches!(step, StepResult::Done), "{step:?}");
        assert_eq!(body(&vm), "7");
    }
}

#[test]
fn the_slot_of_an_abandoned_task_can_be_reused() {
    let Some(mut vm) = open() else { return };
    let app = app(&mut vm, "lambda { |env| sleep 1; [200, {}, ['woken']] }");
    assert!(matches!(vm.request(1, app, [], false), StepResult::Wait));
    vm.abandon(1);
    vm.collect();
    assert!(matches!(vm.request(1, app, [], false), StepResult::Wait));
    assert!(matches!(vm.resume(1, Tape::new().nil()), StepResult::Done));
    assert_eq!(body(&vm), "woken");
}

#[test]
fn values_survive_the_round_trip() {
    let Some(mut vm) = open() else { return };
    let code = "lambda { |env| v = [nil, true, false, -7, 1.5, 'a\\0b', :sym, {'k' => [1, {}]}]
        [200, {}, [Rt.call(0, *v) == v ? 'same' : Rt.call(0, *v).inspect]] }";
    let app = app(&mut vm, code);
    assert!(matches!(vm.request(1, app, [], false), StepResult::Done));
    assert_eq!(body(&vm), "same");
}

/// Returns the size of the heap after this many requests, of which `waiting` wait at a time, each with an env
/// of `keys`.
fn heap_after(vm: &mut Vm, app: u32, keys: &[Interned], requests: u32, waiting: u32) -> usize {
    let mut answer = Tape::new();
    answer.nil();
    for number in 0..requests {
        let task = number % waiting;
        if number >= waiting {
            assert!(matches!(vm.resume(task, &answer), StepResult::Done));
        }
        let env = keys.iter().map(|key| (Text::Interned(*key), Text::Bytes(b"value")));
        let env: Vec<_> = env.collect();
        assert!(matches!(vm.request(task, app, env, false), StepResult::Wait));
    }
    vm.heap()
}

#[test]
fn waiting_requests_do_not_make_the_heap_grow() {
    for count in [6, 40] {
        let Some(mut vm) = open() else { return };
        let shared: String = (0..20).map(|number| format!("'SHARED_{number}' => 'value'.freeze, ")).collect();
        vm.eval(&format!("module Rt; env({{ {shared} }}); end"), "env.rb").unwrap();
        let app = app(&mut vm, "lambda { |env| sleep 1; [200, {}, ['x']] }");
        let keys: Vec<_> =
            (0..count).map(|number| vm.intern(format!("KEY_{number}").as_bytes()).unwrap()).collect();
        let early = heap_after(&mut vm, app, &keys, 2_000, 64);
        for task in 0..64 {
            vm.abandon(task);
        }
        let late = heap_after(&mut vm, app, &keys, 20_000, 64);
        assert!(
            late < 2 * early + (4 << 20),
            "{count} keys: {early} bytes after 2,000 requests, {late} after 20,000"
        );
    }
}
