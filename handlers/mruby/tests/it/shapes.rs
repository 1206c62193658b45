//! Tests that envs from a cached shape equal those created without the cache.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use mruby::{Interned, StepResult, Tape, Text, Vm, VmLimits};

const RUBY: &str = "
module Rt
  env({ 'A' => 'a0'.freeze, 'rack.errors' => nil, 'B' => 'b0'.freeze })

  def self.respond(app, env, _)
    plain([200, {}, [env.map { |pair| pair.join('=') }.join(' ')]])
  end
end
";

struct Envs {
    vm: Vm,
    app: u32,
    names: Vec<(String, Interned)>,
}

impl Envs {
    /// Returns `None` in a build without mruby.
    fn open(count: usize) -> Option<Envs> {
        Vm::version()?;
        let limits = VmLimits { heap: 64 << 20, step: 32 << 20 };
        let mut vm = Vm::open(limits, Box::new(|_, _, _| {})).unwrap();
        vm.eval(RUBY, "respond.rb").unwrap();
        // Makes the collector run while a Hash is being filled.
        vm.eval("GC.interval_ratio = 101; GC.step_ratio = 1000", "gc.rb").unwrap();
        let job = vm.intern(b"load_app").unwrap();
        let mut args = Tape::new();
        args.array(2).str("lambda {}").str("app.rb");
        assert!(matches!(vm.start(0, job, &args), StepResult::Done));
        let app = u32::try_from(vm.out().int().unwrap()).unwrap();
        let mut names =
            vec![("A".to_owned(), vm.intern(b"A").unwrap()), ("B".to_owned(), vm.intern(b"B").unwrap())];
        for number in names.len()..count {
            let name = format!("KEY_{number}");
            let kept = vm.intern(name.as_bytes()).unwrap();
            names.push((name, kept));
        }
        Some(Envs { vm, app, names })
    }

    /// Sends a request with these keys and the values of this round; returns the env.
    fn ask(&mut self, keys: &[usize], round: usize) -> String {
        let values: Vec<String> =
            keys.iter().map(|key| format!("{key}-{round}-{}", "x".repeat(round))).collect();
        let pairs: Vec<_> = keys
            .iter()
            .map(|key| Text::Interned(self.names[*key].1))
            .zip(values.iter().map(|value| Text::Bytes(value.as_bytes())))
            .collect();
        let step = self.vm.request(1, self.app, pairs, false);
        assert!(matches!(step, StepResult::Done), "{step:?}");
        let out = self.vm.out();
        let body = out.array().unwrap()[2].array().unwrap();
        String::from_utf8(body[0].text().unwrap().to_vec()).unwrap()
    }

    /// Returns the expected env: the template's keys first, then the others in order; of equal keys the last value.
    fn wanted(&self, keys: &[usize], round: usize) -> String {
        let mut pairs = vec![
            ("A".to_owned(), "a0".to_owned()),
            ("rack.errors".to_owned(), String::new()),
            ("B".to_owned(), "b0".to_owned()),
        ];
        for key in keys {
            let (name, value) = (&self.names[*key].0, format!("{key}-{round}-{}", "x".repeat(round)));
            match pairs.iter_mut().find(|(other, _)| other == name) {
                Some(pair) => pair.1 = value,
                None => pairs.push((name.clone(), value)),
            }
        }
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn an_env_is_the_same_with_and_without_the_cache() {
    let Some(mut envs) = Envs::open(80) else { return };
    // Short and long lists, keys of the template, the same key twice, and more shapes than the cache holds.
    let mut lists: Vec<Vec<usize>> =
        vec![vec![], vec![0], vec![1, 0], vec![5, 0, 5], (0..20).collect(), (0..80).collect()];
    for seed in 0..60usize {
        lists.push((0..seed % 24 + 1).map(|place| (seed * 7 + place * (seed % 5 + 1)) % 80).collect());
    }
    for round in 0..40 {
        for keys in &lists {
            assert_eq!(envs.ask(keys, round), envs.wanted(keys, round), "{keys:?}");
            assert_eq!(envs.ask(keys, round + 1), envs.wanted(keys, round + 1), "{keys:?}");
        }
    }
}

#[test]
fn changes_to_an_env_do_not_affect_the_next() {
    let Some(mut envs) = Envs::open(30) else { return };
    envs.vm
        .eval(
            "module Rt; def self.respond(app, env, _)
               text = env.map { |pair| pair.join('=') }.join(' ')
               env.clear; 40.times { |i| env['x' + i.to_s] = i }; env.delete('x3')
               plain([200, {}, [text]])
             end; end",
            "rude.rb",
        )
        .unwrap();
    let keys: Vec<usize> = (0..25).collect();
    for round in 0..50 {
        assert_eq!(envs.ask(&keys, round), envs.wanted(&keys, round));
    }
}
