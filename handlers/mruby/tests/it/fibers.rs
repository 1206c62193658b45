//! Tests of Fibers in handlers: nothing reaches another request, and a Fiber is reused only after it has finished.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use crate::tasks::{app, body, open, raised};
use mruby::{Exception, StepResult, Tape, Text, Vm};

/// Sends a client's request with the client's name in the env.
fn request(vm: &mut Vm, task: u32, app: u32, name: &str) -> StepResult {
    vm.request(task, app, [(Text::Bytes(b"NAME"), Text::Bytes(name.as_bytes()))], false)
}

/// A handler that responds with the name of its client, and a session in its Fiber.
const HONEST: &str = "lambda { |env| mine = env['NAME']; sleep 1; [200, {}, [[mine, env['NAME'], Fiber.current.alive?].inspect]] }";

fn serve(vm: &mut Vm, task: u32, app: u32, name: &str) {
    assert!(matches!(request(vm, task, app, name), StepResult::Wait), "{name}");
    let step = vm.resume(task, Tape::new().nil());
    assert!(matches!(step, StepResult::Done), "{name}: {step:?}");
    assert_eq!(body(vm), format!("[\"{name}\", \"{name}\", true]"));
}

/// Runs a handler to its end and returns its exception. Then its Fiber, and others, serve the next clients.
fn fails(code: &str) -> Option<Exception> {
    let mut vm = open()?;
    let (hostile, honest) = (app(&mut vm, code), app(&mut vm, HONEST));
    let mut last = None;
    for round in 0..3 {
        assert!(matches!(request(&mut vm, 2, honest, "beside"), StepResult::Wait), "{code}");
        let mut step = request(&mut vm, 1, hostile, "hostile");
        for _ in 0..20 {
            if !matches!(step, StepResult::Wait) {
                break;
            }
            step = vm.resume(1, Tape::new().nil());
        }
        last = Some(raised(step));
        serve(&mut vm, 1, honest, &format!("next {round}"));
        let step = vm.resume(2, Tape::new().nil());
        assert!(matches!(step, StepResult::Done), "{code}: {step:?}");
        assert_eq!(body(&vm), "[\"beside\", \"beside\", true]");
        vm.collect();
    }
    last
}

fn is_fiber_error(code: &str) {
    let Some(error) = fails(code) else { return };
    assert_eq!(error.class, "FiberError", "{code}: {error}");
}

#[test]
fn a_yield_from_the_fiber_of_a_request_is_an_error_of_that_request() {
    for code in [
        "lambda { |env| Fiber.yield }",
        "lambda { |env| Fiber.yield(true) }",
        "lambda { |env| Fiber.yield(nil) }",
        "lambda { |env| Fiber.yield([200, {}, ['mine']]) }",
        "lambda { |env| Fiber.yield(1, 2, 3) }",
        "lambda { |env| Fiber.yield(Rt::WAITING) }",
        "lambda { |env| sleep 1; Fiber.yield(true) }",
        "lambda { |env| begin; [200, {}, []]; ensure; Fiber.yield(true); end }",
        "lambda { |env| begin; raise 'x'; rescue => e; Fiber.yield(e); end }",
        "lambda { |env| [1].each { |one| Fiber.yield(one) } }",
        "lambda { |env| Fiber.new { Fiber.yield 1 }.resume; Fiber.yield 2 }",
        "inner = lambda { |env| Fiber.yield(true) }; lambda { |env| inner.call(env) }",
        "class Each; def each; yield 'a'; Fiber.yield(true); end; end; lambda { |env| Each.new.each { |part| sleep 1 } }",
        "lambda { |env| Fiber.__send__(:yield, true) }",
        "lambda { |env| Fiber.method(:yield).call(true) }",
    ] {
        is_fiber_error(code);
    }
}

#[test]
fn what_leaves_the_fiber_in_another_way_is_an_error_of_that_request() {
    for code in [
        "lambda { |env| Rt.leave(true) }",
        "lambda { |env| Rt.leave(nil) }",
        "lambda { |env| Rt.leave(Rt::WAITING) }",
        "lambda { |env| Rt.plain([200, {}, ['x']]); Rt.leave(true) }",
        "lambda { |env| Fiber.new { [] }.transfer }",
        "lambda { |env| Fiber.current.transfer(true) }",
        "lambda { |env| Fiber.current.resume }",
        "lambda { |env| Fiber.current.__resume__(1) }",
        "lambda { |env| Fiber.current.__continue__(1) }",
    ] {
        is_fiber_error(code);
    }
    // Values that are not responses.
    for code in ["lambda { |env| Rt::WAITING }", "lambda { |env| Object.new }"] {
        let Some(error) = fails(code) else { return };
        assert_eq!(error.class, "TypeError", "{code}: {error}");
    }
}

