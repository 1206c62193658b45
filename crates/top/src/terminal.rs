//! The terminal: taken, and given back as it was whatever happens.
//!
//! Contract: whenever this process does not run on purpose (ended, suspended, panicked), the terminal is in its usual mode,
//! on its usual screen, with its cursor.

use crossterm::cursor::{Hide, Show};
use crossterm::event::{self, Event};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, CrosstermBackend};
use ratatui::buffer::Buffer;
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, Stdout, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// A terminal that is ours until this is dropped.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    signals: Signals,
}

/// Signals that have come.
struct Signals {
    /// The one that asks for the end; 0 while none has.
    end: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    resumed: Arc<AtomicBool>,
}

/// What has happened at the terminal.
pub(crate) enum Happened {
    Nothing,
    Key(event::KeyEvent),
    /// It has another size, or has to be drawn anew.
    Changed,
    /// This signal asks for the end.
    End(i32),
    /// Somebody asked to suspend this.
    Suspend,
}

impl Screen {
    pub(crate) fn take() -> io::Result<Screen> {
        let signals = Signals::listen()?;
        restore_after_panics();
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let mut screen = Screen { terminal, signals };
        screen.enter()?;
        Ok(screen)
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.buffer_mut())).map(drop)
    }

    /// Waits for something to happen, but no longer than `patience`.
    pub(crate) fn wait(&mut self, patience: Duration) -> io::Result<Happened> {
        match self.signals.end.load(SeqCst) {
            0 => {}
            signal => return Ok(Happened::End(i32::try_from(signal).unwrap_or(SIGTERM))),
        }
        if self.signals.stop.swap(false, SeqCst) {
            return Ok(Happened::Suspend);
        }
        if self.signals.resumed.swap(false, SeqCst) {
            // Whoever stopped us without asking has had the terminal since.
            self.enter()?;
            return Ok(Happened::Changed);
        }
        if !event::poll(patience)? {
            return Ok(Happened::Nothing);
        }
        Ok(match event::read()? {
            Event::Key(key) => Happened::Key(key),
            Event::Resize(..) => Happened::Changed,
            _ => Happened::Nothing,
        })
    }

    /// Gives the terminal back, stops as the shell expects, and takes it again when it is continued.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        leave()?;
        emulate_default_handler(SIGTSTP)?;
        self.signals.resumed.store(false, SeqCst);
        self.enter()
    }

    /// Draws everything anew, whatever the terminal shows.
    ///
    /// Not by `Terminal::clear`, which asks the terminal for its cursor: not every one answers, and keys that come meanwhile
    /// are in the way.
    pub(crate) fn redraw(&mut self) -> io::Result<()> {
        let mut backend = CrosstermBackend::new(stdout());
        backend.clear_region(ClearType::All)?;
        self.terminal = Terminal::new(backend)?;
        Ok(())
    }

    /// Ends as the signal would have ended a program that does not catch it, so that a shell sees why.
    pub(crate) fn end_by(self, signal: i32) -> io::Result<()> {
        drop(self);
        emulate_default_handler(signal)
    }

    fn enter(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        self.redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that has gone needs nothing back.
        let _ = leave();
    }
}

fn leave() -> io::Result<()> {
    let shown = execute!(stdout(), LeaveAlternateScreen, Show);
    disable_raw_mode().and(shown)
}

/// What a panic says belongs on the usual screen, where it can be read.
fn restore_after_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let _ = leave();
        before(info);
    }));
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        let end = Arc::new(AtomicUsize::new(0));
        for signal in [SIGTERM, SIGHUP, SIGINT, SIGQUIT] {
            flag::register_usize(signal, Arc::clone(&end), signal as usize)?;
        }
        let (stop, resumed) = (Arc::default(), Arc::default());
        flag::register(SIGTSTP, Arc::clone(&stop))?;
        flag::register(SIGCONT, Arc::clone(&resumed))?;
        Ok(Signals { end, stop, resumed })
    }
}
