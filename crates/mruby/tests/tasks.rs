//! Tasks on a real VM: what they give, how they wait, and what they cannot break.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use mruby::{Exception, Limits, Step, Tape, Text, Value, Vm};

const RESPOND: &str =
    "module Rt; def self.respond(app, env); response = app.call(env); plain(response) || response; end; end
     module Kernel; def sleep(n); Rt.wait!(:sleep, n); end; end";

/// A VM whose host gives back what it is given; `None` in a build without mruby.
fn open() -> Option<Vm> {
    Vm::version()?;
    let limits = Limits { heap: 64 << 20, step: 32 << 20 };
    let echo = |_: u32, args: &[Value<'_>], tape: &mut Tape| {
        tape.value(&Value::Array(args.to_vec()));
    };
    let mut vm = Vm::open(limits, Box::new(echo)).unwrap();
    vm.eval(RESPOND, "respond.rb").unwrap();
    Some(vm)
}

fn load(vm: &mut Vm, code: &str) -> Step {
    let job = vm.intern(b"load_app").unwrap();
    let mut args = Tape::new();
    args.array(2).str(code).str("handler.rb");
    vm.start(0, job, &args)
}

fn app(vm: &mut Vm, code: &str) -> u32 {
    let step = load(vm, code);
    assert!(matches!(step, Step::Done), "{step:?}");
    vm.out().int().unwrap() as u32
}

fn raised(step: Step) -> Exception {
    match step {
        Step::Raised(exception) => exception,
        other => panic!("{other:?} instead of an exception"),
    }
}

fn body(vm: &Vm) -> String {
    let out = vm.out();
    let text = out.array().unwrap()[2].array().unwrap()[0].text().unwrap();
    String::from_utf8_lossy(text).into_owned()
}

#[test]
fn a_handler_answers() {
    let Some(mut vm) = open() else { return };
    let code = "class App; def call(env); [200, {'a' => 'b'}, [env['PATH_INFO'], 'x']]; end; end; App.new";
    let app = app(&mut vm, code);
    let key = vm.intern(b"PATH_INFO").unwrap();
    for _ in 0..3 {
        let step = vm.request(1, app, [(Text::Kept(key), Text::Bytes(b"/a"))]);
        assert!(matches!(step, Step::Done), "{step:?}");
        let [fields, parts] = [["a", "b"], ["/a", "x"]]
            .map(|texts| Value::Array(texts.iter().map(|text| Value::Str(text.as_bytes())).collect()));
        assert_eq!(vm.out(), Value::Array(vec![Value::Int(200), fields, parts]));
    }
}

#[test]
fn tasks_wait_side_by_side_and_get_their_own_answers() {
    let Some(mut vm) = open() else { return };
    let app = app(&mut vm, "lambda { |env| a = sleep(0.5); [200, {}, [a.to_s]] }");
    for task in 0..3 {
        assert!(matches!(vm.request(task, app, []), Step::Wait));
        assert_eq!(vm.out(), Value::Array(vec![Value::Sym(b"sleep"), Value::Float(0.5)]));
    }
    for task in [2, 0, 1] {
        let mut answer = Tape::new();
        answer.int(i64::from(task));
        assert!(matches!(vm.resume(task, &answer), Step::Done));
        assert_eq!(body(&vm), task.to_string());
    }
}

#[test]
fn what_a_wait_fails_with_is_raised_where_it_waits() {
    let Some(mut vm) = open() else { return };
    let app =
        app(&mut vm, "lambda { |env| begin; sleep 1; rescue KeyError => e; [200, {}, [e.message]]; end }");
    assert!(matches!(vm.request(1, app, []), Step::Wait));
    let mut answer = Tape::new();
    answer.fault("KeyError", "no such key");
    assert!(matches!(vm.resume(1, &answer), Step::Done));
    assert_eq!(body(&vm), "no such key");
    assert!(matches!(vm.request(1, app, []), Step::Wait));
    answer.clear().fault("No::Such", "odd");
    let error = raised(vm.resume(1, &answer));
    assert_eq!((error.class.as_str(), error.message.as_str()), ("RuntimeError", "No::Such: odd"));
}