#[test]
fn true_is_no_response_of_another_request() {
    let Some(mut vm) = open() else { return };
    let (hostile, honest) =
        (app(&mut vm, "lambda { |env| true }"), app(&mut vm, "lambda { |env| [200, {}, ['secret']] }"));
    for _ in 0..2 {
        assert!(matches!(request(&mut vm, 1, honest, "first"), StepResult::Done));
        assert!(matches!(request(&mut vm, 2, hostile, "second"), StepResult::Done));
        assert_eq!(vm.out(), mruby::TapeValue::Bool(true));
    }
}

/// Tests handlers that keep a Fiber of the first request and resume it in the second.
#[test]
fn the_fiber_of_another_request_cannot_be_resumed() {
    let kept = [
        "$kept = Fiber.current; sleep 1; [200, {}, [env['NAME']]]",
        "$kept = Fiber.new { sleep 1; env['NAME'] }; [200, {}, [$kept.resume]]",
        "$kept = Fiber.new { Fiber.new { sleep 1; env['NAME'] }.resume }; [200, {}, [$kept.resume]]",
        "f = Fiber.new { $kept = Fiber.current; sleep 1; env['NAME'] }; Fiber.new { f.resume }.resume.then { |name| [200, {}, [name]] }",
    ];
    for (first, how) in
        kept.into_iter().flat_map(|first| ["resume", "__resume__", "__continue__"].map(|how| (first, how)))
    {
        let Some(mut vm) = open() else { return };
        vm.eval("module Kernel; def then; yield self; end; end", "then.rb").unwrap();
        let owner = app(&mut vm, &format!("lambda {{ |env| {first} }}"));
        let thief = app(
            &mut vm,
            &format!("lambda {{ |env| got = $kept.{how}('stolen'); [200, {{}}, [got.inspect]] }}"),
        );
        for round in 0..2 {
            let name = format!("owner {round}");
            assert!(matches!(request(&mut vm, 1, owner, &name), StepResult::Wait), "{first}");
            let error = raised(request(&mut vm, 2, thief, "thief"));
            assert_eq!(error.class, "FiberError", "{first}, {how}: {error}");
            let step = vm.resume(1, Tape::new().nil());
            assert!(matches!(step, StepResult::Done), "{first}, {how}: {step:?}");
            assert_eq!(body(&vm), name, "{first}, {how}");
        }
    }
}

#[test]
fn a_fiber_that_waits_for_nothing_can_be_shared() {
    let Some(mut vm) = open() else { return };
    let code = "IDS = Fiber.new { id = 0; while true; Fiber.yield(id += 1); end }
                lambda { |env| sleep 1; [200, {}, [IDS.resume.to_s]] }";
    let app = app(&mut vm, code);
    for id in 1..5 {
        assert!(matches!(request(&mut vm, 1, app, "any"), StepResult::Wait));
        assert!(matches!(vm.resume(1, Tape::new().nil()), StepResult::Done));
        assert_eq!(body(&vm), id.to_string());
    }
}

#[test]
fn closures_outlive_the_fiber_that_was_dropped() {
    let Some(mut vm) = open() else { return };
    let code = "KEPT = []
                lambda { |env|
                  return [200, {}, [KEPT.map { |one| one.call }.join(',')]] if env['NAME'] == 'reader'
                  mine = env['NAME'] * 3
                  KEPT << lambda { mine }
                  while true; begin; sleep 1; rescue Exception; end; end }";
    let app = app(&mut vm, &code.replace("return ", "next "));
    for task in 0..20 {
        assert!(matches!(request(&mut vm, task, app, "ab"), StepResult::Wait));
        vm.abandon(task);
        vm.collect();
    }
    assert!(matches!(request(&mut vm, 1, app, "reader"), StepResult::Done));
    assert_eq!(body(&vm), vec!["ababab"; 20].join(","));
}

#[test]
fn exceptions_that_cannot_be_described_do_not_break_the_vm() {
    for code in [
        "class Odd < StandardError; def message; raise 'no'; end; end; lambda { |env| raise Odd }",
        "class Odd2 < StandardError; def backtrace; Object.new; end; end; lambda { |env| raise Odd2 }",
        "class Odd3 < StandardError; def self.to_s; raise 'no'; end; end; lambda { |env| raise Odd3 }",
        "class Odd4 < StandardError; def message; Fiber.yield(true); end; end; lambda { |env| raise Odd4 }",
    ] {
        assert!(fails(code).is_none_or(|error| !error.class.is_empty()), "{code}");
    }
}
