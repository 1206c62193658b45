//! The live screen: what the server tells and what keys ask for, until one of them is the end.

use crate::Failure;
use crate::draw;
use crate::options::Options;
use crate::source::{self, Order, Told};
use crate::state::{State, Wish};
use crate::terminal::{Happened, Screen};
use crate::theme::Theme;
use control::client::Client;
use std::io;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// How long a look may be there before it is shown.
const LAG: Duration = Duration::from_millis(50);
/// What counts seconds (since when the server is gone) is drawn anew this often.
const CLOCK: Duration = Duration::from_secs(1);

pub(crate) fn run(client: &Client, options: &Options) -> Result<(), Failure> {
    let (orders, told) = source::start(client.clone(), options.interval);
    let screen = Screen::take().map_err(lost)?;
    let live =
        Live { screen, orders, told, state: State::new(options.interval), theme: Theme::new(options.colour) };
    live.run(client).map_err(lost)
}

fn lost(error: io::Error) -> Failure {
    Failure::Run(format!("the terminal cannot be used: {error}; `firebrick top --once` needs none"))
}

struct Live {
    screen: Screen,
    orders: Sender<Order>,
    told: Receiver<Told>,
    state: State,
    theme: Theme,
}

impl Live {
    fn run(mut self, client: &Client) -> io::Result<()> {
        let asked = client.address().to_string();
        let mut drawn: Option<Instant> = None;
        loop {
            if self.take_in() {
                drawn = None;
            }
            if drawn.is_none_or(|at| at.elapsed() >= CLOCK) {
                let (state, theme, asked) = (&self.state, self.theme, asked.as_str());
                self.screen.draw(|buffer| draw::screen(buffer, state, theme, asked))?;
                drawn = Some(Instant::now());
            }
            let wish = match self.screen.wait(LAG)? {
                Happened::Nothing => continue,
                Happened::Key(key) => self.state.pressed(key),
                Happened::Changed => Wish::Redraw,
                Happened::Suspend => Wish::Suspend,
                Happened::End(signal) => return self.screen.end_by(signal),
            };
            match wish {
                Wish::Quit => return Ok(()),
                Wish::Suspend => self.screen.suspend()?,
                Wish::Redraw => self.screen.redraw()?,
                Wish::Interval(interval) => self.order(Order::Interval(interval)),
                Wish::Backtrace(request) => {
                    let seen = self.state.view.as_ref().map_or_else(Instant::now, |view| view.look.at);
                    self.order(Order::Trace(request, seen));
                }
                Wish::Nothing => {}
            }
            drawn = None;
        }
    }

    fn order(&self, order: Order) {
        // The thread that takes orders ends only after this one has.
        let _ = self.orders.send(order);
    }

    /// Whether there was something new.
    fn take_in(&mut self) -> bool {
        let mut new = false;
        for told in self.told.try_iter() {
            new = true;
            match told {
                Told::Look(look) => self.state.looked(look.map(|look| *look)),
                Told::Trace { asked, passed, answer } => self.state.traced(&asked, answer, passed),
            }
        }
        new
    }
}
