//! Tests that refuse memory at every point of everything that a handler can do: its request fails, and the VM
//! continues.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use crate::tasks::{app, body, open};
use mruby::{StepResult, Tape, Vm};

/// Handlers that end by themselves if they have enough memory.
const FINITE: [&str; 11] = [
    "lambda { |env| a = []; 60.times { |i| a << Fiber.new { |x| Fiber.yield x; i }; a[-1].resume(i) }; [200, {}, [a.size.to_s]] }",
    "KEEP = []
     lambda { |env| KEEP.clear; make = lambda { |n| x = n; y = [n]; lambda { x += 1; y << x; x } }
       60.times { |i| KEEP << make.call(i) }; [200, {}, [KEEP.map { |one| one.call }.inspect]] }",
    "lambda { |env| h = {}; 100.times { |i| h[\"key#{i}\"] = \"v#{i}\"; h.delete(\"key#{i / 2}\") if i % 3 == 0 }
       g = h.dup; g.merge!({ 1 => 2 }); g.rehash; [200, {}, [g.keys.inspect]] }",
    "lambda { |env| a = []; 200.times { |i| a << i }; b = a[1..-2]; b.unshift(1); c = a + b; c.insert(4, 9, 9)
       d = c.reverse.sort.uniq.concat(c); a.shift(50); a.push(*b); [200, {}, [d.map { |x| x.to_s }.join(',')]] }",
    "lambda { |env| s = 'x'; 8.times { s += s }; t = s[3..-3]; t << 'yy' * 50; u = t.sub('y', 'z').upcase
       v = \"#{t}#{u}\".dup; v[0] = 'abc' * 20; [200, {}, [v.reverse.inspect]] }",
    "N = [0]
     lambda { |env| 50.times { N[0] += 1; \"a_symbol_with_a_long_name_#{N[0]}\".to_sym }; [200, {}, ['x']] }",
    "def deep(n); n == 0 ? 0 : deep(n - 1) + 1; end
     def within(n, &b); n == 0 ? b.call : [n].each { within(n - 1, &b) }; end
     lambda { |env| deep(400); within(60) { 3 }; [200, {}, ['x']] }",
    "lambda { |env| a = []; 30.times { |i| begin; raise ArgumentError, \"wrong #{i}\"; rescue => e; a << e << e.backtrace; ensure; a << \"e#{i}\"; end }
       begin; no_such(1); rescue NoMethodError => e; a << e.inspect; end; [200, {}, [a.size.to_s]] }",
    "class Obj; attr_accessor :a; def initialize(i); @a = i; @b = [i]; @c = { i => i }; @d = \"s#{i}\"; end; end
     lambda { |env| all = (0..40).map { |i| Obj.new(i) }; all.each { |o| o.instance_variable_set(\"@x#{o.a}\", 1); o.dup; o.inspect }
       c = Class.new { define_method(:foo) { 1 } }; c.new.foo; o = Object.new; def o.zip(a, b: 2, **k); [a, b, k]; end
       o.zip(1, b: 3, q: 4); [200, {}, [all.size.to_s]] }",
    "lambda { |env| a = []; 10.times { |i| a << 'x' * 100; sleep 1; a << lambda { i }; f = Fiber.new { sleep 2; Fiber.yield 3; i }; f.resume; f.resume }
       [200, {}, [a.size.to_s]] }",
    "lambda { |env| e = Enumerator.new { |y| 20.times { |i| y << i } }; x = []; 10.times { x << e.next }; x << e.peek
       l = (0..80).map { |i| v = i; proc { |*args, k: 1, &b| v += k; args << v } }; l.each { |q| q.call(1, 2, k: 3) }
       eval('lambda { |z| { z => [z] } }').call(3); [200, {}, [x.inspect]] }",
];