#[test]
fn fibers_and_enumerators_of_the_handler_do_not_get_in_the_way() {
    let Some(mut vm) = open() else { return };
    let code = "lambda { |env|
        f = Fiber.new { |x| y = sleep(x); Fiber.yield(y + 1); y + 2 }
        e = Enumerator.new { |out| out << sleep(5); out << sleep(6) }
        [200, {}, [[f.resume(4), f.resume, e.next, e.next].inspect]]
      }";
    let app = app(&mut vm, code);
    let mut step = vm.request(1, app, []);
    let mut answer = Tape::new();
    for seconds in [4, 5, 6] {
        assert!(matches!(step, Step::Wait), "{step:?}");
        assert_eq!(vm.out(), Value::Array(vec![Value::Sym(b"sleep"), Value::Int(seconds)]));
        step = vm.resume(1, answer.clear().int(seconds * 10));
    }
    assert!(matches!(step, Step::Done), "{step:?}");
    assert_eq!(body(&vm), "[41, 42, 50, 60]");
}

#[test]
fn where_nothing_can_wait_there_is_a_clear_error() {
    let Some(mut vm) = open() else { return };
    let app = app(&mut vm, "lambda { |env| Hash.new { |_, _| sleep 1 }[1] }");
    let error = raised(vm.request(1, app, []));
    assert_eq!(error.class, "FiberError");
    assert!(error.message.starts_with("cannot wait here"), "{error}");
    assert!(error.backtrace.iter().any(|frame| frame.starts_with("handler.rb:1")), "{error:?}");
}

#[test]
fn exceptions_tell_class_message_and_place() {
    let Some(mut vm) = open() else { return };
    let app = app(&mut vm, "lambda { |env|\n  raise ArgumentError, 'boom'\n}");
    let error = raised(vm.request(1, app, []));
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
fn bombs_cost_only_their_own_task() {
    let Some(mut vm) = open() else { return };
    let bomb = app(&mut vm, "lambda { |env| a = []; while true; a << 'x' * 1000; end }");
    let deep = app(&mut vm, "def deep; deep; end; lambda { |env| deep }");
    let fine = app(&mut vm, "lambda { |env| [200, {}, ['fine']] }");
    for (task, class) in [(bomb, "NoMemoryError"), (deep, "SystemStackError")] {
        assert_eq!(raised(vm.request(1, task, [])).class, class);
        assert!(matches!(vm.request(1, fine, []), Step::Done));
        assert_eq!(body(&vm), "fine");
    }
    vm.collect();
    assert!(vm.heap() < 4 << 20, "{}", vm.heap());
}

#[test]
fn a_task_that_is_left_leaves_its_place_to_another() {
    let Some(mut vm) = open() else { return };
    let app = app(&mut vm, "lambda { |env| sleep 1; [200, {}, ['woken']] }");
    assert!(matches!(vm.request(1, app, []), Step::Wait));
    vm.abandon(1);
    vm.collect();
    assert!(matches!(vm.request(1, app, []), Step::Wait));
    assert!(matches!(vm.resume(1, Tape::new().nil()), Step::Done));
    assert_eq!(body(&vm), "woken");
}

#[test]
fn values_come_back_as_they_went() {
    let Some(mut vm) = open() else { return };
    let code = "lambda { |env| v = [nil, true, false, -7, 1.5, 'a\\0b', :sym, {'k' => [1, {}]}]
        [200, {}, [Rt.call(0, *v) == v ? 'same' : Rt.call(0, *v).inspect]] }";
    let app = app(&mut vm, code);
    assert!(matches!(vm.request(1, app, []), Step::Done));
    assert_eq!(body(&vm), "same");
}
