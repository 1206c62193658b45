//! Logs orders on demand that the hourly limit delays: [`Overflow`].
//!
//! Why: a client that requests thousands of non-existent names must not fill the log.
//!
//! Contract: one line at the start, then one per minute with the count, until a minute has passed without any.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::task::spawn_local;

/// The interval between two lines.
const TURN: Duration = Duration::from_secs(60);

#[derive(Default)]
pub struct Overflow {
    /// Whether the first line was written and a minute is running.
    running: Cell<bool>,
    /// Orders since the last line.
    count: Cell<u64>,
    last: RefCell<String>,
}

impl Overflow {
    /// Records that the order for `name` is delayed because of the limit `per_hour`.
    pub fn note(self: &Rc<Overflow>, name: &str, per_hour: u32, log: &Rc<dyn Fn(&str)>) {
        if self.running.replace(true) {
            self.count.update(|count| count + 1);
            name.clone_into(&mut self.last.borrow_mut());
            return;
        }
        log(&format!(
            "no certificate: {name}: the limit acme.on_demand_per_hour is reached ({per_hour}); new names wait until orders are left, \
             and are counted here once a minute"
        ));
        let (overflow, log) = (self.clone(), log.clone());
        spawn_local(async move {
            loop {
                tokio::time::sleep(TURN).await;
                let Some(line) = overflow.turn(per_hour) else { return };
                log(&line);
            }
        });
    }

    /// Returns the line for the past minute. `None`: no order was delayed in it, and the next one starts over.
    fn turn(&self, per_hour: u32) -> Option<String> {
        let count = self.count.replace(0);
        if count == 0 {
            self.running.set(false);
            return None;
        }
        let (orders, last) = (if count == 1 { "order was" } else { "orders were" }, self.last.take());
        Some(format!(
            "no certificate: {count} more {orders} put off within a minute by the limit acme.on_demand_per_hour ({per_hour}), the last \
             one for {last}; if these names are not yours, acme.ask has to refuse them"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::{Builder, LocalOptions};

    #[test]
    fn a_flood_is_a_line_and_one_a_minute() {
        let said = Rc::new(RefCell::new(Vec::new()));
        let lines = said.clone();
        let log: Rc<dyn Fn(&str)> = Rc::new(move |line: &str| lines.borrow_mut().push(line.to_owned()));
        let overflow = Rc::new(Overflow::default());
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        let flood = |turn: u32, count: u32| {
            (0..count).for_each(|number| overflow.note(&format!("{turn}-{number}.test"), 20, &log));
        };
        runtime.block_on(async {
            flood(0, 1_000);
            let turn = overflow.turn(20).unwrap();
            assert!(
                turn.starts_with("no certificate: 999 more orders were put off within a minute"),
                "{turn}"
            );
            assert!(turn.contains("the last one for 0-999.test; "), "{turn}");
            flood(1, 1);
            assert!(overflow.turn(20).unwrap().starts_with("no certificate: 1 more order was put off"));
            assert_eq!(said.borrow().len(), 1, "no line of their own");
            assert_eq!(overflow.turn(20), None);
            flood(2, 2);
        });
        let said = said.borrow();
        assert!(
            said[0]
                .starts_with("no certificate: 0-0.test: the limit acme.on_demand_per_hour is reached (20); ")
        );
        assert!(said[1].starts_with("no certificate: 2-0.test: the limit "), "it has ended and begins again");
        assert_eq!(said.len(), 2);
    }
}