/// Handlers that never end, or end when memory is refused.
const ENDLESS: [&str; 22] = [
    "a = []; while true; a << Fiber.new { |x| y = [x]; Fiber.yield y; y }; a[-1].resume(1) if a.size % 2 == 0; end",
    "chain = lambda { |b| Fiber.new { b } }; a = nil; while true; a = chain.call(a); end",
    "nest = lambda { |n| Fiber.new { x = 'x' * 1000; nest.call(n + 1); x }.resume }; nest.call(0)",
    "a = []; while true; f = Fiber.new { r = lambda { |n| n == 0 ? Fiber.yield(n) : [r.call(n - 1)] }; r.call(100) }; f.resume; a << f; end",
    "a = []; while true; f = Fiber.new { sleep 1; a << 'y' * 100; Fiber.yield 1 }; f.resume; a << f; end",
    "a = []; while true; e = [1, 2, 3].each; e.next; a << e; end",
    "h = {}; i = 0; while true; h[\"#{i += 1}\"] = i; end",
    "h = {}; i = 0; while true; h[i += 1] = i; h.delete(i / 2) if i % 5 == 0; end",
    "a = [1, 2, 3]; while true; a << a.size; end",
    "a = nil; while true; a = [a, a]; end",
    "a = []; while true; a << 'x' * (a.size % 97); end",
    "s = 'x'; while true; s = \"#{s}#{s}\"; end",
    "a = []; make = lambda { |x| y = x; z = [x]; lambda { y + z[0] } }; while true; a << make.call(a.size); end",
    "chain = lambda { |b| lambda { b } }; a = nil; while true; a = chain.call(a); end",
    "a = []; while true; begin; raise \"no #{a.size}\"; rescue => e; a << e; end; end",
    "a = []; 50.times { begin; while true; a << [a.size] << 'x' * 50; end; rescue Exception; a.shift(10); end }; raise 'end'",
    "f = lambda { |n, *r| x = [n]; f.call(n + 1, n, n, n) + x.size }; f.call(0)",
    "o = nil; while true; n = Object.new; n.instance_variable_set(:@a, o); n.instance_variable_set(:@b, [o]); o = n; end",
    "a = []; while true; a << Class.new { def foo; end }; a[-1].new.singleton_class; end",
    "a = []; while true; a << eval(\"lambda { |x| { x => x + #{a.size} } }\"); end",
    "a = nil; i = 0; while true; a = [a, (i..(i += 1))]; end",
    "a = []; while true; begin; a << { a: 1, **{ b: 2 } } << [*a.last.to_a, 3]; ensure; a << :x; end; end",
];

/// Runs a request with this much memory to its end, with at most 1,000 waits.
fn run(vm: &mut Vm, app: u32, memory: usize) -> StepResult {
    vm.limit_step(memory);
    let mut step = vm.request(1, app, [], false);
    for _ in 0..1_000 {
        if !matches!(step, StepResult::Wait) {
            return step;
        }
        step = vm.resume(1, Tape::new().nil());
    }
    vm.abandon(1);
    step
}

fn goes_on(vm: &mut Vm, fine: u32, after: &str) {
    vm.limit_step(32 << 20);
    let step = vm.request(1, fine, [], false);
    assert!(matches!(step, StepResult::Done), "{after}: {step:?}");
    assert_eq!(body(vm), "fine", "{after}");
}

#[test]
fn a_request_fails_wherever_memory_is_refused() {
    for code in FINITE {
        let Some(mut vm) = open() else { return };
        let (app, fine) = (app(&mut vm, code), app(&mut vm, "lambda { |env| [200, {}, ['fine']] }"));
        for memory in (0..60_000).step_by(997) {
            let step = run(&mut vm, app, memory);
            assert!(matches!(step, StepResult::Done | StepResult::Raised(_)), "{memory}: {step:?}: {code}");
            goes_on(&mut vm, fine, code);
            if memory % 16 == 0 {
                vm.collect();
            }
        }
    }
}

#[test]
fn a_request_that_never_has_enough_fails() {
    for code in ENDLESS {
        let Some(mut vm) = open() else { return };
        let (app, fine) = (
            app(&mut vm, &format!("lambda {{ |env| {code} }}")),
            app(&mut vm, "lambda { |env| [200, {}, ['fine']] }"),
        );
        for memory in [0, 1_000, 50_000, 333_333, 1_000_000] {
            let step = run(&mut vm, app, memory);
            assert!(matches!(step, StepResult::Raised(_) | StepResult::Wait), "{memory}: {step:?}: {code}");
            vm.collect();
            goes_on(&mut vm, fine, code);
        }
    }
}

#[test]
fn a_full_heap_refuses_new_requests_and_keeps_those_that_wait() {
    let Some(mut vm) = open() else { return };
    let app = app(&mut vm, "lambda { |env| a = 'x' * 10_001; sleep 1; [200, {}, [a.size.to_s]] }");
    let mut waiting = 0;
    for task in 0..20_000 {
        vm.limit_step(1 << 20);
        match vm.request(task, app, [], false) {
            StepResult::Wait => waiting = task + 1,
            StepResult::Raised(error) => assert_eq!(error.class, "NoMemoryError"),
            other => panic!("{other:?}"),
        }
        if task > waiting + 2_000 {
            break;
        }
    }
    assert!(waiting > 1_000, "{waiting} wait in a heap of 64 MiB");
    assert!(vm.heap() < 72 << 20, "{} bytes", vm.heap());
    for task in (0..waiting).rev() {
        let step = vm.resume(task, Tape::new().nil());
        assert!(matches!(step, StepResult::Done), "{task}: {step:?}");
    }
    assert!(matches!(vm.request(0, app, [], false), StepResult::Wait), "there is room again");
}
